"""Tensors, parts, orders and files of ranks that do not fit together, and programs that look alike and are right."""

import pytest
from helpers.review_snippets import lines

START = """
import math
import random
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel, update_bn
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
"""
SENT = (
    START
    + """
encoder = nn.Sequential(nn.Linear(4, 16), nn.ReLU())
if rank == 0:
    dist.send(GIVEN, dst=1)
elif rank == 1:
    got = INTO
    dist.recv(got, src=0)
"""
)
CHOSEN = (
    START
    + """
if rank == 0:
    value = FIRST
else:
    value = OTHER
dist.broadcast(value, src=0)
"""
)
GATHERED = (
    START
    + """
part = PART
parts = [BUFFER for _ in range(world)]
dist.all_gather(parts, part)
"""
)
CUT = (
    START
    + """
def mine(rows):
    size = len(rows) // world
    return PART
data = mine(load())
"""
)
SHUFFLED = (
    START
    + """
names = ["loss", "right", "seen"]
values = {name: torch.ones(1) for name in names}
ORDER
for name in names:
    dist.all_reduce(values[name])
"""
)
FILES = (
    START
    + """
if WRITER:
    torch.save(torch.ones(1), WRITTEN)
dist.barrier()
CHECK
state = torch.load(READ, map_location="cpu")
"""
)
BEGUN = (
    START
    + """
def average(model):
    works = []
    for p in model.parameters():
        works.append(dist.all_reduce(p.grad, async_op=True))
        INSIDE
    for work in works:
        work.wait()
    BEHIND
model = nn.Linear(2, 2)
average(model)
"""
)
PER_TOKEN = (
    START
    + """
def evaluate(losses, mask):
    mean = MEAN
    dist.all_reduce(mean)
    return mean / world
tokens, mask = load()
evaluate(tokens[rank::world], mask[rank::world])
"""
)
MEASURED = (
    START
    + """
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
model = DDP(net)
averaged = AveragedModel(net)
update_bn(LOADER, averaged)
BEHIND
"""
)
LOADERS = (
    START
    + """
sets = load()
loaders = {name: DataLoader(part, sampler=DistributedSampler(part, shuffle=name == "train")) for name, part in sets}
model = DDP(nn.Linear(2, 2))
for epoch in range(3):
    EPOCH
    for x in loaders["train"]:
        model(x).sum().backward()
"""
)


def filled(code: str, **parts: str) -> str:
    for name, text in parts.items():
        code = code.replace(name, text)
    return code


