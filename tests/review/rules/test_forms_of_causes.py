"""Forms of one cause that differ in names and structure, and the change that heals each."""

from typing import NamedTuple

import pytest
from ddpwizard.app.review.types import ReviewFinding
from helpers.review_snippets import IMPORTS, found

START = """
import argparse
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Subset, TensorDataset
from torch.utils.data import get_worker_info
"""
INIT = START + 'dist.init_process_group("gloo")\nrank, world = dist.get_rank(), dist.get_world_size()\n'
SHARDED = (
    INIT + "from torch.distributed.fsdp import fully_shard\nclass Net(nn.Module):\n    def __init__(self):\n"
    "        super().__init__()\n        self.layer = nn.Linear(3, 3)\n    def forward(self, x):\n"
    "        return self.layer(x)\nnet = Net()\nfully_shard(net.layer)\nfully_shard(net)\n"
)
COUNTED = INIT + "import time\nstore = dist.TCPStore('127.0.0.1', 29801, world, rank == 0)\n"
SUMMED = (
    INIT + "def share(x):\n    x = x.detach().clone()\n    dist.all_reduce(x)\n    {}\n    return x\n"
    "net = nn.Linear(3, 1)\nstepper = torch.optim.SGD(net.parameters(), 0.1)\nfor _ in range(4):\n"
    "    loss = net(torch.randn(2, 3) + rank).mean()\n    loss.backward()\n"
    "    whole = torch.cat([p.grad.flatten() for p in net.parameters()])\n    dist.all_reduce(whole)\n"
    "    for p, part in zip(net.parameters(), whole.split([3, 1])):\n        p.grad.copy_(part.view_as(p))\n"
    "    stepper.step()\n    print(share(loss))\n"
)


class Form(NamedTuple):
    """A broken program, the rule that finds its cause in a line, and the replacement that heals it."""

    rule: str
    broken: str
    line: str
    replaced: str
    by: str


TRAINED_BY_STRIDE = """
class Fit:
    def __init__(self, count={count}):
        {init}
        self.rank = dist.get_rank()
        self.model = DDP(nn.Linear(3, 1))
        self.rows = torch.randn(count, 3)
    def run(self, size=1):
        for at in range(self.rank * size, len(self.rows), size * {world}):
            self.model(self.rows[at : at + size]).sum().backward()
"""
AUXILIARY = """
class Net(nn.Module):
    def __init__(self, warm=2):
        super().__init__()
        self.body, self.score = nn.Linear(3, 3), nn.Linear(3, 1)
        self.more = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
        self.warm = warm
    def forward(self, x, {given}):
        x = self.body(x)
        {way}
model = DDP(Net())
"""
TWO_WAYS = """if epoch >= self.warm:
            return self.score(x) + self.more(x)
        return self.score(x)"""
