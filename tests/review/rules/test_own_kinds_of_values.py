"""Values, places, groups and threads of one rank where all ranks communicate, with programs that look alike."""

import pytest
from helpers.review_snippets import lines

START = """
import math
import random
import threading
import time
from pathlib import Path
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, WeightedRandomSampler
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
rows = load()
mine = rows[rank::world]
"""
AVERAGED = (
    START
    + """
value = VALUE
dist.all_reduce(valueOP)
MEAN
"""
)
SPARSE = (
    START
    + """
def compress(grad):
    sizes = grad.abs().flatten()
    SHARED
    places = sizes.topk(4).indices
    values = grad.flatten()[places]
    dist.all_reduce(values)
    return values, places
for p in nn.Linear(4, 4).parameters():
    compress(p.grad)
"""
)
IN_GROUP = (
    START
    + """
group = dist.new_group(MEMBERS)
if WHO:
    dist.all_reduce(torch.ones(1), group=group)
"""
)
MIXED = (
    START
    + """
class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(4, 1) for _ in range(3))
    def forward(self, x):
        return CHOSEN
model = Mixture()
for x in DataLoader(mine):
    model(x).sum().backward()
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= world
"""
)
WATCHED = (
    START
    + """
def watch(group):
    while True:
        dist.all_reduce(torch.ones(1)GROUP)
thread = threading.Thread(target=watch, args=(dist.new_group(),))
thread.start()
model = DDP(nn.Linear(2, 2))
model(mine).sum().backward()
"""
)
ASKED = (
    START
    + """
data = TensorDataset(torch.randn(64, 4))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
batches = iter(loader)
for step in range(ROUNDS):
    (x,) = next(batches)
"""
)
HOOKED = (
    START
    + """
def hook(state, bucket):
    work = dist.all_reduce(bucket.buffer()DIVIDED, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])
model = DDP(nn.Linear(2, 2))
model.register_comm_hook(None, hook)
"""
)
DROPPED = (
    START
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
    def forward(self, x):
        for block in self.blocks:
            BLOCK
        return x
model = DDP(Net()OPTION)
for x in mine:
    model(x).sum().backward()
"""
)
BY_HAND = (
    START
    + """
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for x in mine:
    model(x).sum().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    optimizer.step()
BUFFERS
model.eval()
"""
)
ONE_PART = (
    START
    + """
data = TensorDataset(torch.randn(64, 4))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
found = []
for (x,) in loader:
    found.append(model(x))
found = torch.cat(found)
GATHER
if rank == 0:
    torch.save(found, "found.pt")
"""
)
NAMED = (
    START
    + """
folder = Path(NAME)
SHARED
if rank == 0:
    torch.save(torch.ones(1), folder / "x.pt")
dist.barrier()
torch.load(folder / "x.pt", map_location="cpu")
"""
)
WAITED = (
    START
    + """
work = dist.all_reduce(mine, async_op=True)
if WHO:
    work.wait()
"""
)
SCALED = (
    START
    + """
mean = torch.zeros(4)
if rank == 0:
    mean = rows.mean(0)
SHARED
x = rows - mean
"""
)
DRAWN = (
    START
    + """
data = TensorDataset(torch.randn(64, 4))
loader = DataLoader(data, batch_size=8, sampler=SAMPLER)
model = DDP(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for (x,) in loader:
    model(x).sum().backward()
    optimizer.step()
"""
)
SYNCED = (
    START
    + """
import contextlib
model = DDP(nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step, x in enumerate(mine):
    with contextlib.nullcontext() if LAST else model.no_sync():
        model(x).sum().backward()
    if step % 2 == 1:
        optimizer.step()
"""
)
SCATTERED = (
    START
    + """
data = torch.arange(COUNT)
parts = list(data.chunk(world)) if rank == 0 else None
dist.scatter(torch.empty(11), parts, src=0)
"""
)
FILES = START + 'names = {f"shard{n}" for n in range(9)}\npart = ORDER[rank::world]\n'
SUM = "dist.all_reduce(value)"


def filled(code: str, **parts: str) -> str:
    for name, text in parts.items():
        code = code.replace(name, text)
    return code


FOUND = {
    "a mean of perplexities": (
        "DW444",
        filled(AVERAGED, VALUE="torch.tensor(math.exp(mine.mean().item()))", OP="", MEAN="value /= world"),
        SUM,
    ),
    "a mean of deviations": ("DW444", filled(AVERAGED, VALUE="mine.std(0)", OP="", MEAN="value /= world"), SUM),
    "a sum of the largest": ("DW444", filled(AVERAGED, VALUE="mine.abs().max()", OP="", MEAN="x = mine / value"), SUM),
    "the largest gradients of each rank": ("DW445", filled(SPARSE, SHARED="pass"), "dist.all_reduce(values)"),
    "a group of one rank for all": (
        "DW446",
        filled(IN_GROUP, MEMBERS="[0]", WHO="True"),
        "dist.all_reduce(torch.ones(1), group=group)",
    ),
    "a group of half of the ranks for all": (
        "DW446",
        filled(IN_GROUP, MEMBERS="list(range(world // 2))", WHO="True"),
        "dist.all_reduce(torch.ones(1), group=group)",
    ),
    "experts by the data": (
        "DW447",
        filled(MIXED, CHOSEN="self.experts[int(x.sum() > 0)](x)"),
        "if p.grad is not None:",
    ),
    "a thread in the group of all": (
        "DW448",
        filled(WATCHED, GROUP=""),
        "thread = threading.Thread(target=watch, args=(dist.new_group(),))",
    ),
    "the batches of all ranks": ("DW449", filled(ASKED, ROUNDS="len(data) // 8"), "(x,) = next(batches)"),
    "a hook that sums": (
        "DW432",
        filled(HOOKED, DIVIDED=""),
        "work = dist.all_reduce(bucket.buffer(), async_op=True)",
    ),
    "a layer that is left out": (
        "DW216",
        filled(DROPPED, BLOCK="if random.random() < 0.5:\n                x = block(x)", OPTION=""),
        "model = DDP(Net())",
    ),
    "statistics of BatchNorm of each rank": ("DW239", filled(BY_HAND, BUFFERS=""), "model.eval()"),
    "predictions of one rank in a file": ("DW434", filled(ONE_PART, GATHER=""), "found = torch.cat(found)"),
    "a folder by the time": (
        "DW506",
        filled(NAMED, NAME="str(time.time())", SHARED=""),
        "folder = Path(str(time.time()))",
    ),
    "a wait of rank 0": ("DW415", filled(WAITED, WHO="rank == 0"), "work.wait()"),
    "the mean of rank 0": ("DW251", filled(SCALED, SHARED=""), "mean = rows.mean(0)"),
    "weighted draws of one seed": (
        "DW202",
        filled(DRAWN, SAMPLER="WeightedRandomSampler(torch.ones(64), 32)"),
        "loader = DataLoader(data, batch_size=8, sampler=WeightedRandomSampler(torch.ones(64), 32))",
    ),
    "gradients that rank 0 reduces": (
        "DW213",
        filled(SYNCED, LAST="step % 2 == 1 and rank == 0"),
        "with contextlib.nullcontext() if step % 2 == 1 and rank == 0 else model.no_sync():",
    ),
    "pieces of another size": (
        "DW441",
        filled(SCATTERED, COUNT="21.0"),
        "dist.scatter(torch.empty(11), parts, src=0)",
    ),
    "parts of a set": ("DW233", filled(FILES, ORDER="list(names)"), "part = list(names)[rank::world]"),
    "counts up to the largest": (
        "DW427",
        filled(AVERAGED, VALUE="torch.bincount(mine)", OP="", MEAN=""),
        SUM,
    ),
    "padded to the longest of a rank": (
        "DW427",
        filled(AVERAGED, VALUE="pad_sequence(mine)", OP="", MEAN=""),
        SUM,
    ),
    "a text as bytes": (
        "DW427",
        filled(AVERAGED, VALUE="torch.tensor(list(mine.encode()))", OP="", MEAN=""),
        SUM,
    ),
}
RIGHT = {
    "a perplexity of the mean": (
        "DW444",
        filled(AVERAGED, VALUE="mine.mean()", OP="", MEAN="value = math.exp(value / world)"),
    ),
    "a sum of exponentials": ("DW444", filled(AVERAGED, VALUE="mine.exp().sum()", OP="", MEAN="print(value / world)")),
    "the largest of the largest": (
        "DW444",
        filled(AVERAGED, VALUE="mine.abs().max()", OP=", op=dist.ReduceOp.MAX", MEAN="x = mine / value"),
    ),
    "a deviation for all": ("DW444", filled(AVERAGED, VALUE="rows.std(0)", OP="", MEAN="value /= world")),
    "the largest gradients of all": ("DW445", filled(SPARSE, SHARED="dist.all_reduce(sizes)")),
    "members of a group": ("DW446", filled(IN_GROUP, MEMBERS="[0]", WHO="rank in [0]")),
    "a group of all": ("DW446", filled(IN_GROUP, MEMBERS="list(range(world))", WHO="True")),
    "a group of each rank": ("DW446", filled(IN_GROUP, MEMBERS="[rank]", WHO="True")),
    "a pair in a job of two": ("DW446", filled(IN_GROUP, MEMBERS="[0, 1]", WHO="True")),
    "all experts": ("DW447", filled(MIXED, CHOSEN="sum(each(x) for each in self.experts)")),
    "a thread in its own group": ("DW448", filled(WATCHED, GROUP=", group=group")),
    "the batches of a rank": ("DW449", filled(ASKED, ROUNDS="len(loader)")),
    "the batches by the ranks": ("DW449", filled(ASKED, ROUNDS="len(data) // (8 * world)")),
    "a hook that averages": ("DW432", filled(HOOKED, DIVIDED=".div_(world)")),
    "a layer that is scaled": (
        "DW216",
        filled(DROPPED, BLOCK="x = x + (random.random() > 0.5) * block(x)", OPTION=""),
    ),
    "a layer that DDP looks for": (
        "DW216",
        filled(
            DROPPED,
            BLOCK="if random.random() < 0.5:\n                x = block(x)",
            OPTION=", find_unused_parameters=True",
        ),
    ),
    "statistics of BatchNorm of all": (
        "DW239",
        filled(BY_HAND, BUFFERS="for b in model.buffers():\n    dist.broadcast(b, src=0)"),
    ),
    "predictions of all in a file": (
        "DW434",
        filled(
            ONE_PART,
            GATHER="parts = [torch.empty_like(found) for _ in range(world)]\ndist.all_gather(parts, found)\n"
            "found = torch.cat(parts)",
        ),
    ),
    "a folder by the time of rank 0": (
        "DW506",
        filled(
            NAMED,
            NAME='"unused"',
            SHARED="name = [str(time.time())]\ndist.broadcast_object_list(name, src=0)\nfolder = Path(name[0])",
        ),
    ),
    "a wait of all": ("DW415", filled(WAITED, WHO="world > 1")),
    "the mean of rank 0 for all": ("DW251", filled(SCALED, SHARED="dist.broadcast(mean, src=0)")),
    "weighted draws of each rank": (
        "DW202",
        filled(
            DRAWN,
            SAMPLER="WeightedRandomSampler(torch.ones(64), 32, generator=torch.Generator().manual_seed(rank))",
        ),
    ),
    "gradients that all reduce": ("DW213", filled(SYNCED, LAST="step % 2 == 1")),
    "pieces of one size": (
        "DW441",
        filled(SCATTERED, COUNT="88.0").replace("torch.empty(11)", "torch.empty(88 // world)"),
    ),
    "parts of a sorted set": ("DW233", filled(FILES, ORDER="sorted(names)")),
    "parts of a set of numbers": ("DW233", filled(FILES, ORDER="list({n * n for n in range(9)})")),
    "counts of so many classes": (
        "DW427",
        filled(AVERAGED, VALUE="torch.bincount(mine, minlength=9)", OP="", MEAN=""),
    ),
    "counts of what all ranks have": ("DW427", filled(AVERAGED, VALUE="torch.bincount(rows)", OP="", MEAN="")),
    "padded once more": (
        "DW427",
        filled(AVERAGED, VALUE="nn.functional.pad(pad_sequence(mine), (0, 9))", OP="", MEAN=""),
    ),
    "a text of one length as bytes": (
        "DW427",
        filled(AVERAGED, VALUE="torch.tensor(list(mine.ljust(40).encode()))", OP="", MEAN=""),
    ),
}


@pytest.mark.parametrize(("rule", "code", "line"), FOUND.values(), ids=FOUND)
def test_the_cause_is_found(rule: str, code: str, line: str) -> None:
    assert lines(code, rule) == [line]


@pytest.mark.parametrize(("rule", "code"), RIGHT.values(), ids=RIGHT)
def test_nothing_in_what_is_right(rule: str, code: str) -> None:
    assert lines(code, rule) == []
