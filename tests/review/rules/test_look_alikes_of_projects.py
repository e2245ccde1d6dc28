"""Code of whole projects that looks like a bug and is right, and the bug that it looks like."""

import textwrap
from pathlib import Path

import pytest
from ddpwizard.app.review.file_review import review_file
from ddpwizard.app.review.review import review_text
from helpers.built_in_knowledge import built_in_knowledge
from helpers.review_snippets import KNOWLEDGE, lines

TRAINING = """
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def train(nets, loaders, writers):
    net, optimizer = nets
    loader, evaluation = loaders
    if writers is not None:
        writer, = writers
    for step, (x, y) in enumerate(loader):
        loss = (net(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            writer.add_scalar("loss", loss.item(), step)

def main(data, held_out, writer):
    global rank
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    evaluation = DataLoader(held_out, batch_size=4)
    net = DDP(torch.nn.Linear(4, 1).cuda())
    nets = net, torch.optim.SGD(net.parameters(), 0.1)
    for epoch in range(3):
        if rank == 0:
            train(nets, [loader, evaluation], [writer])
        else:
            train(nets, [OTHERS, None], None)
main(read("train"), read("test"), make_writer())
"""


def test_both_sides_of_a_branch_train_over_one_loader() -> None:
    assert lines(TRAINING.replace("OTHERS", "loader"), "DW402") == []
    assert lines(TRAINING.replace("OTHERS", "evaluation"), "DW402")


SAVING = """
from transformers import Trainer

class Keeps(Trainer):
    def {}(self, output_dir=None, state_dict=None):
        if self.is_world_process_zero():
            self.tokenizer.save_pretrained(output_dir)
        torch.save(self.args, os.path.join(output_dir, "arguments.bin"))
"""


def test_a_method_that_the_trainer_of_transformers_calls_on_the_rank_that_saves() -> None:
    assert lines(SAVING.format("_save"), "DW501") == []
    assert lines(SAVING.format("save_model"), "DW501")
    assert lines(SAVING.format("_save") + "    def keep(self):\n        self._save('last')\n", "DW501")


CACHED = """
dist.init_process_group("nccl")
rank = dist.get_rank()
pair = dist.new_group([0, 1])
for name in ("train", "test"):
    path = f"{name}.idx"
    if os.path.exists(path):
        continue
    table = make_table(path)
    for number in range(9):
        scores = score(number)
        BETWEEN
    if rank == 0:
        table.finish(path)
    dist.barrier()
"""


def test_ranks_that_meet_between_the_question_for_a_file_and_the_one_that_writes_it() -> None:
    assert lines(CACHED.replace("BETWEEN", "dist.all_reduce(scores)"), "DW472") == []
    assert lines(CACHED.replace("BETWEEN", "dist.all_reduce(scores, group=pair)"), "DW472") == []
    assert lines(CACHED.replace("BETWEEN", "print(dist.get_world_size())"), "DW472")


def test_ranks_that_meet_behind_a_function_of_the_script() -> None:
    program = CACHED.split("pair")[0] + "def main():\n" + textwrap.indent("pair" + CACHED.split("pair", 1)[1], "    ")
    assert lines(program.replace("BETWEEN", "dist.all_reduce(scores)") + "main()\n", "DW472") == []
    assert lines(program.replace("BETWEEN", "print(scores)") + "main()\n", "DW472")


FEATURES = """
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
rank = dist.get_rank()
data = read("test")
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
features = None
for x, places in loader:
    found = model(x)
    CHANGE
if rank == 0:
    torch.save(features, "features.pt")
"""


def test_a_value_that_one_round_makes_adds_nothing_up() -> None:
    made = "if rank == 0 and features is None:\n        features = torch.zeros(len(data), found.shape[-1])"
    filled = f"{made}\n    if rank == 0:\n        features = features.cuda()"
    assert lines(FEATURES.replace("CHANGE", filled), "DW434") == []
    summed = "features = found.sum() if features is None else features + found.sum()"
    assert lines(FEATURES.replace("CHANGE", summed), "DW434")


