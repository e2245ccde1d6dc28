"""Data that the ranks share out wrongly, and processes that meet nowhere, with look-alikes that are right."""

import textwrap
from pathlib import Path

import pytest
from ddpwizard.app.review.file_review import review_file
from helpers.built_in_knowledge import built_in_knowledge
from helpers.review_snippets import lines

START = """
import random, socket
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler
"""
SAMPLED = """
dist.init_process_group("gloo")
data = torch.ones(8, 2)
sampler = DistributedSampler({})
loader = DataLoader(data, sampler=sampler)
model = DDP(nn.Linear(2, 2))
{}
for epoch in range(3):
    {}
    for x in loader:
        model(x).sum().backward()
"""
LOADED = """
dist.init_process_group("gloo")
data = torch.ones(8, 2)
loader = {}
model = DDP(nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = iter(loader)
for step in range(3):
    {}
    model(x).sum().backward()
"""
EPOCH = "sampler.set_epoch(epoch)"
FREE = """
def free():
    with socket.socket() as found:
        found.bind(("", 0))
        return found.getsockname()[1]
"""
REPLACED = """
def loaders(data, count):
    if count > 1:
        sampler = DistributedSampler(data)
    else:
        sampler = RandomSampler(data)
    {}
    return DataLoader(data, sampler=sampler)
"""
FOUND = {
    "a sampler that is replaced": ("DW245", REPLACED.format("sampler = RandomSampler(data)")),
    "a sampler that nothing gets": (
        "DW245",
        "def loaders(data):\n    sampler = DistributedSampler(data)\n    return DataLoader(data, shuffle=True)",
    ),
    "the part of rank 0": ("DW232", SAMPLED.format("data, num_replicas=2, rank=0", "", EPOCH)),
    "one part": ("DW232", SAMPLED.format("data, 1, dist.get_rank()", "", EPOCH)),
    "the part of a local rank": ("DW232", SAMPLED.format('data, 4, int(os.environ["LOCAL_RANK"])', "", EPOCH)),
    "the GPUs of a node": ("DW232", SAMPLED.format("data, torch.cuda.device_count(), dist.get_rank()", "", EPOCH)),
    "an epoch of each rank": ("DW205", SAMPLED.format("data", "", "sampler.set_epoch(epoch + dist.get_rank())")),
    "one epoch for all": ("DW203", SAMPLED.format("data", "sampler.set_epoch(0)", "")),
    "a loader by next": ("DW202", LOADED.format("DataLoader(data, 2, shuffle=True)", "x = next(batches)")),
    "a sampler of one process": (
        "DW202",
        LOADED.format("DataLoader(data, sampler=RandomSampler(data))", "x = next(batches)"),
    ),
    "all data in order": ("DW202", LOADED.format("DataLoader(data, 2)", "x = next(batches)")),
    "a random port": (
        "DW113",
        'os.environ["MASTER_PORT"] = str(random.randint(2000, 3000))\ndist.init_process_group("gloo")',
    ),
    "a free port": ("DW113", FREE + 'os.environ["MASTER_PORT"] = str(free())\ndist.init_process_group("gloo")'),
    "an address with a free port": (
        "DW113",
        FREE
        + 'dist.init_process_group("gloo", f"tcp://localhost:{free()}", rank=int(os.environ["RANK"]), world_size=2)',
    ),
    "one rank for all": ("DW105", 'dist.init_process_group("gloo", rank=0, world_size=2)\ndist.barrier()'),
    "a loss by a method of the inner model": (
        "DW207",
        """
        dist.init_process_group("gloo")
        model = DDP(make_model())
        for x in data:
            model.module.training_loss(x).backward()
        """,
    ),
}
SILENT = {
    "a sampler that a loader gets": ("DW245", REPLACED.format("print(data)")),
    "a sampler in another one": ("DW245", REPLACED.format("sampler = BatchSampler(sampler, 4, True)")),
    "a sampler that is replaced under a condition": (
        "DW245",
        REPLACED.format("if count == 8:\n        sampler = RandomSampler(data)"),
    ),
    "a sampler that a later round gets": (
        "DW245",
        """
        def loaders(data):
            sampler = None
            for epoch in range(3):
                loader = DataLoader(data, sampler=sampler)
                sampler = DistributedSampler(data)
        """,
    ),
    "the part of the rank": ("DW232", SAMPLED.format("data, dist.get_world_size(), dist.get_rank()", "", EPOCH)),
    "the process group's ranks": ("DW232", SAMPLED.format("data", "", EPOCH)),
    "the epoch of all": ("DW205", SAMPLED.format("data", "", EPOCH)),
    "the epoch in the loop": ("DW203", SAMPLED.format("data", "sampler.set_epoch(0)", EPOCH)),
    "no order to change": ("DW203", SAMPLED.format("data, shuffle=False", "", "pass")),
    "a loader with a sampler": (
        "DW202",
        LOADED.format("DataLoader(data, sampler=DistributedSampler(data))", "x = next(batches)"),
    ),
    "another loader by next": (
        "DW202",
        LOADED.format("DataLoader(data, 2, shuffle=True)", "x = torch.ones(2)") + "print(next(batches))",
    ),
    "a port for runs without a launcher": (
        "DW113",
        'if "MASTER_PORT" not in os.environ:\n    os.environ["MASTER_PORT"] = str(random.randint(2000, 3000))\n'
        'dist.init_process_group("gloo")',
    ),
    "a port that starts the processes": (
        "DW113",
        """
        import torch.multiprocessing as mp
        def work(rank):
            dist.init_process_group("gloo", rank=rank, world_size=2)
            dist.barrier()
        if __name__ == "__main__":
            os.environ["MASTER_PORT"] = str(random.randint(2000, 3000))
            mp.spawn(work, nprocs=2)
        """,
    ),
    "a run of one": ("DW105", 'dist.init_process_group("gloo", rank=0, world_size=1)\ndist.barrier()'),
    "a method that computes no loss": (
        "DW207",
        """
        dist.init_process_group("gloo")
        model = DDP(make_model())
        for x in data:
            model(model.module.prepare(x)).sum().backward()
        """,
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_the_ranks_do_not_agree_on_is_found(name: str) -> None:
    rule, snippet = FOUND[name]
    assert len(lines(START + textwrap.dedent(snippet), rule)) == 1


@pytest.mark.parametrize("name", SILENT)
def test_what_looks_like_it_is_not(name: str) -> None:
    rule, snippet = SILENT[name]
    assert lines(START + textwrap.dedent(snippet), rule) == []


def test_a_call_that_partial_completes_has_no_patch() -> None:
    code = """
    import functools
    dist.init_process_group("gloo")
    save = functools.partial(torch.save, f="last.pt")
    save({})
    """
    assert lines(code, "DW501") == ["save({})"]


PARTS = """
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
def batches(data):
    return DataLoader(data, sampler=DistributedSampler(data))
def count(data):
    return sum(len(batch) for batch in batches(data))
def train(model, data):
    model = DDP(model)
    loader = batches(data)
    for epoch in range(3):
        for batch in loader:
            model(batch).sum().backward()
"""
USER = """
import torch
import torch.distributed as dist
import parts
dist.init_process_group("gloo")
data = torch.ones(8, 2)
parts.count(data)
parts.train(torch.nn.Linear(2, 2), data)
"""


def test_the_call_that_trains_is_named_where_others_make_such_a_sampler_too(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text(PARTS)
    script = tmp_path / "train.py"
    script.write_text(USER)
    found = [each.line for each in review_file(script, built_in_knowledge()) if each.rule == "DW203"]
    assert [USER.splitlines()[line - 1] for line in found] == ["parts.train(torch.nn.Linear(2, 2), data)"]
