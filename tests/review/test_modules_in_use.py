"""Findings in a module that only the scripts that use it show, and look-alikes that are right."""

from pathlib import Path

import pytest
from ddpwizard.app.review.files import FoundFile
from ddpwizard.app.review.many_files import review_files
from ddpwizard.app.review.review import review_text
from ddpwizard.app.review.settings import ReviewSettings
from ddpwizard.app.review.types import ReviewedFile
from helpers.review_snippets import KNOWLEDGE

MAIN = """\
import torch
import torch.distributed as dist
from parts import {name}

def main():
    dist.init_process_group("gloo")
    {body}

if __name__ == "__main__":
    main()
"""
SHARD = """\
import zlib

def shard(names, rank, world):
    return [name for name in names if {place} % world == rank]
"""
REDUCE = """\
import torch
import torch.distributed as dist

def reduce_all(values):
    for name in values:
        total = torch.tensor(float(values[name]))
        dist.all_reduce(total)
        values[name] = total.item()
"""
COUNT = """counts = {first}
    for label in torch.randn(4).add(dist.get_rank()).tolist():
        counts[int(label)] = counts.get(int(label), 0) + 1
    reduce_all(counts)"""
CACHE = """\
import os
import torch
import torch.distributed as dist

def cached(folder, rank):
    path = os.path.join(folder, "features.pt")
    if not os.path.exists(path):
        if rank == 0:
            torch.save(torch.ones(1), path)
        {inside}
    {behind}
    return torch.load(path)
"""
TRAINER = """\
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

class Trainer:
    def __init__(self, data):
        self.loader = DataLoader(data, sampler=DistributedSampler(data))
        self.model = DistributedDataParallel(torch.nn.Linear(1, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def run_epoch(self, epoch, loader):
        {first}
        for batch in loader:
            self.model(batch).sum().backward()
            self.optimizer.step()

    def train(self):
        for epoch in range(3):
            self.run_epoch(epoch, self.loader)
"""
CALLBACKS = """\
import torch.distributed as dist

class Norms:
    def on_step(self, model):
        dist.all_reduce(model)

class Callbacks:
    def __init__(self, callbacks):
        self.callbacks = {held}

    def on_step(self, model):
        for each in self.callbacks:
            each.on_step(model)
"""
LOG = """\
import torch.distributed as dist

RANK = {rank}

def log(text):
    if RANK == 0:
        print(text)
"""
OF_CALLBACKS = "from parts import Norms; Callbacks([Norms()]).on_step(torch.ones(1))"
OF_TRAINER = "Trainer(list(range(8))).train()"
OF_CACHE = 'print(cached("out", dist.get_rank()))'
# Of a case: the function that the script imports, what it does with it, and the module.
Case = tuple[str, str, str]
WRONG: dict[str, tuple[Case, tuple[str, int]]] = {
    "hashes that share out": (
        ("shard", 'shard(["a", "b"], dist.get_rank(), dist.get_world_size())', SHARD.format(place="hash(name)")),
        ("DW414", 4),
    ),
    "names that data of a rank decide": (("reduce_all", COUNT.format(first="{}"), REDUCE), ("DW405", 5)),
    "a barrier of those that find no file": (
        ("cached", OF_CACHE, CACHE.format(inside="dist.barrier()", behind="pass")),
        ("DW406", 7),
    ),
    "callbacks of one rank": (
        ("Callbacks", OF_CALLBACKS, CALLBACKS.format(held="callbacks if dist.get_rank() == 0 else []")),
        ("DW401", 13),
    ),
    "a rank at the import": (("log", 'log("on")', LOG.format(rank="dist.get_rank()")), ("DW118", 3)),
    "a sampler without an epoch": (("Trainer", OF_TRAINER, TRAINER.format(first="pass")), ("DW203", 7)),
}
RIGHT: dict[str, Case] = {
    "checksums that share out": (
        "shard",
        'shard(["a", "b"], dist.get_rank(), dist.get_world_size())',
        SHARD.format(place="zlib.crc32(name.encode())"),
    ),
    "hashes that are not for ranks": ("shard", 'shard(["a", "b"], 0, 7)', SHARD.format(place="hash(name)")),
    "all names at the start": ("reduce_all", COUNT.format(first="{name: 0 for name in range(4)}"), REDUCE),
    "names that are written out": ("reduce_all", COUNT.format(first="{0: 0, 1: 0}"), REDUCE),
    "callbacks of all ranks": ("Callbacks", OF_CALLBACKS, CALLBACKS.format(held="callbacks")),
    "a rank of the environment": ("log", 'log("on")', "import os\n" + LOG.format(rank='int(os.environ["RANK"])')),
    "a sampler with its epoch": ("Trainer", OF_TRAINER, TRAINER.format(first="loader.sampler.set_epoch(epoch)")),
    "a barrier for all": ("cached", OF_CACHE, CACHE.format(inside="pass", behind="dist.barrier()")),
}


def findings(case: Case, folder: Path) -> list[tuple[str, int]]:
    """Return the rules and lines of the errors and warnings in the module of a case."""
    name, body, text = case
    (folder / "train.py").write_text(MAIN.format(name=name, body=body))
    module = folder / "parts.py"
    module.write_text(text)
    found = review_text(text, str(module), KNOWLEDGE)
    return [(each.rule, each.line) for each in found if each.severity != "info"]


@pytest.mark.parametrize("name", WRONG)
def test_finding_of_what_a_script_passes(name: str, tmp_path: Path) -> None:
    case, finding = WRONG[name]
    assert findings(case, tmp_path) == [finding]


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_where_all_is_right(name: str, tmp_path: Path) -> None:
    assert findings(RIGHT[name], tmp_path) == []


def test_mistake_in_a_module_is_reported_once(tmp_path: Path) -> None:
    findings((*WRONG["a sampler without an epoch"][0],), tmp_path)
    files = [FoundFile(tmp_path / name, ReviewSettings()) for name in ("parts.py", "train.py")]
    found = [
        each for file in review_files(files, KNOWLEDGE) if isinstance(file, ReviewedFile) for each in file.findings
    ]
    assert [(Path(each.path).name, each.rule, each.line) for each in found] == [("parts.py", "DW203", 7)]
