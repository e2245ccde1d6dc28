"""Causes in copies, groups, lists and orders of parts, each with programs that look alike and are right."""

import pytest
from helpers.review_snippets import lines

START = """
import copy
import random
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
"""
TARGET = (
    START
    + """
class Online(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 8)
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        return self.head(self.encoder(x))

torch.manual_seed(SEED)
online = Online()
BEFORE
model = DDP(online)
AFTER
model(torch.ones(2, 8)).sum().backward()
"""
)
TEAMS = (
    START
    + """
def teams():
    mine = None
    for first in range(0, world, 2):
        ranks = [first, first + 1]
        group = dist.new_group(ranks)
        if rank in ranks:
            mine = (first, group)
    return mine

first, group = teams()
dist.broadcast(torch.ones(2), src=SOURCE, group=group)
"""
)
JOBS = (
    START
    + """
rng = random.Random(0)

def assign():
    chosen = rng.sample(range(12), 4)
    return JOBS

mine = [None]
dist.scatter_object_list(mine, assign() if rank == 0 else None, src=0)
"""
)
METERS = (
    START
    + """
class Meter:
    def __init__(self):
        self.total = 0.0

    @property
    def mean(self):
        t = torch.tensor(self.total)
        SUM
        return t.item()

    def __str__(self):
        return f"{self.mean:.3f}"

class Meters:
    def __init__(self, *names):
        self.held = HELD

    def __str__(self):
        return " ".join(TEXTS)

meters = Meters("loss", "accuracy")
if rank == 0:
    SHOWN
dist.barrier()
"""
)
BY_NAME = {"HELD": "{name: Meter() for name in names}", "TEXTS": "str(each) for each in self.held.values()"}
PAIRS = {"HELD": "{name: Meter() for name in names}", "TEXTS": 'f"{name} {each}" for name, each in self.held.items()'}
LISTED = {"HELD": "[Meter() for _ in names]", "TEXTS": "str(each) for each in self.held"}


def filled(code: str, **parts: str) -> str:
    """Return a program with its parts."""
    for name, part in parts.items():
        code = code.replace(name, part)
    return code


FOUND = {
    "a copy of a part of the model before DDP": (
        "DW231",
        filled(TARGET, SEED="rank", BEFORE="target = copy.deepcopy(online.encoder)", AFTER="pass"),
        "target = copy.deepcopy(online.encoder)",
    ),
    "the root of another group, of a group in a pair": (
        "DW416",
        filled(TEAMS, SOURCE="0"),
        "dist.broadcast(torch.ones(2), src=0, group=group)",
    ),
    "a list to scatter for each job": (
        "DW417",
        filled(JOBS, JOBS="[[each] for each in chosen]"),
        "dist.scatter_object_list(mine, assign() if rank == 0 else None, src=0)",
    ),
    "a list to scatter of a fixed range": (
        "DW417",
        filled(JOBS, JOBS="[i * i for i in range(6)]"),
        "dist.scatter_object_list(mine, assign() if rank == 0 else None, src=0)",
    ),
    "a collective in a text of one rank": (
        "DW401",
        filled(METERS, **BY_NAME, SUM="dist.all_reduce(t)", SHOWN='print(f"epoch: {meters}")'),
        'print(f"epoch: {meters}")',
    ),
    "a collective in a text of pairs": (
        "DW401",
        filled(METERS, **PAIRS, SUM="dist.all_reduce(t)", SHOWN="print(meters)"),
        "print(meters)",
    ),
    "a collective in a text of listed objects": (
        "DW401",
        filled(METERS, **LISTED, SUM="dist.all_reduce(t)", SHOWN="line = str(meters)"),
        "line = str(meters)",
    ),
}
RIGHT = {
    "a copy of a part behind DDP": (
        "DW231",
        filled(TARGET, SEED="rank", BEFORE="pass", AFTER="target = copy.deepcopy(model.module.encoder)"),
    ),
    "a copy of a part from one seed": (
        "DW231",
        filled(TARGET, SEED="7", BEFORE="target = copy.deepcopy(online.encoder)", AFTER="pass"),
    ),
    "the first rank of the own group": ("DW416", filled(TEAMS, SOURCE="first")),
    "the root by its place in the group": ("DW416", filled(TEAMS, SOURCE="dist.get_global_rank(group, 0)")),
    "a list to scatter for each rank": ("DW417", filled(JOBS, JOBS="[chosen[w::world] for w in range(world)]")),
    "a list to scatter for a number of ranks that is required": (
        "DW417",
        filled(JOBS.replace("\nrng =", "\nassert world == 4\nrng ="), JOBS="[[each] for each in chosen]"),
    ),
    "a list to scatter that is written out": ("DW417", filled(JOBS, JOBS="[[0, 1], [2, 3]]")),
    "a text without a collective": (
        "DW401",
        filled(METERS, **BY_NAME, SUM="pass", SHOWN='print(f"epoch: {meters}")'),
    ),
    "a text that all ranks make": (
        "DW401",
        filled(METERS, **BY_NAME, SUM="dist.all_reduce(t)", SHOWN="pass").replace(
            "if rank == 0:", 'line = f"{meters}"\nif rank == 0:'
        ),
    ),
}


@pytest.mark.parametrize(("rule", "code", "line"), FOUND.values(), ids=FOUND)
def test_the_cause_is_found(rule: str, code: str, line: str) -> None:
    assert lines(code, rule) == [line]


@pytest.mark.parametrize(("rule", "code"), RIGHT.values(), ids=RIGHT)
def test_nothing_in_what_is_right(rule: str, code: str) -> None:
    assert lines(code, rule) == []
