"""Types of NumPy arrays, messages that some rounds leave out, files by options, and lengths of gathered rows."""

import pytest
from helpers.review_snippets import lines

START = """
import argparse
import json
import numpy as np
from pathlib import Path
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Subset, TensorDataset
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
"""

OTHER_TYPES = {
    "from_numpy": (
        "def cuts(scores):\n    return np.quantile(scores, [0.1, 0.9])\n"
        "scores = np.random.RandomState(rank).rand(100)\n"
        "if rank == 0:\n    t = torch.from_numpy(cuts(scores))\nelse:\n    t = torch.zeros(2)\n"
        "dist.broadcast(t, src=0)"
    ),
    "a quotient of counts": (
        "labels = np.array([0, 1, 1])\nt = torch.ones(2)\n"
        "if rank == 0:\n    t = torch.tensor(1.0 / (np.bincount(labels, minlength=2) / len(labels)))\n"
        "dist.broadcast(t, 0)"
    ),
    "a table that is read": (
        'stats = torch.from_numpy(np.loadtxt("stats.txt")) if rank == 0 else torch.zeros(8)\ndist.broadcast(stats, 0)'
    ),
    "counts into floats": (
        "own = torch.from_numpy(np.bincount(np.random.randint(0, 5, 9), minlength=5))\n"
        "out = [torch.zeros(5) for _ in range(world_size)]\ndist.all_gather(out, own)"
    ),
}
ONE_TYPE = {
    "a cast of the tensor": (
        "t = torch.tensor(np.random.RandomState(0).rand(4)).float() if rank == 0 else torch.empty(4)\n"
        "dist.broadcast(t, 0)"
    ),
    "a cast of the array": (
        'data = np.loadtxt("stats.txt")\n'
        "t = torch.from_numpy(data.astype(np.float32)) if rank == 0 else torch.zeros(8)\ndist.broadcast(t, 0)"
    ),
    "the type is passed": (
        "w = np.linspace(0, 1, 4)\nt = torch.tensor(w, dtype=torch.float32) if rank == 0 else torch.zeros(4)\n"
        "dist.broadcast(t, 0)"
    ),
    "both are double": (
        "t = torch.ones(3, dtype=torch.float64)\nif rank == 0:\n    t = torch.from_numpy(np.array([0.1, 1.0, 2.0]))\n"
        "dist.broadcast(t, 0)"
    ),
    "an array whose type is not known": (
        "def load(path):\n    return np.load(path)\n"
        't = torch.from_numpy(load("x.npy")) if rank == 0 else torch.zeros(8)\ndist.broadcast(t, 0)'
    ),
}


@pytest.mark.parametrize("code", OTHER_TYPES.values(), ids=OTHER_TYPES.keys())
def test_arrays_of_another_type_are_found(code: str) -> None:
    assert len(lines(START + code, "DW441")) == 1


@pytest.mark.parametrize("code", ONE_TYPE.values(), ids=ONE_TYPE.keys())
def test_arrays_of_one_type_are_not(code: str) -> None:
    assert lines(START + code, "DW441") == []


RECEIVES = """
jobs = [torch.arange(float(k % 4 + 1)) for k in range(10)]
buffer = torch.zeros(1)
if rank == 0:
    for _ in jobs:
        dist.recv(buffer, src=1)
elif rank == 1:
    for job in jobs:
        {}
"""
LEFT_OUT = {
    "behind continue": "if len(job) < 2:\n            continue\n        dist.send(job.mean().reshape(1), dst=0)",
    "under a condition": "if job.mean() > 1:\n            dist.send(job.mean().reshape(1), dst=0)",
    "behind an error": (
        "try:\n            value = json.loads(str(job))\n        except ValueError:\n            continue\n"
        "        dist.send(torch.tensor([float(value)]), dst=0)"
    ),
}
ALL_SENT = {
    "in each round": "dist.send(job.mean().reshape(1), dst=0)",
    "another value instead": (
        "value = job.mean()\n        if torch.isnan(value):\n            value = torch.tensor(-1.0)\n"
        "        dist.send(value.reshape(1), dst=0)"
    ),
    "on both sides": (
        "if len(job) < 2:\n            dist.send(torch.zeros(1), dst=0)\n        else:\n"
        "            dist.send(job.mean().reshape(1), dst=0)"
    ),
}
UNTIL_LAST = """
buffer = torch.zeros(1)
if rank == 0:
    while True:
        dist.recv(buffer, src=1)
        if torch.isinf(buffer):
            break
elif rank == 1:
    for _ in range(9):
        value = torch.randn(4).mean()
        if value > 0:
            dist.send(value.reshape(1), dst=0)
    dist.send(torch.tensor([float("inf")]), dst=0)
"""