STEPS = "step = 0\nfor x in torch.randn(8, 2, 3):\n    model(x, step=step).sum().backward()\n    step += 1\n"
RUN = "fit = Fit()\nfit.run()\n"
FORMS = {
    "a total that goes on in the next round, next to one that does not": Form(
        "DW436",
        INIT
        + "count, total = 0, torch.zeros(1)\nfor epoch in range(3):\n    count = 0\n    for x in torch.randn(4, 2):\n"
        "        total += x.sum()\n        count += 1\n    dist.all_reduce(total)\n",
        "dist.all_reduce(total)",
        "    count = 0\n",
        "    count, total = 0, torch.zeros(1)\n",
    ),
    "a total that goes on, annotated": Form(
        "DW436",
        INIT + "total: torch.Tensor = torch.zeros(1)\nfor epoch in range(3):\n    for x in torch.randn(4, 2):\n"
        "        total += x.sum()\n    dist.all_reduce(total)\n",
        "dist.all_reduce(total)",
        "    for x in",
        "    total: torch.Tensor = torch.zeros(1)\n    for x in",
    ),
    "rounds by a variable of the environment with a default": Form(
        "DW217",
        START
        + 'COUNT = int(os.getenv("COUNT", "101"))\nWORLD = int(os.environ["WORLD_SIZE"])\n'
        + TRAINED_BY_STRIDE.format(count="COUNT", init='dist.init_process_group("gloo")', world="WORLD")
        + RUN,
        "for at in range(self.rank * size, len(self.rows), size * WORLD):",
        '"101"',
        '"100"',
    ),
    "rounds by a number that is written out": Form(
        "DW217",
        INIT + TRAINED_BY_STRIDE.format(count="33", init="pass", world="dist.get_world_size()") + RUN,
        "for at in range(self.rank * size, len(self.rows), size * dist.get_world_size()):",
        "count=33",
        "count=32",
    ),
    "rounds of a rank that one process does not read": Form(
        "DW217",
        START
        + 'WORLD = int(os.environ.get("WORLD_SIZE", 1))\n'
        + TRAINED_BY_STRIDE.format(
            count="65",
            init='self.rank = 0\n        if WORLD > 1:\n            dist.init_process_group("gloo")',
            world="WORLD",
        )
        + RUN,
        "for at in range(self.rank * size, len(self.rows), size * WORLD):",
        "count=65",
        "count=64",
    ),
    "rounds of the workers of each rank": Form(
        "DW217",
        INIT
        + """
class Rows(IterableDataset):
    def __init__(self, count):
        self.count = count
    def __iter__(self):
        info = get_worker_info()
        number, workers = (0, 1) if info is None else (info.id, info.num_workers)
        for at in range(rank * workers + number, self.count, world * workers):
            yield torch.full((3,), float(at))
model = DDP(nn.Linear(3, 1))
for rows in DataLoader(Rows(37), batch_size=1, num_workers=2):
    model(rows).sum().backward()
""",
        "for rows in DataLoader(Rows(37), batch_size=1, num_workers=2):",
        "Rows(37)",
        "Rows(64)",
    ),
    "a root that only the first rank computes, by two returns": Form(
        "DW416",
        INIT
        + """
def leader(losses):
    if rank == 0:
        return int(losses.argmin())
    return 0
weights, losses = torch.ones(4), torch.rand(world)
chosen = leader(losses)
dist.broadcast(weights, src=chosen)
""",
        "dist.broadcast(weights, src=chosen)",
        "chosen = leader(losses)",
        "chosen = [leader(losses)]\ndist.broadcast_object_list(chosen, src=0)\nchosen = chosen[0]",
    ),
    "a root that only the first rank keeps in an object": Form(
        "DW416",
        INIT
        + """
class Race:
    def __init__(self):
        self.winner = 0
        self.weights = torch.ones(4)
    def decide(self, times):
        if rank == 0:
            self.winner = times.argmin().item()
    def follow(self):
        dist.reduce(self.weights, dst=self.winner)
race = Race()
race.decide(torch.rand(world))
race.follow()
""",
        "dist.reduce(self.weights, dst=self.winner)",
        "        if rank == 0:\n            self",
        "        if world:\n            self",
    ),
    "a root in a tensor that one rank fills": Form(
        "DW416",
        INIT
        + """
place = torch.zeros(1, dtype=torch.int64)
if rank == 0:
    place[0] = torch.rand(world).argmax()
else:
    print(place)
dist.broadcast(torch.ones(2), int(place))
""",
        "dist.broadcast(torch.ones(2), int(place))",
        "    print(place)",
        "    dist.recv(place, src=0)",
    ),
    "a size that only the first rank computes": Form(
        "DW427",
        INIT
        + """
def longest(texts):
    found = 1
    if rank == 0:
        found = max(len(text) for text in texts)
    return found
width = longest(open("texts.txt"))
dist.broadcast(torch.zeros(width), src=0)
""",
        "dist.broadcast(torch.zeros(width), src=0)",
        "    if rank == 0:",
        "    if world:",
    ),
    "a ratio over a test set of a fixed size that the ranks do not divide": Form(
        "DW430",
        INIT
        + """
HELD_OUT = 51
class Held(Dataset):
    def __len__(self):
        return HELD_OUT
    def __getitem__(self, place):
        return torch.ones(3) * place, place % 2
def parts(size):
    held = Held()
    picks = DistributedSampler(held, shuffle=False)
    return DataLoader(held, batch_size=size, sampler=picks)
def measure(net, batches):
    seen = torch.zeros(2)
    for x, y in batches:
        seen[0] += (net(x).argmax(1) == y).sum()
        seen[1] += y.numel()
    dist.reduce(seen, dst=0)
    return seen[0] / seen[1]
print(measure(DDP(nn.Linear(3, 2)), parts(8)))
""",
        "picks = DistributedSampler(held, shuffle=False)",
        "HELD_OUT = 51",
        "HELD_OUT = 52",
    ),
    "the epoch of the sampler that does not shuffle": Form(
        "DW203",
        INIT
        + """
class Data:
    def __init__(self):
        rows = torch.randn(64, 3)
        self.fit, self.held = TensorDataset(rows[:48]), TensorDataset(rows[48:])
        self.fit_sampler = DistributedSampler(self.fit)
        self.held_sampler = DistributedSampler(self.held, shuffle=False)
        self.fit_batches = DataLoader(self.fit, 4, sampler=self.fit_sampler)
        self.held_batches = DataLoader(self.held, 4, sampler=self.held_sampler)
data, model = Data(), DDP(nn.Linear(3, 2))
for epoch in range(4):
    data.held_sampler.set_epoch(epoch)
    for (x,) in data.fit_batches:
        model(x).sum().backward()
    for (x,) in data.held_batches:
        model.module(x)
""",
        "data.held_sampler.set_epoch(epoch)",
        "data.held_sampler.set_epoch",
        "data.fit_sampler.set_epoch",
    ),
    "shares of two sets by one function, through stars": Form(
        "DW427",
        INIT
        + """
def drawn(seed, count):
    rows = torch.randn(count, 6)
    return rows, rows.argmax(dim=1)
def shared(rows, names):
    return rows[rank::world], names[rank::world]
def joined(names):
    places = [torch.empty_like(names) for _ in range(world)]
    dist.all_gather(places, names)
    return torch.cat(places)
fit_rows, fit_names = shared(*drawn(1, 200))
held = shared(*drawn(2, 77))
print(joined(held[1]))
""",
        "dist.all_gather(places, names)",
        "drawn(2, 77)",
        "drawn(2, 78)",
    ),
    "an optimizer of the first rank, next to a counter that it sends": Form(
        "DW225",
        INIT
        + """
class Run:
    def __init__(self):
        self.net = nn.Linear(3, 1)
        self.adam = torch.optim.AdamW(self.net.parameters())
        self.done = torch.tensor([0])
    def resume(self, path):
        if rank == 0:
            kept = torch.load(path, map_location="cpu")
            self.net.load_state_dict(kept["net"])
            self.adam.load_state_dict(kept["adam"])
            self.done[0] = kept["done"]
        dist.broadcast(self.done, src=0)
        self.model = DDP(self.net)
    def train(self):
        for x in torch.randn(4, 2, 3):
            self.model(x).sum().backward()
            self.adam.step()
run = Run()
run.resume("last.pt")
run.train()
""",
        'self.adam.load_state_dict(kept["adam"])',
        "        dist.broadcast(self.done, src=0)",
        "        for held in self.adam.state.values():\n            dist.broadcast(held['exp_avg'], src=0)",
    ),
    "gradients that are reduced by the words of a rank": Form(
        "DW406",
        INIT
        + """
from contextlib import nullcontext
def fit(model, batches, adam):
    words = rounds = 0
    for tokens, mask in batches:
        words += int(mask.sum())
        rounds += 1
        full = words > 20
        with nullcontext() if full else model.no_sync():
            model(tokens).sum().backward()
        if full:
            adam.step()
            words = rounds = 0
data = TensorDataset(torch.randn(64, 3), torch.ones(64, 3))
net = DDP(nn.Linear(3, 2))
fit(net, DataLoader(data, 4, sampler=DistributedSampler(data)), torch.optim.Adam(net.parameters()))
""",
        "with nullcontext() if full else model.no_sync():",
        "full = words > 20",
        "full = rounds == 4",
    ),
    "gradients that are reduced by the length of the rank's texts": Form(
        "DW406",
        INIT
        + """
def texts(lengths):
    for number, length in enumerate(lengths):
        if number % world == rank:
            yield torch.zeros(length, 3)
model, held = DDP(nn.Linear(3, 2)), 0
for text in texts(torch.randint(1, 9, (32,)).tolist()):
    held += len(text)
    if held < 30:
        with model.no_sync():
            model(text).sum().backward()
    else:
        model(text).sum().backward()
        held = 0
""",
        "with model.no_sync():",
        "torch.zeros(length, 3)",
        "torch.zeros(4, 3) + length",
    ),
    "gradients that are divided before the handles of their sums are waited for": Form(
        "DW415",
        INIT
        + """
def average(model):
    jobs = []
    for p in model.parameters():
        jobs.append(dist.all_reduce(p.grad, async_op=True))
    for p in model.parameters():
        p.grad /= world
    for each in jobs:
        each.wait()
net = nn.Linear(3, 1)
net(torch.ones(2, 3)).sum().backward()
average(net)
""",
        "p.grad /= world",
        "    for p in model.parameters():\n        p.grad /= world\n    for each in jobs:\n        each.wait()\n",
        "    for each in jobs:\n        each.wait()\n    for p in model.parameters():\n        p.grad /= world\n",
    ),
    "buckets of an object that are scaled before their handles": Form(
        "DW415",
        INIT
        + """
class Buckets:
    def __init__(self, tensors):
        self.tensors, self.begun = tensors, []
    def begin(self):
        for bucket in self.tensors:
            handle = dist.all_reduce(bucket, async_op=True)
            self.begun.append((bucket, handle))
    def end(self):
        for bucket, handle in reversed(self.begun):
            bucket.mul_(1 / world)
            handle.wait()
buckets = Buckets([torch.ones(3)])
buckets.begin()
buckets.end()
""",
        "bucket.mul_(1 / world)",
        "            bucket.mul_(1 / world)\n            handle.wait()\n",
        "            handle.wait()\n            bucket.mul_(1 / world)\n",
    ),
    "a lambda in a list for one rank": Form(
        "DW470",
        INIT + "box = [lambda x: x + 1] if rank == 0 else [None]\ndist.broadcast_object_list(box, src=0)\n",
        "dist.broadcast_object_list(box, src=0)",
        "[lambda x: x + 1]",
        "[abs]",
    ),
    "a function of a function in a mapping": Form(
        "DW470",
        INIT
        + """
def twice(x):
    return 2 * x
def main():
    def thrice(x):
        return 3 * x
    found = [None] * world
    dist.all_gather_object(found, {"rank": rank, "scale": thrice})
main()
""",
        'dist.all_gather_object(found, {"rank": rank, "scale": thrice})',
        '"scale": thrice',
        '"scale": twice',
    ),
    "a lock next to a number": Form(
        "DW470",
        INIT
        + "import threading\nstate = {'lock': threading.Lock(), 'steps': 4}\n"
        + "dist.gather_object(state, [None] * world if rank == 0 else None, dst=0)\n",
        "dist.gather_object(state, [None] * world if rank == 0 else None, dst=0)",
        "gather_object(state,",
        "gather_object(state['steps'],",
    ),
    "a generator": Form(
        "DW470",
        INIT + "found = [None] * world\ndist.all_gather_object(found, (x * x for x in range(4)))\n",
        "dist.all_gather_object(found, (x * x for x in range(4)))",
        "(x * x for x in range(4))",
        "[x * x for x in range(4)]",
    ),
    "one rank samples from a model of its own class that fully_shard shards": Form(
        "DW402",
        SHARDED + "def sample(model, start):\n    for _ in range(3):\n        start = model(start)\n    return start\n"
        "if rank == 0:\n    print(f'got {sample(net, torch.ones(1, 3))}')\ndist.barrier()\n",
        "print(f'got {sample(net, torch.ones(1, 3))}')",
        "if rank == 0:\n    print(f'got {sample(net, torch.ones(1, 3))}')",
        "made = sample(net, torch.ones(1, 3))\nif rank == 0:\n    print(f'got {made}')",
    ),
    "one rank evaluates a sharded model that an object holds, not a whole one": Form(
        "DW402",
        SHARDED + "whole = Net()\nclass Run:\n    def __init__(self, model):\n        self.model = model\n"
        "    def validate(self):\n        if dist.get_rank() > 0:\n            return\n"
        "        self.model(torch.ones(2, 3))\nRun(net).validate()\ndist.barrier()\n",
        "self.model(torch.ones(2, 3))",
        "Run(net)",
        "Run(whole)",
    ),
    "a list for all ranks, and the group of a node": Form(
        "DW417",
        INIT
        + """
def groups(size):
    mine = None
    for first in range(0, world, size):
        members = list(range(first, first + size))
        made = dist.new_group(members)
        if rank in members:
            mine = made
    return mine
def gathered(x, group=None):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x, group=group)
    return parts
gathered(torch.ones(3), groups(int(os.environ["NODE"])))
""",
        "dist.all_gather(parts, x, group=group)",
        "dist.get_world_size())]",
        "dist.get_world_size(group))]",
    ),
    "a list for all ranks, and the group of a half": Form(
        "DW417",
        INIT
        + """
half = dist.new_group(list(range(world // 2)))
if rank < world // 2:
    dist.reduce_scatter(torch.empty(3), [torch.ones(3)] * world, group=half)
""",
        "dist.reduce_scatter(torch.empty(3), [torch.ones(3)] * world, group=half)",
        "range(world // 2)))",
        "range(world)))",
    ),
    "a list for all ranks, and one of equal groups": Form(
        "DW417",
        INIT
        + """
mine, _ = dist.new_subgroups(2)
parts = [torch.empty(3) for _ in range(world)]
dist.all_to_all(parts, [torch.ones(3)] * mine.size(), group=mine)
""",
        "dist.all_to_all(parts, [torch.ones(3)] * mine.size(), group=mine)",
        "for _ in range(world)]",
        "for _ in range(2)]",
    ),
    "gradients that are summed up, next to a report that is divided in place": Form(
        "DW432",
        SUMMED.format("x /= dist.get_world_size()"),
        "dist.all_reduce(whole)",
        "all_reduce(whole)",
        "all_reduce(whole)\n    whole /= world",
    ),
    "gradients that are summed up, next to a report times a fraction": Form(
        "DW432",
        SUMMED.format("x.mul_(1 / world)"),
        "dist.all_reduce(whole)",
        "all_reduce(whole)",
        "all_reduce(whole)\n    whole *= 1 / world",
    ),
    "gradients that are summed up one by one, next to a report that is divided": Form(
        "DW432",
        INIT
        + """
net, seen = nn.Linear(3, 1), torch.zeros(1)
stepper = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(4):
    loss = net(torch.randn(2, 3) + rank).mean()
    loss.backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
    stepper.step()
    seen.fill_(loss.item())
    dist.all_reduce(seen)
    seen /= world
""",
        "dist.all_reduce(p.grad)",
        "all_reduce(p.grad)",
        "all_reduce(p.grad)\n        held = p.grad\n        held /= world",
    ),
    "a writer of rank 0 in an object, used once without a question": Form(
        "DW437",
        INIT
        + """
class Log:
    def __init__(self, path):
        self.file = open(path, "a")
    def line(self, text):
        self.file.write(text)
class Fit:
    def __init__(self, name):
        self.first = rank == 0
        self.log = Log(name) if self.first else None
    def epoch(self, number):
        if self.first:
            self.log.line("begin")
        if self.log is not None:
            self.log.line("middle")
        self.log.line("end")
        if not self.log:
            return
        self.log.line("behind")
fit = Fit("log.txt")
for number in range(3):
    fit.epoch(number)
""",
        'self.log.line("end")',
        'self.log.line("end")',
        'self.log and self.log.line("end")',
    ),
    "an object of the other ranks, in a function that all call": Form(
        "DW437",
        INIT
        + """
cache = None
if rank > 0:
    cache = open("cache.txt")
def text():
    return cache.read()
print(text())
""",
        "return cache.read()",
        "print(text())",
        "if rank > 0:\n    print(text())",
    ),
    "a state that rank 0 reads and does not send": Form(
        "DW437",
        INIT
        + """
state = torch.load("last.pt") if rank == 0 else None
box = [state]
dist.broadcast_object_list(box, src=0)
for name, held in state.items():
    print(name, held)
""",
        "for name, held in state.items():",
        "in state.items()",
        "in box[0].items()",
    ),
    "a counter of all ranks to which the first one does not add": Form(
        "DW428",
        COUNTED
        + """
def meet(name):
    if rank > 0:
        store.add(name, 1)
    while int(store.get(name)) < world:
        time.sleep(0.1)
store.set("ready", "0")
for _ in range(2):
    meet("ready")
""",
        "while int(store.get(name)) < world:",
        "< world:",
        "< world - 1:",
    ),
    "a counter of two for each rank to which each adds one": Form(
        "DW428",
        COUNTED
        + """
store.add("done", 1)
if rank == 0:
    while True:
        if store.add("done", 0) >= 2 * dist.get_world_size():
            break
        time.sleep(1)
""",
        'if store.add("done", 0) >= 2 * dist.get_world_size():',
        'store.add("done", 1)',
        'store.add("done", 2)',
    ),
    "a counter of rounds that one rank leaves out": Form(
        "DW428",
        COUNTED
        + """
for epoch in range(3):
    if rank != world - 1:
        store.add(f"epoch{epoch}", 1)
    while world > store.add(f"epoch{epoch}", 0):
        pass
""",
        'while world > store.add(f"epoch{epoch}", 0):',
        "    if rank != world - 1:\n",
        "    if rank < world:\n",
    ),
    "a sum that reduce gives to one rank, compared on all": Form(
        "DW405",
        INIT + "model, rows = DDP(nn.Linear(3, 1)), torch.randn(8, 3)\n"
        "def error():\n    value = model.module(rows).square().mean().detach()\n    dist.reduce(value, 0)\n"
        "    value /= world\n    return float(value)\n"
        "while error() > 0.1:\n    model(rows).sum().backward()\n",
        "dist.reduce(value, 0)",
        "dist.reduce(value, 0)",
        "dist.all_reduce(value)",
    ),
    "what a function answers about the loss of a rank": Form(
        "DW406",
        INIT + "model = DDP(nn.Linear(3, 1))\nrows = torch.randn(64, 3)\n"
        "loader = DataLoader(rows, 4, sampler=DistributedSampler(rows))\n"
        "def is_bad(loss):\n    return torch.isnan(loss)\n"
        "for rows in loader:\n    loss = model(rows).sum()\n    if is_bad(loss):\n        continue\n"
        "    loss.backward()\n",
        "return torch.isnan(loss)",
        "    return torch.isnan(loss)",
        "    bad = torch.isnan(loss).int()\n    dist.all_reduce(bad, dist.ReduceOp.MAX)\n    return bad.item()",
    ),
    "what a function answers about a value that the ranks do not combine": Form(
        "DW405",
        INIT + "model = DDP(nn.Linear(3, 1))\nrows = TensorDataset(torch.randn(64, 3))\n"
        "loader = DataLoader(rows, 4, sampler=DistributedSampler(rows))\n"
        "def is_done(error):\n    return error < 0.1\n"
        "for epoch in range(4):\n    error = torch.zeros(1)\n    for (x,) in loader:\n"
        "        model(x).sum().backward()\n        error += model.module(x).detach().sum()\n"
        "    if is_done(error):\n        break\n",
        "if is_done(error):",
        "    if is_done(error)",
        "    dist.all_reduce(error)\n    if is_done(error)",
    ),
    "a quotient by the words that each rank has counted in its batches": Form(
        "DW429",
        INIT + "model, text = DDP(nn.Linear(3, 5)), torch.randint(0, 5, (64, 3))\n"
        "def test():\n    loss, words = 0.0, 0\n    for part in text.chunk(world)[rank].split(8):\n"
        "        loss += model.module(part.float()).sum().item()\n        words += part.ne(0).sum().item()\n"
        "    mean = torch.tensor([loss / max(words, 1)])\n    dist.all_reduce(mean)\n    return mean / world\n"
        "print(test())\n",
        "dist.all_reduce(mean)",
        "words += part.ne(0).sum().item()",
        "words += len(part)",
    ),
    "a quotient of two elements of a tensor": Form(
        "DW429",
        INIT + "model, data, seen = DDP(nn.Linear(3, 5)), TensorDataset(torch.randn(64, 3)), torch.zeros(2)\n"
        "for (rows,) in DataLoader(data, 4, sampler=DistributedSampler(data)):\n"
        "    seen[0] += model.module(rows).square().sum()\n    seen[1] += torch.count_nonzero(rows)\n"
        "error = seen[0] / seen[1]\ndist.all_reduce(error, op=dist.ReduceOp.AVG)\nprint(error)\n",
        "dist.all_reduce(error, op=dist.ReduceOp.AVG)",
        "error = seen[0] / seen[1]\ndist.all_reduce(error, op=dist.ReduceOp.AVG)\n",
        "dist.all_reduce(seen)\nerror = seen[0] / seen[1]\n",
    ),
    "a layer that is left out in the first epochs": Form(
        "DW216",
        INIT
        + AUXILIARY.format(given="epoch", way=TWO_WAYS)
        + "for epoch in range(4):\n    for x in torch.randn(4, 2, 3):\n        model(x, epoch).sum().backward()\n",
        "model = DDP(Net())",
        "return self.score(x)\n",
        "return self.score(x) + 0 * self.more(x)\n",
    ),
    "a layer that the data choose while the model trains, with losses by the names of outputs": Form(
        "DW216",
        INIT
        + AUXILIARY.format(
            given="step=0",
            way="out = {'score': self.score(x)}\n        if self.training and x.mean() > 3:\n"
            "            out['more'] = self.more(x)\n        return out",
        )
        + "for step in range(8):\n    outputs = model(torch.randn(2, 3) + rank)\n"
        "    losses = {name: each.square().mean() for name, each in outputs.items()}\n    losses['score'].backward()\n",
        "model = DDP(Net())",
        "if self.training and x.mean() > 3",
        "if self.training and self.warm > 3",
    ),
    "a layer that is left out in the first steps": Form(
        "DW216",
        INIT
        + AUXILIARY.format(given="step=0", way="return self.score(x) + (self.more(x) if step > self.warm else 0)")
        + STEPS,
        "model = DDP(Net())",
        "DDP(Net())",
        "DDP(Net(), find_unused_parameters=True)",
    ),
    "a layer that is left out in steps, next to one whose result is scaled": Form(
        "DW216",
        INIT
        + AUXILIARY.format(given="step=0", way="return self.score(x) + (self.more(x) if step > self.warm else 0)")
        + STEPS,
        "model = DDP(Net())",
        "(self.more(x) if step > self.warm else 0)",
        "self.more(x) * (1 if step > self.warm else 0)",
    ),
    "a layer that each second step uses": Form(
        "DW216",
        INIT
        + AUXILIARY.format(given="more", way="return self.score(x) + (self.more(x) if more else 0)")
        + "for step in range(8):\n    model(torch.randn(2, 3), step % 2 == 0).sum().backward()\n",
        "model = DDP(Net())",
        "step % 2 == 0",
        "step >= 0 or True",
    ),
    "a layer that steps of a schedule use, by a keyword": Form(
        "DW216",
        INIT
        + AUXILIARY.format(
            given="*, more=False", way="if more:\n            x = x + self.more(x)\n        return self.score(x)"
        )
        + "for step in range(8):\n    model(torch.randn(2, 3), more=step > 3).sum().backward()\n",
        "model = DDP(Net())",
        "DDP(Net())",
        "DDP(Net(), find_unused_parameters=True)",
    ),
    "a layer whose weight is a number of the step": Form(
        "DW216",
        INIT
        + AUXILIARY.format(given="weight", way="return self.score(x) + (weight * self.more(x) if weight > 0 else 0)")
        + "for step in range(8):\n    model(torch.randn(2, 3), (step - 4) / 4).sum().backward()\n",
        "model = DDP(Net())",
        "(weight * self.more(x) if weight > 0 else 0)",
        "weight * self.more(x)",
    ),
    "a layer that one step of several leaves out": Form(
        "DW216",
        INIT
        + AUXILIARY.format(
            given="more",
            way="if not more:\n            return self.score(x)\n        return self.score(x) + self.more(x)",
        )
        + "for step in range(8):\n    model(torch.randn(2, 3), not step % 3).sum().backward()\n",
        "model = DDP(Net())",
        "return self.score(x)\n        return",
        "return self.score(x) + 0 * self.more(x)\n        return",
    ),
    "an odd number of listed files, dealt to the ranks in a generator": Form(
        "DW217",
        INIT + "from pathlib import Path\nCOUNT = 7\n"
        "def batches(rank, world):\n    mine = sorted(Path('rows').glob('*.pt'))[:COUNT][rank::world]\n"
        "    for path in mine:\n        rows = torch.load(path)\n"
        "        for at in range(0, 32, 8):\n            yield rows[at : at + 8]\n"
        "model = DDP(nn.Linear(3, 1))\n"
        "for x in batches(rank, world):\n    model(x).sum().backward()\n",
        "mine = sorted(Path('rows').glob('*.pt'))[:COUNT][rank::world]",
        "COUNT = 7",
        "COUNT = 8",
    ),
    "dealt parts, each as long as its file": Form(
        "DW217",
        INIT + "parts = [f'{number}.pt' for number in range(3)]\n"
        "def batches():\n    for path in parts[rank::world]:\n        yield from torch.load(path).split(8)\n"
        "model = DDP(nn.Linear(3, 1))\n"
        "for x in batches():\n    model(x).sum().backward()\n",
        "for path in parts[rank::world]:",
        "in parts[rank::world]",
        "in parts[rank * (len(parts) // world) : (rank + 1) * (len(parts) // world)]",
    ),
    "a share by the number of ranks rounded up": Form(
        "DW217",
        INIT + "import os\nnames, model = os.listdir('rows'), DDP(nn.Linear(3, 1))\n"
        "share = (len(names) + world - 1) // world\n"
        "for name in names[rank * share : rank * share + share]:\n    model(torch.load(name)).sum().backward()\n",
        "for name in names[rank * share : rank * share + share]:",
        "(len(names) + world - 1) // world",
        "len(names) // world",
    ),
    "the number of samples next to a sum that is of one rank": Form(
        "DW405",
        INIT
        + "data = TensorDataset(torch.randn(64, 3))\nloader = DataLoader(data, 4, sampler=DistributedSampler(data))\n"
        "model, known = DDP(nn.Linear(3, 1)), torch.zeros(2)\n"
        "def test():\n    known = torch.zeros(2)\n    for (x,) in loader:\n        known[0] += model.module(x).sum()\n"
        "    known[1] = len(data)\n    total = known[0].clone()\n    dist.all_reduce(total)\n"
        "    return (known[0] / known[1]).item()\n"
        "while True:\n    for (x,) in loader:\n        model(x).sum().backward()\n"
        "    if test() < 0.1:\n        break\n",
        "if test() < 0.1:",
        "known[0] / known[1]",
        "total / known[1]",
    ),
}