SAMPLES = """
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset

class Windows(Dataset):
    def __init__(self, text):
        self.text = text
    def __len__(self):
        return len(self.text) // 8
    def __getitem__(self, place):
        begin = BEGIN
        return self.text[begin : begin + 8]

def cycle(loader):
    while True:
        yield from loader

accelerator = Accelerator()
batches = cycle(DataLoader(Windows(read("text")), batch_size=4))
model, batches = accelerator.prepare(torch.nn.Linear(8, 1), batches)
for _ in range(9):
    accelerator.backward(model(next(batches)).mean())
"""
DRAWN = "torch.randint(0, len(self.text) - 8, (1,)).item()"


def test_an_iterator_over_samples_that_each_rank_draws() -> None:
    assert lines(SAMPLES.replace("BEGIN", DRAWN), "DW267") == []
    assert lines(SAMPLES.replace("BEGIN", "place * 8"), "DW267")
    seeded = SAMPLES.replace("BEGIN", DRAWN).replace("accelerator = ", "torch.manual_seed(4)\naccelerator = ")
    assert lines(seeded, "DW267")


TRAINER = """
import torch
import torch.distributed as dist

class Trainer:
    def __init__(self):
        self.number = dist.get_rank() if dist.is_initialized() else 0
        self.device = torch.device("cuda", self.number)
"""
START = """
import os
import torch.distributed as dist
import torch.multiprocessing as mp
from ..trainer import Trainer

def work(number, size):
    dist.init_process_group("nccl", rank=RANK, world_size=size)
    Trainer()

def main(size):
    os.environ.setdefault("MASTER_ADDR", "localhost")
    mp.spawn(work, args=(size,), nprocs=size)
"""
OTHER_START = """
import torch.distributed as dist

def start():
    dist.init_process_group("nccl")
"""


@pytest.mark.parametrize(
    ("rank", "others", "found"),
    [
        ("number", "", []),
        ('number + 8 * int(os.environ["NODE"])', "", ["DW101"]),
        (
            "number",
            'import torch.distributed as dist\n\ndef start():\n    dist.init_process_group("nccl")\n',
            ["DW101"],
        ),
    ],
    ids=["one node", "several nodes", "another start"],
)
def test_a_module_of_a_package_whose_ranks_all_run_on_one_node(
    rank: str, others: str, found: list[str], tmp_path: Path
) -> None:
    package = tmp_path / "package"
    (package / "run").mkdir(parents=True)
    for folder in (package, package / "run"):
        (folder / "__init__.py").write_text("")
    (package / "trainer.py").write_text(TRAINER)
    (package / "run" / "training.py").write_text(START.replace("RANK", rank))
    (package / "run" / "others.py").write_text(others)
    results = review_file(package / "trainer.py", built_in_knowledge())
    assert [each.rule for each in results if each.severity != "info"] == found


WRITERS = """
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter

def make_writer(folder):
    if dist.get_rank() == 0:
        writer = SummaryWriter(folder)
    return writer
"""
WRITING = """
import torch.distributed as dist
from writers import make_writer

def main():
    dist.init_process_group("nccl")
    {}make_writer("logs")

main()
"""


@pytest.mark.parametrize(
    ("use", "found"),
    [
        ("if dist.get_rank() == 0:\n        ", []),
        ("", ["DW437"]),
    ],
    ids=["on rank 0", "on all ranks"],
)
def test_a_helper_that_returns_what_only_rank_0_has_made(use: str, found: list[str], tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "writers.py").write_text(WRITERS)
    (tmp_path / "train.py").write_text(WRITING.format(use))
    results = review_file(tmp_path / "writers.py", built_in_knowledge())
    assert [each.rule for each in results if each.severity == "error"] == found


TURNS = """
class Turns:
    def __init__(self, rank):
        self.rank = rank
    def __enter__(self):
        if self.rank % 2 == 0:
            dist.barrier()
        return self
    def __exit__(self, *error):
        LEAVE

def build(rank):
    with Turns(rank):
        return make_model()

dist.init_process_group("nccl")
build(dist.get_rank())
"""


def test_a_block_of_a_context_manager_that_returns_ends_it() -> None:
    paired = "if self.rank % 2 == 1:\n            dist.barrier()"
    assert lines(TURNS.replace("LEAVE", paired), "DW401") == []
    assert lines(TURNS.replace("LEAVE", "pass"), "DW401")