@pytest.mark.parametrize("code", LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_messages_that_some_rounds_leave_out_are_found(code: str) -> None:
    assert lines(START + RECEIVES.format(code), "DW431") == ["dist.recv(buffer, src=1)"]


@pytest.mark.parametrize("code", ALL_SENT.values(), ids=ALL_SENT.keys())
def test_a_message_in_each_round_is_not(code: str) -> None:
    assert lines(START + RECEIVES.format(code), "DW431") == []


def test_a_loop_that_a_message_ends_is_not() -> None:
    assert lines(START + UNTIL_LAST, "DW431") == []


ASKS = "if not os.path.exists({0}):\n    dist.barrier()\ntotal = torch.load({0}).sum()"
OPTION = """
parser = argparse.ArgumentParser()
parser.add_argument("--cache", default="tokens.pt")
args = parser.parse_args()
"""
WRITTEN = {
    "by a function with the path of an option": (
        OPTION + "def build(path):\n    torch.save(torch.arange(9), path)\nif rank == 0:\n    build(args.cache)\n"
        f"{ASKS.format('args.cache')}"
    ),
    "by a method with the path of its object": (
        "class Cache:\n    def __init__(self, path):\n        self.path = Path(path)\n"
        "    def build(self):\n        np.save(self.path, np.arange(9))\n"
        'cache = Cache("cache.npy")\nif rank == 0:\n    cache.build()\n'
        "if not cache.path.exists():\n    dist.barrier()\n"
    ),
}
RESUMED = (
    OPTION
    + """
start = 0
if os.path.exists(args.cache):
    start = torch.load(args.cache)["epoch"]
for epoch in range(start, 3):
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        torch.save({"epoch": epoch}, args.cache)
    dist.barrier()
"""
)


@pytest.mark.parametrize("code", WRITTEN.values(), ids=WRITTEN.keys())
def test_barriers_behind_a_file_that_one_rank_has_written_are_found(code: str) -> None:
    assert len(lines(START + code, "DW406")) == 1


def test_a_file_of_an_earlier_run_is_not() -> None:
    assert lines(START + RESUMED, "DW406") == []


GATHER = "rows = torch.cat(rows)\nout = [torch.empty_like(rows) for _ in range(world_size)]\ndist.all_gather(out, rows)"
LOADER = """
data = TensorDataset(torch.randn({0}, 6))
loader = DataLoader(Subset(data, range(rank, {0}, world_size)), batch_size=8)
model = nn.Linear(6, 3)
"""
COLLECTED = {
    "in a comprehension": "rows = [model(x) for (x,) in loader]\n",
    "one by one": "rows = []\nfor (x,) in loader:\n    rows.append(model(x).detach())\n",
    "by a sum of lists": "rows = []\nfor (x,) in loader:\n    rows += [x.sum(1)]\n",
}


@pytest.mark.parametrize("code", COLLECTED.values(), ids=COLLECTED.keys())
def test_rows_of_uneven_parts_are_found(code: str) -> None:
    assert lines(START + LOADER.format(37) + code + GATHER, "DW427") == ["dist.all_gather(out, rows)"]
    assert lines(START + LOADER.format(38) + code + GATHER, "DW427") == []


OWN_LENGTHS = {
    "a part of a mask": (
        "x = torch.randn(40, 5)\nkeep = x[:, 0] > 0\nrows = x[rank::world_size][keep[rank::world_size]]\n"
    ),
    "filled up by torch": "rows = pad_sequence([torch.ones(k) for k in range(rank, 9)])\n",
    "filled up to the longest": (
        "texts = [[1, 2], [3], [4, 5, 6]][rank::world_size]\nlongest = max(len(t) for t in texts)\n"
        "rows = torch.tensor([t + [0] * (longest - len(t)) for t in texts])\n"
    ),
}
AGREED_LENGTH = """
texts = [[1, 2], [3], [4, 5, 6], [7]][rank::world_size]
longest = torch.tensor(max(len(t) for t in texts))
dist.all_reduce(longest, op=dist.ReduceOp.MAX)
rows = torch.tensor([t + [0] * (int(longest) - len(t)) for t in texts])
"""
GATHER_ROWS = "out = [torch.empty_like(rows) for _ in range(world_size)]\ndist.all_gather(out, rows)"


@pytest.mark.parametrize("code", OWN_LENGTHS.values(), ids=OWN_LENGTHS.keys())
def test_rows_as_long_as_data_of_a_rank_are_found(code: str) -> None:
    assert lines(START + code + GATHER_ROWS, "DW407") == ["dist.all_gather(out, rows)"]


def test_rows_of_an_agreed_length_are_not() -> None:
    assert lines(START + AGREED_LENGTH + GATHER_ROWS, "DW407") == []
