"""Causes that programs for two ranks have shown, each with programs that look alike and are right."""

import pytest
from helpers.review_snippets import lines

START = """
import copy
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
"""
SPLIT = (
    START
    + """
class Split(nn.Module):
    def __init__(self, full):
        super().__init__()
        part = full.in_features // world
        self.weight = nn.Parameter(full.weight[:, rank * part : (rank + 1) * part].clone())
        self.bias = nn.Parameter(full.bias.clone())

    def forward(self, x):
        y = F.linear(x, PARTS)
        dist.all_reduce(y)
        return y

Split(nn.Linear(8, 4))(torch.ones(2, 4))
"""
)
LAYER = START + "layer = nn.Linear(SIZES)\ny = layer(torch.ones(2, 4))\ndist.all_reduce(y)\n"
SHARDED = (
    START
    + """
model = nn.Linear(8, 8)
fully_shard(model)
state = STATE
if WHO:
    torch.save(state, "model.pt")
"""
)
HANDLES = (
    START
    + """
class Sync:
    def __init__(self):
        self.handles = []

    def start(self, grad):
        self.handles.append(CALL)

    def finish(self):
        for handle in self.handles:
            WAIT

sync = Sync()
sync.start(torch.ones(2))
sync.finish()
"""
)
COPIED = (
    START
    + """
class Average:
    def __init__(self, model):
        self.model = copy.deepcopy(model)

def train(loader):
    torch.manual_seed(SEED)
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    BEFORE
    model = DDP(net)
    AFTER
    for x in loader:
        model(x).sum().backward()

train(data)
"""
)
BY_HAND = (
    START
    + """
def average(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= world
    PUT_BACK
    return flat.norm().item()

model = nn.Linear(3, 1)
WRAP
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for x in data:
    model(x).sum().backward()
    print(average(model))
    optimizer.step()
"""
)
PLATEAU = (
    START
    + """
model = DDP(nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
for x in data:
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    total = loss.detach().clone()
    REDUCE
    scheduler.step(total.item() / world)
"""
)
CRITIC = (
    START
    + """
def loss_of(critic, real, fake):
    net = NET
    return (F.softplus(-net(real)) + F.softplus(net(fake))).mean()

made, critic = DDP(nn.Linear(2, 2)), DDP(nn.Linear(2, 1))
optimizer = torch.optim.SGD(critic.parameters(), 0.1)
for x in data:
    loss_of(critic, x, made(x).detach()).backward()
    optimizer.step()
"""
)
STAGES = (
    START
    + """
def first(stage, x):
    outputs = []
    for part in x.chunk(4):
        output = stage(part)
        dist.send(output.detach(), 1)
        outputs.append(output)
        INSIDE
    for output in outputs:
        BEHIND

def last(stage, y):
    inputs = []
    for part in y.chunk(4):
        hidden = torch.empty(2, 4)
        dist.recv(hidden, 0)
        inputs.append(hidden)
    for hidden in inputs:
        dist.send(hidden, 0)

stage, x = nn.Linear(4, 4), torch.randn(8, 4)
if rank == 0:
    first(stage, x)
else:
    last(stage, x)
"""
)
RECEIVE = "dist.recv(torch.empty_like(output), 1)"
HOOKED = (
    START
    + """
class Stats:
    def __call__(self, module, inputs, output):
        dist.all_reduce(output.detach().mean())

net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
if WHO:
    net[1].register_forward_hook(Stats())
model = DDP(net)
for x in data:
    model(x).sum().backward()
"""
)
AVERAGED = (
    START
    + """
model = nn.Linear(2, 2)
for p in model.parameters():
    dist.all_reduce(p)
    MEAN
"""
)
SHARED = START + "held = LIST\ndist.broadcast_object_list(held, src=0)\nprint(held[0])\n"
GATHERED = (
    START
    + """
from torch.utils.data import DataLoader, Subset

def predict(loader):
    outputs = []
    for x in loader:
        parts = [None] * world
        GATHER
        outputs.extend(parts)
    return outputs

rows = torch.randn(35, 4)
outputs = predict(DataLoader(Subset(rows, range(rank, len(rows), world)), batch_size=9))
if rank == 0:
    print(len(outputs))
"""
)
LAST = (
    START
    + """
from torch.utils.data import DataLoader, Subset

model = DDP(nn.Linear(4, 2))
rows = torch.randn(35, 4)
for x in DataLoader(Subset(rows, range(rank, len(rows), world)), SIZE):
    y = MADE
    parts = [torch.empty_like(y) for _ in range(world)]
    dist.all_gather(parts, y)
"""
)
PLAYED = (
    START
    + """
import random

class Game:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def play(self):
        return torch.tensor([self.random.gauss(0, 1) for _ in range(4)])

BEFORE
model = DDP(nn.Linear(4, 2))
AFTER
for _ in range(10):
    states = torch.stack([game.play() for _ in range(8)])
    model(states).sum().backward()
"""
)