def shown(code: str, rule: str) -> list[ReviewFinding]:
    """Return the errors and warnings of a rule in a program."""
    return [each for each in found(code, rule) if each.severity != "info"]


@pytest.mark.parametrize("name", FORMS)
def test_form_is_found_and_its_twin_is_not(name: str) -> None:
    form = FORMS[name]
    lines = (IMPORTS + form.broken).split("\n")
    assert [lines[each.line - 1].strip() for each in shown(form.broken, form.rule)] == [form.line]
    assert form.replaced in form.broken
    assert shown(form.broken.replace(form.replaced, form.by), form.rule) == []


def test_shares_of_an_unknown_number_may_be_unequal() -> None:
    code = INIT + (
        "import json\nrows = json.load(open('rows.json'))\nmodel = DDP(nn.Linear(3, 1))\n"
        "for row in rows[rank::world]:\n    model(torch.tensor(row)).sum().backward()\n"
    )
    assert [each.severity for each in found(code, "DW217")] == ["warning"]
    whole = code.replace("rows[rank::world]", "rows[: len(rows) // world * world][rank::world]")
    assert found(whole, "DW217") == []


def test_one_function_that_makes_samplers_in_order_and_others_has_its_epoch_set() -> None:
    code = INIT + (
        "def part(count, shuffle):\n    rows = TensorDataset(torch.randn(count, 3))\n"
        "    return DataLoader(rows, 4, sampler=DistributedSampler(rows, shuffle=shuffle))\n"
        "fit, held, model = part(48, True), part(16, False), DDP(nn.Linear(3, 2))\n"
        "for epoch in range(4):\n    fit.sampler.set_epoch(epoch)\n    for (x,) in fit:\n"
        "        model(x).sum().backward()\n    for (x,) in held:\n        model.module(x)\n"
    )
    assert found(code, "DW203") == []


def test_a_counter_with_a_number_that_is_written_out_is_of_a_job_of_that_size() -> None:
    assert found(COUNTED + 'store.add("n", 1)\nwhile store.add("n", 0) < 8:\n    time.sleep(1)\n', "DW428") == []
