"""DW217: shares of a sequence by the rank, whose lengths may differ, and those that are equal for any number."""

import pytest
from helpers.review_snippets import found

PROGRAM = """
import math
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, Subset, TensorDataset

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

class Lines(IterableDataset):
    def __iter__(self):
        with open("items.txt") as file:
            yield from islice(file, rank, None, world)

class Part(Dataset):
    def __init__(self, lines):
        self.lines = lines
    def __len__(self):
        return len(self.lines)
    def __getitem__(self, number):
        return torch.tensor([float(self.lines[number])])

class EveryNth(Sampler):
    def __init__(self, count):
        self.count = count
    def __iter__(self):
        return iter(list(range(self.count))[rank::world])

def read_items():
    with open("items.txt") as file:
        return [line.strip() for line in file]

def every_nth(items, rank, world):
    return items[rank::world]

model = DDP(nn.Linear(1, 1))
items = read_items()
SHARE
for item in mine:
    model(torch.ones(1)).sum().backward()
"""
UNEQUAL = {
    "every n-th": "mine = items[rank::world]",
    "every n-th of a function": "mine = every_nth(items, rank, world)",
    "every n-th of files": 'mine = sorted(Path("data").glob("*.txt"))[rank::world]',
    "every n-th by its number": "mine = [item for number, item in enumerate(items) if number % world == rank]",
    "every n-th of an iterator": "mine = islice(items, rank, None, world)",
    "every n-th number": "mine = range(rank, len(items), world)",
    "rounded up": "size = math.ceil(len(items) / world)\nmine = items[rank * size : (rank + 1) * size]",
    "the last takes the rest": (
        "size = len(items) // world\nmine = items[rank * size : (rank + 1) * size if rank < world - 1 else len(items)]"
    ),
    "a part of array_split": "mine = np.array_split(items, world)[rank]",
    "a subset": "data = TensorDataset(torch.randn(41, 4))\n"
    "mine = DataLoader(Subset(data, range(rank, len(data), world)), batch_size=4)",
    "a stream": "mine = DataLoader(Lines())",
    "a data set": "mine = DataLoader(Part(items[rank::world]), batch_size=2)",
    "a sampler": "mine = DataLoader(Part(items), sampler=EveryNth(41))",
    "rows of pandas": 'mine = pd.read_csv("items.csv").iloc[rank::world].itertuples()',
    "a shard": 'mine = DataLoader(load_dataset("text").shard(num_shards=world, index=rank))',
    "the part of a node": 'mine = DataLoader(split_dataset_by_node(load_dataset("text"), rank, world))',
    "what is selected": 'data = load_dataset("text")\nmine = data.select(range(rank, len(data), world))',
    "a list whose batches are a multiple": "assert 8 % world == 0\nmine = items[rank::world]",
    "a file of the rank": 'mine = Path(f"part-{rank}.txt").read_text().splitlines()',
    "tensors of the rank": 'mine = DataLoader(TensorDataset(torch.load(f"part-{rank}.pt")), batch_size=4)',
    "lines of the rank": 'mine = [line.strip() for line in open(f"part-{rank}.txt")]',
}
FEWEST = "count = torch.tensor(len(mine))\ndist.all_reduce(count, op=dist.ReduceOp.MIN)\n"
EQUAL = {
    "cut to a multiple": "items = items[: len(items) // world * world]\nmine = items[rank::world]",
    "without the rest": "rest = len(items) % world\nif rest:\n    items = items[:-rest]\nmine = items[rank::world]",
    "padded to a multiple": "items += items[: -len(items) % world]\nmine = items[rank::world]",
    "padded one by one": "while len(items) % world:\n    items.append(items[0])\nmine = items[rank::world]",
    "the end of an iterator": "mine = islice(items, rank, len(items) - len(items) % world, world)",
    "selected to a multiple": 'data = load_dataset("text")\n'
    "mine = data.select(range(rank, len(data) // world * world, world))",
    "rounded down": "size = len(items) // world\nmine = items[rank * size : (rank + 1) * size]",
    "rounded up and padded": (
        "size = math.ceil(len(items) / world)\nitems = items + items[: size * world - len(items)]\n"
        "mine = items[rank * size : (rank + 1) * size]"
    ),
    "every rank has them all": "mine = (items * world)[rank::world]",
    "the same number": "mine = items[rank::world][: len(items) // world]",
    "as many as the rank with the fewest": f"mine = items[rank::world]\n{FEWEST}mine = mine[: int(count)]",
    "a file, as many as the rank with the fewest": (
        f'mine = Path(f"part-{{rank}}.txt").read_text().splitlines()\n{FEWEST}mine = mine[: count.item()]'
    ),
    "asserted": "assert len(items) % world == 0\nmine = items[rank::world]",
    "refused": "if len(items) % world:\n    raise ValueError(items)\nmine = items[rank::world]",
    "a number in the text": "mine = list(range(8))[rank::world]",
}


def severities(share: str, loop: str = "for item in mine:\n") -> list[str]:
    code = PROGRAM.replace("SHARE", share).replace("for item in mine:\n", loop)
    return [each.severity for each in found(code, "DW217")]


@pytest.mark.parametrize("name", UNEQUAL)
def test_shares_that_may_be_unequal(name: str) -> None:
    assert severities(UNEQUAL[name]) == ["warning"]


@pytest.mark.parametrize("name", EQUAL)
def test_shares_that_are_equal(name: str) -> None:
    assert severities(EQUAL[name]) == []


def test_loops_that_end_together_whatever_the_shares_are() -> None:
    share = "mine = items[rank::world]"
    assert severities(share, "with model.join():\n  for item in mine:\n  ") == []
    assert severities(share, "for _, item in zip(range(len(items) // world), mine):\n") == []
    bounded = "for number, item in enumerate(mine):\n    if number >= count.item():\n        break\n"
    assert severities(f"{share}\n{FEWEST}", bounded) == []
    assert severities(share, bounded.replace("count.item()", "100")) == ["warning"]


def test_a_loop_that_communicates_behind_it() -> None:
    code = PROGRAM.replace("SHARE", "mine = items[rank::world]").replace(
        "model(torch.ones(1)).sum().backward()", "pass"
    )
    assert found(f"{code}dist.barrier()\n", "DW217") == []
