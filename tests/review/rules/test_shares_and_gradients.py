"""Shares of the data, models and gradients that small programs get wrong, each with programs that look alike."""

import pytest
from helpers.review_snippets import lines

START = """
import copy, random
import numpy as np
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Subset, TensorDataset, random_split
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
"""
STEP = """
    opt.zero_grad()
    loss.backward()
    AVERAGE
    opt.step()
"""
AVERAGE = """for p in NET.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world"""
BY_HAND = (
    START
    + """
SEED
model = nn.Linear(4, 1)
OTHER
opt = torch.optim.SGD(PARAMETERS, lr=0.1)
gen = torch.Generator().manual_seed(rank)
for _ in range(9):
    x = torch.randn(8, 4, generator=gen)
    loss = LOSS
"""
    + STEP
)
WRAPPED = (
    START
    + """
torch.manual_seed(SEED)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
model = DDP(net)
CHANGE
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(9):
    x = INPUT
    BEFORE
    loss = model(x).pow(2).mean()
"""
    + STEP
)
COUNTED = (
    START
    + """
x, y = torch.randn(64, 5), torch.randint(0, 2, (64,))
data = TensorDataset(x, y)
loader = DataLoader(data, batch_size=8SAMPLER)
model = nn.Linear(5, 2)
hits = torch.zeros(1)
for a, b in loader:
    hits += (model(a).argmax(1) == b).sum()
dist.all_reduce(hits)
print(hits / DIVISOR)
"""
)
PARTS = (
    START
    + """
x = torch.arange(COUNT).float().view(COUNT, 1)
mine = SHARE
mean = mine.mean()
dist.all_reduce(mean)
print(mean / world)
"""
)
TRAINED = (
    START
    + """
x = torch.arange(64.0).view(64, 1)
per = len(x) // world
mine = SHARE
model = DDP(nn.Linear(1, 1))
opt = torch.optim.SGD(model.parameters(), lr=1e-5)
for _ in range(3):
    loss = model(mine).pow(2).mean()
"""
    + STEP
)
SAMPLED = (
    START
    + """
full = TensorDataset(torch.randn(80, 4), torch.randn(80, 1))
train, held_out = random_split(full, [64, 16], generator=torch.Generator().manual_seed(0))
sampler = DistributedSampler(OF)
loader = DataLoader(train, batch_size=8, sampler=sampler)
model = DDP(nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for a, b in loader:
        opt.zero_grad()
        F.mse_loss(model(a), b).backward()
        opt.step()
"""
)
PHASES = (
    START
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.a = nn.Linear(8, 1)
        self.b = nn.Linear(8, 4)
    def forward(self, x, first=False):
        h = self.body(x)
        if first:
            return self.a(h)
        return OTHER

model = DDP(Net())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    opt.zero_grad()
    model(torch.randn(8, 4), first=True).sum().backward()
    opt.step()
for _ in range(4):
    opt.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    opt.step()
"""
)
TARGET = (
    START
    + """
class Agent:
    def __init__(self):
        self.rank = rank
        self.q = DDP(nn.Linear(4, 2))
        self.target = copy.deepcopy(self.q.module)
        self.opt = torch.optim.SGD(self.q.parameters(), lr=0.1)
    def learn(self, x):
        with torch.no_grad():
            y = self.target(x)
        loss = (self.q(x) - y).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
    def train(self, sync_every=5):
        for t in range(20):
            self.learn(torch.randn(8, 4))
            if WHEN:
                self.target.load_state_dict(self.q.module.state_dict())
Agent().train()
"""
)
ACCUMULATED = (
    START
    + """
model = DDP(nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(8):
    with model.no_sync():
        model(torch.randn(8, 4)).pow(2).mean().backward()
    LAST
    if (i + 1) % 2 == 0:
        opt.step()
        opt.zero_grad()
"""
)
SPLIT = START + "files = [f'part-{i}' for i in range(40)]\nSEED\nrandom.shuffle(files)\nmine = files[rank::world]\n"
GATHERED = (
    START
    + """
x = torch.arange(16.0)
truth = (x > 7).float()
guess = (SHARE > 7).float()
parts = [torch.empty_like(guess) for _ in range(world)]
dist.all_gather(parts, guess)
print((torch.cat(parts) == truth).float().mean())
"""
)
MEAN = START + "loss = torch.tensor(float(rank))\nREDUCE\nmean = loss DIVISION\nprint(mean / world)\n"
STREAM = (
    START
    + """
class Lines(IterableDataset):
    def __init__(self, lines):
        self.lines = lines
    def __iter__(self):
        for line in LINES:
            yield torch.tensor([float(len(line))])

total = torch.zeros(1)
for batch in DataLoader(Lines(["a" * (i % 4) for i in range(48)]), batch_size=6):
    total += batch.sum()
dist.all_reduce(total)
print(total)
"""
)
DRAWN = (
    START
    + """
torch.manual_seed(SEED)
text = torch.arange(400) % 13
def batch():
    ix = torch.randint(len(text) - 8, (4,))
    return torch.stack([text[i:i + 8] for i in ix])
model = DDP(nn.Sequential(nn.Embedding(13, 16), nn.Linear(16, 13)))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(9):
    loss = model(batch()).pow(2).mean()
"""
    + STEP
)
SIZES = (
    START
    + """
torch.manual_seed(rank)
model = DDP(nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
rows = 8 if rank == 0 else OTHER
for _ in range(9):
    loss = model(torch.randn(rows, 4)).pow(2).mean()
"""
    + STEP
)


PIECES = (
    START
    + """
rows = ROWS
rows -= rows % LEAVE
data = torch.arange(rows * 4.0).view(rows, 4)
mine = data[rank::world]
model = DDP(nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for part in mine.split(8):
    if len(part) < 8:
        continue
    loss = model(part).pow(2).mean()
"""
    + STEP
)
LENGTHS = START + "x = torch.arange(20.0)[rank::world]\ntotal = x.sum()\ndist.all_reduce(total)\nprint(total / COUNT)\n"
COMPARED = (
    START
    + """
def gather(t):
    parts = [torch.zeros_like(t) for _ in range(world)]
    dist.all_gather(parts, t)
    OWN
    return torch.cat(parts)

model = nn.Linear(8, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    x = torch.randn(4, 8)
    a, b = model(x), model(x + 0.1)
    loss = F.cross_entropy(a @ gather(b).t(), torch.arange(4) + rank * 4)
"""
    + STEP
)
ALONE = (
    START
    + """
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for a, b in loader:
        TAKE
        opt.zero_grad()
        F.mse_loss(model(a), b).backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
"""
)
SENT = (
    START
    + """
model = nn.Linear(4, 1)
for p in model.parameters():
    dist.broadcast(p.data, src=0)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
mine = torch.arange(256.0).view(64, 4)[rank::world]
for part in mine.split(8):
    loss = model(part).pow(2).mean()
"""
    + STEP
)


def filled(text: str, **parts: str) -> str:
    """Return a program with these parts in the place of their names, the others empty."""
    for name, part in {"AVERAGE": "pass", "CHANGE": "", "BEFORE": "pass", "OTHER": "", **parts}.items():
        text = text.replace(name, part)
    return text


def by_hand(**parts: str) -> str:
    """Return a program that averages the gradients of its model by hand."""
    given = {"SEED": "torch.manual_seed(0)", "PARAMETERS": "model.parameters()", "LOSS": "model(x).pow(2).mean()"}
    return filled(BY_HAND, **{"AVERAGE": AVERAGE.replace("NET", "model"), **given, **parts})


def wrapped(**parts: str) -> str:
    """Return a program with a model in DDP."""
    return filled(WRAPPED, **{"SEED": "rank", "INPUT": "torch.randn(8, 4)", **parts})


OF_MODEL = AVERAGE.replace("NET", "model")
HEAD = "head = nn.Linear(1, 1)"
BOTH = {
    "OTHER": HEAD,
    "PARAMETERS": "[*model.parameters(), *head.parameters()]",
    "LOSS": "head(model(x)).pow(2).mean()",
}
REDUCED = "dist.all_reduce(loss)\n    loss = loss / world"
FOUND = {
    "a model without a seed": ("DW206", by_hand(SEED=""), "model = nn.Linear(4, 1)"),
    "a reference of a seed of each rank": (
        "DW206",
        wrapped(CHANGE="reference = nn.Linear(4, 1)", BEFORE="goal = reference(x)"),
        "reference = nn.Linear(4, 1)",
    ),
    "a head that is not averaged": ("DW255", by_hand(**BOTH), "dist.all_reduce(p.grad)"),
    "a loss that is reduced": ("DW255", by_hand(AVERAGE="pass", LOSS=f"model(x).pow(2).mean()\n    {REDUCED}"), None),
    "a sum for rank 0": (
        "DW255",
        by_hand(AVERAGE=AVERAGE.replace("NET", "model").replace("all_reduce(p.grad)", "reduce(p.grad, dst=0)")),
        "dist.reduce(p.grad, dst=0)",
    ),
    "a step that each rank takes by its loss": (
        "DW229",
        by_hand().replace("    opt.step()", "    if loss.item() < 1:\n        opt.step()"),
        "opt.step()",
    ),
    "a sum behind DDP": (
        "DW432",
        wrapped(AVERAGE="for p in model.parameters():\n        dist.all_reduce(p.grad)"),
        None,
    ),
    "a hook that sums": (
        "DW432",
        by_hand(
            AVERAGE="pass",
            OTHER="def add(grad):\n    dist.all_reduce(grad)\n    return grad\n"
            "for p in model.parameters():\n    p.register_hook(add)",
        ),
        "dist.all_reduce(grad)",
    ),
    "averages divided again": (
        "DW235",
        wrapped(AVERAGE="for p in model.parameters():\n        p.grad = p.grad / world"),
        "p.grad = p.grad / world",
    ),
    "noise of each rank": (
        "DW252",
        wrapped(AVERAGE="for p in model.parameters():\n        p.grad += torch.randn_like(p)"),
        "p.grad += torch.randn_like(p)",
    ),
    "layers frozen late": (
        "DW228",
        wrapped(CHANGE="for p in net[0].parameters():\n    p.requires_grad = False"),
        "for p in net[0].parameters():",
    ),
    "a layer replaced late": ("DW228", wrapped(CHANGE="model.module[2] = nn.Linear(8, 1)"), None),
    "a wrapper that nothing calls": ("DW207", wrapped().replace("loss = model(x)", "loss = net(x)"), None),
    "a parameter outside": (
        "DW208",
        wrapped(CHANGE="scale = torch.ones(1, requires_grad=True)")
        .replace("SGD(model.parameters()", "SGD([scale]")
        .replace("opt = ", "other = torch.optim.SGD(model.parameters(), lr=0.1)\nopt = "),
        None,
    ),
    "all of the data counted by each rank": (
        "DW309",
        filled(COUNTED, SAMPLER="", DIVISOR="len(data)"),
        "dist.all_reduce(hits)",
    ),
    "means of parts of 6 and 5": (
        "DW429",
        filled(PARTS, COUNT="11", SHARE="x[rank::world]"),
        "dist.all_reduce(mean)",
    ),
    "batches of 8 and 24": ("DW429", filled(SIZES, OTHER="24"), "loss = model(torch.randn(rows, 4)).pow(2).mean()"),
    "the first part": ("DW313", filled(TRAINED, SHARE="x[:per]"), "mine = x[:per]"),
    "a sampler of the whole": (
        "DW312",
        filled(SAMPLED, OF="full"),
        "loader = DataLoader(train, batch_size=8, sampler=sampler)",
    ),
    "heads of two phases": ("DW216", filled(PHASES, OTHER="self.b(h)"), "model = DDP(Net())"),
    "a target of rank 0": ("DW256", filled(TARGET, WHEN="self.rank == 0 and t % sync_every == 0"), None),
    "no_sync around each pass": ("DW213", filled(ACCUMULATED, LAST="pass"), "with model.no_sync():"),
    "a shuffle with a new seed": ("DW250", filled(SPLIT, SEED="random.seed()"), "random.shuffle(files)"),
    "every n-th sample in a row": ("DW440", filled(GATHERED, SHARE="x[rank::world]"), None),
    "a mean divided again": (
        "DW314",
        filled(MEAN, REDUCE="dist.all_reduce(loss)", DIVISION="/ world"),
        "print(mean / world)",
    ),
    "a mean of the reduction divided": (
        "DW314",
        filled(MEAN, REDUCE="dist.all_reduce(loss, op=dist.ReduceOp.AVG)", DIVISION=""),
        "print(mean / world)",
    ),
    "a stream that all ranks count": ("DW244", filled(STREAM, LINES="self.lines"), None),
    "a last piece that only one rank skips": ("DW406", filled(PIECES, ROWS="31", LEAVE="31"), "if len(part) < 8:"),
    "a sum divided by the length of a part": ("DW498", filled(LENGTHS, COUNT="len(x)"), "print(total / len(x))"),
    "gathered keys without gradients": ("DW420", filled(COMPARED, OWN="pass", AVERAGE=OF_MODEL), None),
    "all of the data, averaged by hand": (
        "DW202",
        filled(ALONE, TAKE="pass"),
        "loader = DataLoader(data, batch_size=8)",
    ),
    "models that begin alike and learn apart": ("DW255", filled(SENT), "opt.step()"),
    "samples that all ranks draw": ("DW243", filled(DRAWN, SEED="1337"), "ix = torch.randint(len(text) - 8, (4,))"),
}
RIGHT = {
    "a model of one seed": ("DW206", by_hand()),
    "a model that rank 0 sends": (
        "DW206",
        by_hand(SEED="", OTHER="for p in model.parameters():\n    dist.broadcast(p.data, src=0)"),
    ),
    "a model averaged at first": (
        "DW206",
        by_hand(SEED="", OTHER="for p in model.parameters():\n    dist.all_reduce(p.data)\n    p.data /= world"),
    ),
    "a reference of one seed": (
        "DW206",
        wrapped(SEED="0", CHANGE="reference = nn.Linear(4, 1)", BEFORE="goal = reference(x)"),
    ),
    "a layer without weights": ("DW206", wrapped(CHANGE="reference = nn.ReLU()", BEFORE="goal = reference(x)")),
    "a head that is averaged": (
        "DW255",
        by_hand(
            **{**BOTH, "AVERAGE": AVERAGE.replace("NET.parameters()", "[*model.parameters(), *head.parameters()]")}
        ),
    ),
    "a loss reduced for a report": ("DW255", by_hand(LOSS="model(x).pow(2).mean()", BEFORE=REDUCED)),
    "a step that all ranks take by the average": (
        "DW229",
        by_hand().replace(
            "    opt.step()",
            "    norm = nn.utils.clip_grad_norm_(model.parameters(), 1)\n    if norm < 9:\n        opt.step()",
        ),
    ),
    "a hook that averages": (
        "DW432",
        by_hand(
            AVERAGE="pass",
            OTHER="def add(grad):\n    dist.all_reduce(grad)\n    return grad / world\n"
            "for p in model.parameters():\n    p.register_hook(add)",
        ),
    ),
    "layers frozen before": (
        "DW228",
        wrapped().replace("model = DDP", "for p in net[0].parameters():\n    p.requires_grad = False\nmodel = DDP"),
    ),
    "the data shared out and counted": (
        "DW309",
        filled(COUNTED, SAMPLER=", sampler=DistributedSampler(data, shuffle=False)", DIVISOR="len(data)"),
    ),
    "all of the data counted and divided by the ranks": (
        "DW309",
        filled(COUNTED, SAMPLER="", DIVISOR="(len(data) * world)"),
    ),
    "means of equal parts": ("DW429", filled(PARTS, COUNT="12", SHARE="x[rank::world]")),
    "batches of one size": ("DW429", filled(SIZES, OTHER="8")),
    "the part of the rank": ("DW313", filled(TRAINED, SHARE="x[rank * per:(rank + 1) * per]")),
    "what the parts leave over": ("DW313", filled(TRAINED, SHARE="x[: per * world][rank::world]")),
    "a sampler of the loader's dataset": ("DW312", filled(SAMPLED, OF="train")),
    "heads that each phase uses": ("DW216", filled(PHASES, OTHER="self.b(h).sum() + self.a(h)")),
    "a target of all ranks": ("DW256", filled(TARGET, WHEN="t % sync_every == 0")),
    "no_sync and a last pass": (
        "DW213",
        filled(ACCUMULATED, LAST="model(torch.randn(8, 4)).pow(2).mean().backward()"),
    ),
    "a shuffle of one seed": ("DW250", filled(SPLIT, SEED="random.seed(3)")),
    "blocks in a row": ("DW440", filled(GATHERED, SHARE="x.chunk(world)[rank]")),
    "a mean over ranks and another number": (
        "DW314",
        filled(MEAN, REDUCE="dist.all_reduce(loss)", DIVISION="/ 8"),
    ),
    "a stream shared out": ("DW244", filled(STREAM, LINES="self.lines[rank::world]")),
    "pieces of parts of one length": ("DW406", filled(PIECES, ROWS="33", LEAVE="world")),
    "a sum divided by the length of all": ("DW498", filled(LENGTHS, COUNT="20")),
    "gathered keys with the gradients of the rank": (
        "DW420",
        filled(COMPARED, OWN="parts[rank] = t", AVERAGE=OF_MODEL),
    ),
    "batches cut by the rank": ("DW202", filled(ALONE, TAKE="a, b = a[rank::world], b[rank::world]")),
    "models that begin alike and are averaged": ("DW255", filled(SENT, AVERAGE=OF_MODEL)),
    "samples of a seed of each rank": ("DW243", filled(DRAWN, SEED="1337 + rank")),
}


@pytest.mark.parametrize(("rule", "code", "line"), FOUND.values(), ids=FOUND)
def test_the_mistake_is_found(rule: str, code: str, line: str | None) -> None:
    found = lines(code, rule)
    assert found == [line] if line else len(found) == 1


@pytest.mark.parametrize(("rule", "code"), RIGHT.values(), ids=RIGHT)
def test_what_looks_alike_is_right(rule: str, code: str) -> None:
    assert lines(code, rule) == []