FINALLY = """
def save(path):
    try:
        if dist.get_rank() != 0:
            return None
        write(path)
    HANDLED

dist.init_process_group("nccl")
save("last")
"""


def test_what_a_finally_clause_does_is_done_before_the_function_returns() -> None:
    assert lines(FINALLY.replace("HANDLED", "finally:\n        dist.barrier()"), "DW404") == []
    assert lines(FINALLY.replace("HANDLED", "except OSError:\n        raise\n    dist.barrier()"), "DW404")


SAMPLER = """
from torch.utils.data.distributed import DistributedSampler

def sampler_of(data, world_size=1, rank=0):
    return DistributedSampler(data, num_replicas=world_size, rank=rank)

dist.init_process_group("nccl")
sampler_of(read("train"), ARGUMENTS)
"""


def test_a_rank_that_a_caller_gives_as_a_number() -> None:
    assert lines(SAMPLER.replace("ARGUMENTS", "world_size=1, rank=0"), "DW461") == []
    assert lines(SAMPLER.replace("ARGUMENTS", "dist.get_world_size(), dist.get_world_size()"), "DW461")


SETTINGS = """
import random
from torch.nn.parallel import DistributedDataParallel as DDP

def read_settings(path):
    found = {"name": random.random(), "rate": 0.1}
    exec(open(path).read(), found)
    return found if path.endswith(".py") else load(path)

dist.init_process_group("nccl")
settings = read_settings(os.environ["SETTINGS"])
model = DDP(torch.nn.Linear(4, 1).cuda())
optimizer = torch.optim.SGD(params=model.parameters(), lr=USED)
"""


def test_a_setting_next_to_one_that_each_rank_draws() -> None:
    assert lines(SETTINGS.replace("USED", "settings.solver.rate"), "DW237") == []
    assert lines(SETTINGS.replace("USED", "random.random()"), "DW237")


def test_a_rank_that_finds_the_file_and_raises() -> None:
    waits = "if os.path.exists(path):\n        continue"
    assert waits in CACHED
    raises = CACHED.replace(waits, waits.replace("continue", "raise FileExistsError(path)"))
    assert lines(raises.replace("BETWEEN", "print(dist.get_world_size())"), "DW472") == []


CAUGHT = """
import torch.distributed as dist
from datasets import load_from_disk
def reported(function):
    def wrapper(*args):
        try:
            return function(*args)
        except Exception as error:
            print(error)
    return wrapper
@reported
def main(path):
    dist.init_process_group("gloo")
    table = load_from_disk(path)
    if len(table.unique("label")) < 3:
        LEAVES
    dist.barrier()
main("table")
"""


def test_a_test_of_data_that_ends_with_an_error_is_no_warning() -> None:
    def warnings(leaves: str) -> list[str]:
        found = review_text(CAUGHT.replace("LEAVES", leaves), "train.py", KNOWLEDGE)
        return [each.rule for each in found if each.severity != "info"]

    assert warnings("return") == ["DW406"]
    assert warnings("raise ValueError(path)") == []


AVERAGED = """
import copy
import torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
model, average = nn.Linear(2, 2), torch.load("average.pt", map_location="cpu")
for batch in batches:
    train(model(batch))
    if dist.get_rank() == 0:
        kept = STATE
        model.load_state_dict(average)
        print(model(batch))
        model.load_state_dict(kept)
"""


@pytest.mark.parametrize("state", ["model.state_dict()", "copy.deepcopy(model.state_dict())"])
def test_the_load_that_gives_a_module_its_state_back(state: str) -> None:
    assert lines(AVERAGED.replace("STATE", state), "DW256") == ["model.load_state_dict(average)"]
    assert "model.load_state_dict(kept)" in lines(AVERAGED.replace("STATE", "torch.load('other.pt')"), "DW256")


PUBLISHED = """
import torch.distributed as dist
from {} import Base
def publish(model: Base | None, name: str) -> None:
    dist.init_process_group("gloo")
    model.push_to_hub(name)
"""


def test_an_upload_by_a_method_of_the_project_itself() -> None:
    assert lines(PUBLISHED.format("robots.policies"), "DW412") == []
    assert lines(PUBLISHED.format("transformers"), "DW412") == ["model.push_to_hub(name)"]
