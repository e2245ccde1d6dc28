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
PREDICTIONS = (
    START
    + """
def predict(model, data):
    sampler = DistributedSampler(data, shuffle=False)
    own = torch.cat([model(x).argmax(1) for x, _ in DataLoader(data, batch_size=8, sampler=sampler)])
    parts = [torch.empty_like(own) for _ in range(world)]
    dist.all_gather(parts, own)
    return RESULT

predictions = predict(DDP(nn.Linear(2, 2)), data)
"""
)
BOTH = (
    START
    + """
def collect(own, data):
    parts = [torch.empty_like(own) for _ in range(world)]
    dist.all_gather(parts, own)
    return torch.cat(parts)[: len(data)]

sampler = DistributedSampler(data, shuffle=False)
model = DDP(nn.Linear(2, 2))
batches = [(model(x), y) for x, y in DataLoader(data, sampler=sampler)]
scores = collect(torch.cat([p for p, _ in batches]), data)
labels = collect(torch.cat([y for _, y in batches]), data)
print((scores.argmax(1) == labels).float().mean())
"""
)
CLIPPED = (
    START
    + """
def local(t):
    return t.to_local()

def clip(params, limit):
    grads = [PART for p in params if p.grad is not None]
    total = torch.stack([g.pow(2).sum() for g in grads]).sum()
    SUM
    norm = total.sqrt()
    factor = (limit / (norm + 1e-6)).clamp(max=1.0)
    for g in grads:
        SCALED

model = nn.Linear(8, 8)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(torch.ones(2, 8)).sum().backward()
clip(model.parameters(), 1.0)
optimizer.step()
"""
)
ADDED_UP = CLIPPED.replace(
    "    total = torch.stack([g.pow(2).sum() for g in grads]).sum()",
    "    total = torch.zeros(())\n    for g in grads:\n        total += g.pow(2).sum()",
)
WHITENED = (
    START
    + """
class Running(BASE):
    def __init__(self):
        super().__init__()
        self.mean, self.var = torch.zeros(2), torch.ones(2)

    def update(self, x):
        mean = x.mean(0)
        SUM
        self.mean = 0.9 * self.mean + 0.1 * mean
        self.var = 0.9 * self.var + 0.1 * (x - mean).pow(2).mean(0)

    def __call__(self, x):
        return USED

torch.manual_seed(rank)
model, norm = DDP(nn.Linear(2, 1)), Running()
for x in data:
    norm.update(x)
    model(norm(x)).sum().backward()
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
    "predictions one rank after another": (
        "DW440",
        filled(PREDICTIONS, RESULT="torch.cat(parts)[: len(data)]"),
        "return torch.cat(parts)[: len(data)]",
    ),
    "predictions of lists one rank after another": (
        "DW440",
        filled(PREDICTIONS, RESULT="[p for part in parts for p in part][: len(data)]"),
        "return [p for part in parts for p in part][: len(data)]",
    ),
    "gradients scaled by the norm of shards": (
        "DW303",
        filled(CLIPPED, PART="local(p.grad)", SUM="pass", SCALED="g.mul_(factor)"),
        "total = torch.stack([g.pow(2).sum() for g in grads]).sum()",
    ),
    "gradients multiplied by the norm of shards": (
        "DW303",
        filled(CLIPPED, PART="p.grad.to_local()", SUM="pass", SCALED="g *= factor"),
        "total = torch.stack([g.pow(2).sum() for g in grads]).sum()",
    ),
    "gradients scaled by squares that are added up": (
        "DW303",
        filled(ADDED_UP, PART="p.grad.to_local()", SUM="pass", SCALED="g.mul_(factor)"),
        "total += g.pow(2).sum()",
    ),
    "inputs whitened by what a rank has seen": (
        "DW251",
        filled(WHITENED, BASE="object", SUM="pass", USED="(x - self.mean) / self.var.sqrt()"),
        "self.mean = 0.9 * self.mean + 0.1 * mean",
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
    "predictions of the ranks in turn": (
        "DW440",
        filled(PREDICTIONS, RESULT="torch.stack(parts, dim=1).flatten(0, 1)[: len(data)]"),
    ),
    "predictions without an order": ("DW440", filled(PREDICTIONS, RESULT="torch.cat(parts)")),
    "predictions and labels in one order": ("DW440", BOTH),
    "the norm of all shards": (
        "DW303",
        filled(CLIPPED, PART="local(p.grad)", SUM="dist.all_reduce(total)", SCALED="g.mul_(factor)"),
    ),
    "squares of all ranks that are added up": (
        "DW303",
        filled(ADDED_UP, PART="local(p.grad)", SUM="dist.all_reduce(total)", SCALED="g.mul_(factor)"),
    ),
    "a norm that scales nothing": ("DW303", filled(CLIPPED, PART="local(p.grad)", SUM="pass", SCALED="print(factor)")),
    "the norm of whole gradients": (
        "DW303",
        filled(CLIPPED, PART="p.grad.full_tensor()", SUM="pass", SCALED="g.mul_(factor)"),
    ),
    "a running mean of all ranks": (
        "DW251",
        filled(WHITENED, BASE="object", SUM="dist.all_reduce(mean)", USED="(x - self.mean) / self.var.sqrt()"),
    ),
    "a running mean that DDP sends": (
        "DW251",
        filled(WHITENED, BASE="nn.Module", SUM="pass", USED="(x - self.mean) / self.var.sqrt()"),
    ),
    "a running mean for a report": ("DW251", filled(WHITENED, BASE="object", SUM="pass", USED="x")),
}


@pytest.mark.parametrize(("rule", "code", "line"), FOUND.values(), ids=FOUND)
def test_the_cause_is_found(rule: str, code: str, line: str) -> None:
    assert lines(code, rule) == [line]


@pytest.mark.parametrize(("rule", "code"), RIGHT.values(), ids=RIGHT)
def test_nothing_in_what_is_right(rule: str, code: str) -> None:
    assert lines(code, rule) == []