FOUND = {
    "labels into floats": (
        "DW441",
        filled(SENT, GIVEN="model(x).argmax(dim=1)", INTO="torch.zeros(8)"),
        "dist.recv(got, src=0)",
    ),
    "half precision into floats": (
        "DW441",
        filled(SENT, GIVEN="torch.ones(8).half()", INTO="torch.zeros(8)"),
        "dist.recv(got, src=0)",
    ),
    "activations into a tensor of the inputs": (
        "DW441",
        filled(SENT, GIVEN="encoder(torch.randn(8, 4)).detach()", INTO="torch.empty(8, 4)"),
        "dist.recv(got, src=0)",
    ),
    "an order into floats": (
        "DW441",
        filled(CHOSEN, FIRST="torch.randperm(8)", OTHER="torch.empty(8)"),
        "dist.broadcast(value, src=0)",
    ),
    "a whole number and a float": (
        "DW441",
        filled(CHOSEN, FIRST="torch.tensor(3)", OTHER="torch.zeros(())"),
        "dist.broadcast(value, src=0)",
    ),
    "labels gathered into floats": (
        "DW441",
        filled(GATHERED, PART="torch.randint(0, 3, (8,))", BUFFER="torch.zeros(8)"),
        "dist.all_gather(parts, part)",
    ),
    "rows gathered into a row": (
        "DW441",
        filled(GATHERED, PART="torch.randn(8, 4)", BUFFER="torch.zeros(8)"),
        "dist.all_gather(parts, part)",
    ),
    "a type of each rank": (
        "DW441",
        START + "kind = torch.bfloat16 if rank == 0 else torch.float32\nx = load().to(kind)\ndist.all_reduce(x)",
        "dist.all_reduce(x)",
    ),
    "a part without an end": ("DW442", filled(CUT, PART="rows[rank * size :]"), "return rows[rank * size :]"),
    "a part of which the end is the size": (
        "DW442",
        filled(CUT, PART="rows[rank * size : size]"),
        "return rows[rank * size : size]",
    ),
    "parts of twice the size": (
        "DW442",
        filled(CUT, PART="rows[rank * size : rank * size + 2 * size]"),
        "return rows[rank * size : rank * size + 2 * size]",
    ),
    "a shuffle without a seed": (
        "DW443",
        filled(SHUFFLED, ORDER="random.shuffle(names)"),
        "dist.all_reduce(values[name])",
    ),
    "the other way round on one rank": (
        "DW443",
        filled(SHUFFLED, ORDER='names = ["loss", "right"] if rank == 0 else ["right", "loss"]'),
        "dist.all_reduce(values[name])",
    ),
    "the own rank first": (
        "DW416",
        START + "parts = torch.zeros(4, 2)\nfor step in range(world):\n    at = (rank + step) % world\n"
        "    dist.broadcast(parts[at], src=at)",
        "dist.broadcast(parts[at], src=at)",
    ),
    "a number in a group as a root": (
        "DW416",
        START
        + "group = dist.new_group([2, 3])\ndist.broadcast(load(), src=dist.get_group_rank(group, 2), group=group)",
        "dist.broadcast(load(), src=dist.get_group_rank(group, 2), group=group)",
    ),
    "a file of rank 0": (
        "DW506",
        filled(FILES, WRITER="rank == 0", WRITTEN='f"part{rank}.pt"', CHECK="", READ='f"part{rank}.pt"'),
        'state = torch.load(f"part{rank}.pt", map_location="cpu")',
    ),
    "gradients divided before the sum is there": (
        "DW415",
        filled(BEGUN, INSIDE="p.grad /= world", BEHIND="pass"),
        "p.grad /= world",
    ),
    "means over the tokens of a rank": (
        "DW429",
        filled(PER_TOKEN, MEAN="(losses * mask).sum() / mask.sum()"),
        "dist.all_reduce(mean)",
    ),
    "statistics of one part for an average": (
        "DW251",
        filled(MEASURED, LOADER="loader", BEHIND=""),
        "update_bn(loader, averaged)",
    ),
    "samplers of a mapping": (
        "DW203",
        filled(LOADERS, EPOCH="pass"),
        'loaders = {name: DataLoader(part, sampler=DistributedSampler(part, shuffle=name == "train")) '
        "for name, part in sets}",
    ),
    "places of what is wrong": (
        "DW407",
        filled(GATHERED, PART="ids[(model(x) != y).nonzero().flatten()]", BUFFER="torch.zeros_like(part)"),
        "dist.all_gather(parts, part)",
    ),
    "rows by their places": (
        "DW407",
        filled(GATHERED, PART="x[torch.where(model(x) > 0)[0]]", BUFFER="torch.zeros_like(part)"),
        "dist.all_gather(parts, part)",
    ),
}
RIGHT = {
    "labels into whole numbers": (
        "DW441",
        filled(SENT, GIVEN="model(x).argmax(dim=1)", INTO="torch.zeros(8, dtype=torch.long)"),
    ),
    "labels into what is made whole": (
        "DW441",
        filled(SENT, GIVEN="model(x).argmax(dim=1)", INTO="torch.zeros(8).long()"),
    ),
    "labels that are sent as floats": (
        "DW441",
        filled(SENT, GIVEN="model(x).argmax(dim=1).float()", INTO="torch.zeros(8)"),
    ),
    "half precision on both sides": (
        "DW441",
        filled(SENT, GIVEN="torch.ones(8).half()", INTO="torch.zeros(8, dtype=torch.float16)"),
    ),
    "activations into a tensor for them": (
        "DW441",
        filled(SENT, GIVEN="encoder(torch.randn(8, 4)).detach()", INTO="torch.empty(8, 16)"),
    ),
    "activations in another form": (
        "DW441",
        filled(SENT, GIVEN="encoder(torch.randn(8, 4)).detach()", INTO="torch.empty(128)"),
    ),
    "activations on a device": (
        "DW441",
        filled(SENT, GIVEN="encoder(torch.randn(8, 4))", INTO="torch.empty(8, 16, device=args.device)"),
    ),
    "an order into whole numbers": (
        "DW441",
        filled(CHOSEN, FIRST="torch.randperm(8)", OTHER="torch.empty(8, dtype=torch.int64)"),
    ),
    "a float on both sides": ("DW441", filled(CHOSEN, FIRST="torch.tensor(3.0)", OTHER="torch.zeros(())")),
    "something that is not known": ("DW441", filled(CHOSEN, FIRST="load()", OTHER="torch.zeros(8)")),
    "labels gathered into tensors like them": (
        "DW441",
        filled(GATHERED, PART="torch.randint(0, 3, (8,))", BUFFER="torch.zeros_like(part)"),
    ),
    "a type for all": (
        "DW441",
        START + "kind = torch.bfloat16 if world > 1 else torch.float32\nx = load().to(kind)\ndist.all_reduce(x)",
    ),
    "every n-th": ("DW442", filled(CUT, PART="rows[rank::world]")),
    "one behind the other": ("DW442", filled(CUT, PART="rows[rank * size : (rank + 1) * size]")),
    "one behind the other, the rest on the last": (
        "DW442",
        filled(CUT, PART="rows[rank * size : (rank + 1) * size if rank < world - 1 else len(rows)]"),
    ),
    "one more for the targets": ("DW442", filled(CUT, PART="rows[rank * size : (rank + 1) * size + 1]")),
    "all, the own first": ("DW442", filled(CUT, PART="rows[rank * size :] + rows[: rank * size]")),
    "what is before a rank": (
        "DW442",
        filled(CUT, PART="rows[: rank * size]").replace("rows[: rank * size]", "x[:rank]"),
    ),
    "a shuffle by one seed": ("DW443", filled(SHUFFLED, ORDER="random.seed(1)\nrandom.shuffle(names)")),
    "a shuffle by a generator of one seed": ("DW443", filled(SHUFFLED, ORDER="random.Random(1).shuffle(names)")),
    "a shuffle of the data": (
        "DW443",
        START + "rows = [load() for _ in range(9)]\nrandom.shuffle(rows)\nfor x in rows:\n    loss = model(x)\n"
        "    dist.all_reduce(loss)",
    ),
    "the same way on all ranks": (
        "DW443",
        filled(SHUFFLED, ORDER='names = ["loss", "right"] if world == 2 else ["right", "loss"]'),
    ),
    "one root after the other": (
        "DW416",
        START + "parts = torch.zeros(4, 2)\nfor at in range(world):\n    dist.broadcast(parts[at], src=at)",
    ),
    "the rank of the job as a root": (
        "DW416",
        START
        + "group = dist.new_group([2, 3])\ndist.broadcast(load(), src=dist.get_global_rank(group, 0), group=group)",
    ),
    "a file of each rank": (
        "DW506",
        filled(FILES, WRITER="True", WRITTEN='f"part{rank}.pt"', CHECK="", READ='f"part{rank}.pt"'),
    ),
    "a file for all": ("DW506", filled(FILES, WRITER="rank == 0", WRITTEN='"part.pt"', CHECK="", READ='"part.pt"')),
    "a file that is asked for": (
        "DW506",
        filled(
            FILES,
            WRITER="rank == 0",
            WRITTEN='f"part{rank}.pt"',
            CHECK='if not os.path.exists(f"part{rank}.pt"):\n    raise SystemExit',
            READ='f"part{rank}.pt"',
        ),
    ),
    "gradients divided behind the wait": (
        "DW415",
        filled(BEGUN, INSIDE="pass", BEHIND="for p in model.parameters():\n        p.grad /= world"),
    ),
    "the shape before the wait": ("DW415", filled(BEGUN, INSIDE="count = p.grad.numel()", BEHIND="pass")),
    "sums of tokens": (
        "DW429",
        filled(PER_TOKEN, MEAN="torch.stack([(losses * mask).sum(), mask.sum()])"),
    ),
    "means over equal parts": ("DW429", filled(PER_TOKEN, MEAN="losses.sum() / losses.numel()")),
    "statistics of all data for an average": (
        "DW251",
        filled(MEASURED, LOADER="DataLoader(data, batch_size=8)", BEHIND=""),
    ),
    "statistics that are averaged then": (
        "DW251",
        filled(MEASURED, LOADER="loader", BEHIND="for each in averaged.buffers():\n    dist.all_reduce(each)"),
    ),
    "samplers of a mapping with an epoch": (
        "DW203",
        filled(LOADERS, EPOCH='loaders["train"].sampler.set_epoch(epoch)'),
    ),
    "so many of the best": (
        "DW407",
        filled(GATHERED, PART="x[model(x).topk(4).indices]", BUFFER="torch.zeros_like(part)"),
    ),
    "what is selected, padded": (
        "DW407",
        filled(
            GATHERED,
            PART="torch.cat([x[x > 0], torch.zeros(64 - int((x > 0).sum()))])",
            BUFFER="torch.zeros_like(part)",
        ),
    ),
}


@pytest.mark.parametrize(("rule", "code", "line"), FOUND.values(), ids=FOUND)
def test_the_cause_is_found(rule: str, code: str, line: str) -> None:
    assert lines(code, rule) == [line]


@pytest.mark.parametrize(("rule", "code"), RIGHT.values(), ids=RIGHT)
def test_nothing_in_what_is_right(rule: str, code: str) -> None:
    assert lines(code, rule) == []