def filled(code: str, **parts: str) -> str:
    """Return a program with its parts."""
    for name, part in parts.items():
        code = code.replace(name, part)
    return code


FOUND = {
    "a bias of each rank": ("DW438", filled(SPLIT, PARTS="self.weight, self.bias"), "dist.all_reduce(y)"),
    "the bias of a split layer": ("DW438", filled(LAYER, SIZES="8 // world, 4"), "dist.all_reduce(y)"),
    "shards saved by rank 0": (
        "DW306",
        filled(SHARDED, STATE="{k: v.to_local().cpu() for k, v in model.state_dict().items()}", WHO="rank == 0"),
        'torch.save(state, "model.pt")',
    ),
    "a state of shards saved by rank 0": (
        "DW306",
        filled(SHARDED, STATE='{"model": model.state_dict(), "epoch": 3}', WHO="rank == 0"),
        'torch.save(state, "model.pt")',
    ),
    "handles of calls that wait themselves": (
        "DW422",
        filled(HANDLES, CALL="dist.all_reduce(grad)", WAIT="handle.wait()"),
        "self.handles.append(dist.all_reduce(grad))",
    ),
    "listed handles of calls that wait themselves": (
        "DW422",
        START + "handles = [dist.all_reduce(x) for x in data]\nfor each in handles:\n    each.wait()",
        "handles = [dist.all_reduce(x) for x in data]",
    ),
    "an average that begins from the model of the rank": (
        "DW231",
        filled(COPIED, SEED="rank", BEFORE="average = Average(net)", AFTER="pass"),
        "average = Average(net)",
    ),
    "gradients of which only the norm is read": (
        "DW421",
        filled(BY_HAND, PUT_BACK="pass", WRAP="pass"),
        "dist.all_reduce(flat)",
    ),
    "a sum for rank 0 by which all ranks go": (
        "DW226",
        filled(PLATEAU, REDUCE="dist.reduce(total, 0)"),
        "dist.reduce(total, 0)",
    ),
    "a critic without its wrapper": ("DW207", filled(CRITIC, NET="critic.module"), None),
    "gradients that the first stage waits for too early": (
        "DW431",
        filled(STAGES, INSIDE=RECEIVE, BEHIND="pass"),
        RECEIVE,
    ),
    "a hook of one rank that waits for all": (
        "DW401",
        filled(HOOKED, WHO="rank == 0"),
        "net[1].register_forward_hook(Stats())",
    ),
    "a mean that nothing keeps": ("DW421", filled(AVERAGED, MEAN="p / world"), "p / world"),
    "a mean of a method that nothing keeps": ("DW421", filled(AVERAGED, MEAN="p.div(world)"), "p.div(world)"),
    "a list without a place for the object": (
        "DW417",
        filled(SHARED, LIST="[1] if rank == 0 else []"),
        "dist.broadcast_object_list(held, src=0)",
    ),
    "the last batches of parts that differ": (
        "DW427",
        filled(LAST, SIZE="batch_size=9", MADE="model.module(x)"),
        "dist.all_gather(parts, y)",
    ),
    "labels of last batches": (
        "DW427",
        filled(LAST, SIZE="batch_size=9", MADE="model(x).argmax(1)"),
        "dist.all_gather(parts, y)",
    ),
    "games of one seed": (
        "DW243",
        filled(PLAYED, BEFORE="", AFTER="game = Game(seed=3)"),
        "game = Game(seed=3)",
    ),
    "a result of the shape of a part": (
        "DW425",
        START + "x = torch.ones(2, 3)\nall_x = torch.empty(x.shape)\ndist.all_gather_into_tensor(all_x, x)",
        "dist.all_gather_into_tensor(all_x, x)",
    ),
}
RIGHT = {
    "a bias after the sum": ("DW438", filled(SPLIT, PARTS="self.weight")),
    "a bias of rank 0": ("DW438", filled(SPLIT, PARTS="self.weight, self.bias if rank == 0 else None")),
    "a part of the bias": ("DW438", filled(SPLIT, PARTS="self.weight, self.bias / world")),
    "a split layer without a bias": ("DW438", filled(LAYER, SIZES="8 // world, 4, bias=False")),
    "a layer that is not split": ("DW438", filled(LAYER, SIZES="4, 4")),
    "shards saved by all": ("DW306", filled(SHARDED, STATE="model.state_dict()", WHO="True")),
    "whole tensors": (
        "DW306",
        filled(SHARDED, STATE="{k: v.full_tensor() for k, v in model.state_dict().items()}", WHO="rank == 0"),
    ),
    "handles": ("DW422", filled(HANDLES, CALL="dist.all_reduce(grad, async_op=True)", WAIT="handle.wait()")),
    "results that nothing waits for": ("DW422", filled(HANDLES, CALL="dist.all_reduce(grad)", WAIT="print(handle)")),
    "an average of the model in DDP": (
        "DW231",
        filled(COPIED, SEED="rank", BEFORE="pass", AFTER="average = Average(model.module)"),
    ),
    "an average from one seed": ("DW231", filled(COPIED, SEED="7", BEFORE="average = Average(net)", AFTER="pass")),
    "gradients that are written back": (
        "DW421",
        filled(BY_HAND, PUT_BACK="nn.utils.vector_to_parameters(flat, [p.grad for p in model.parameters()])", WRAP=""),
    ),
    "the norm of gradients that DDP has averaged": (
        "DW421",
        filled(BY_HAND, PUT_BACK="pass", WRAP="model = DDP(model)"),
    ),
    "a sum for all": ("DW226", filled(PLATEAU, REDUCE="dist.all_reduce(total)")),
    "a critic in its wrapper": ("DW207", filled(CRITIC, NET="critic")),
    "gradients after all parts": ("DW431", filled(STAGES, INSIDE="pass", BEHIND=RECEIVE)),
    "results of all ranks": ("DW434", filled(GATHERED, GATHER="dist.all_gather_object(parts, x)")),
    "a hook of all ranks": ("DW401", filled(HOOKED, WHO="data")),
    "a mean in place": ("DW421", filled(AVERAGED, MEAN="p /= world")),
    "a mean of a method in place": ("DW421", filled(AVERAGED, MEAN="p.div_(world)")),
    "a list with a place for the object": ("DW417", filled(SHARED, LIST="[1] if rank == 0 else [None]")),
    "a list as long as the number of ranks": ("DW417", filled(SHARED, LIST="[1] * 2 if rank == 0 else [None] * 2")),
    "no last batch": ("DW427", filled(LAST, SIZE="batch_size=9, drop_last=True", MADE="model(x)")),
    "a number of each batch": ("DW427", filled(LAST, SIZE="batch_size=9", MADE="model(x).mean()")),
    "last batches of one size": ("DW427", filled(LAST, SIZE="batch_size=1", MADE="model(x)")),
    "games of a seed of each rank": ("DW243", filled(PLAYED, BEFORE="", AFTER="game = Game(seed=3 + rank)")),
    "games without a seed": ("DW243", filled(PLAYED, BEFORE="", AFTER="game = Game(seed=None)")),
    "games that are there before the model": ("DW243", filled(PLAYED, BEFORE="game = Game(seed=3)", AFTER="")),
    "a result of all parts": (
        "DW425",
        START + "x = torch.ones(2, 3)\nall_x = torch.empty(world, *x.shape)\ndist.all_gather_into_tensor(all_x, x)",
    ),
}


@pytest.mark.parametrize(("rule", "code", "line"), FOUND.values(), ids=FOUND)
def test_the_cause_is_found(rule: str, code: str, line: str | None) -> None:
    found = lines(code, rule)
    assert found == [line] if line else found


@pytest.mark.parametrize(("rule", "code"), RIGHT.values(), ids=RIGHT)
def test_nothing_in_what_is_right(rule: str, code: str) -> None:
    assert lines(code, rule) == []
