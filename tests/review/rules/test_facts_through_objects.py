"""Facts that reach a call through objects, decorators, helpers and loops, and programs that look alike but run."""

import pytest
from helpers.review_snippets import found, lines

START = """
from collections import deque
from dataclasses import dataclass
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, Subset
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
draw = torch.Generator().manual_seed(rank)
"""
STEPPED = """
class Schedule:
    def __init__(self):
        self.size = 4
    def rounds(self):
        return ROUNDS
    def grow(self, value):
        GROW
schedule = Schedule()
for epoch in range(9):
    for _ in LOOP:
        dist.all_reduce(torch.ones(1))
    value = VALUE
    schedule.grow(value)
"""
LOCAL_LOSS = "torch.rand(1, generator=draw).item()"
IF_LARGE = "if value > 0.5:\n            self.size = self.size + 2"
GROUPS = """
@dataclass
class Layout:
    parts: int
    def __post_init__(self):
        size = world // self.parts
        self.ranks = [list(range(n * size, (n + 1) * size)) for n in range(self.parts)]
        self.groups = [dist.new_group(each) for each in self.ranks]
        self.mine = rank // size
    @property
    def group(self):
        return self.groups[self.mine]
    def root(self):
        return ROOT
layout = Layout(2)
value = torch.ones(1)
dist.broadcast(value, src=layout.root(), group=layout.group)
"""
JOINED = """
class Total:
    def __init__(self):
        self.sum = torch.zeros(1)
    def add(self, loss):
        INSIDE
        self.sum += loss
    def value(self):
        BEHIND
        return self.sum.item()
def train(model, batches, total):
    with Join([model]OPTIONS):
        for batch in batches:
            loss = model(batch).sum()
            loss.backward()
            total.add(loss.detach())
    return total.value()
total = Total()
train(DDP(nn.Linear(2, 2)), [torch.ones(2)] * (rank + 3), total)
"""
RETRIED = """
import time
def retry(times):
    def decorate(function):
        def again(*given):
            for attempt in range(times):
                try:
                    return function(*given)
                except OSError:
                    if attempt + 1 == times:
                        raise
                    time.sleep(1)
        return again
    return decorate
READ
def read(name):
    return torch.load(name)
MEASURE
def measure(names):
    for name in names:
        value = read(name).sum()
        dist.all_reduce(value)
measure(["a.pt", "b.pt"])
dist.barrier()
"""
PENDING = """
class Reducer:
    def __init__(self, sizes):
        self.sizes = sizes
        self.memory = MEMORY
    def pack(self, part, size):
        part.fill_(size)
        return part
    def reduce(self):
        pending = []
        for n, size in enumerate(self.sizes):
            flat = self.pack(PART, size)
            handle = dist.all_reduce(flat, async_op=True)
            IN_ROUND
            pending.append((handle, flat))
        for handle, flat in pending:
            handle.wait()
Reducer([3, 4]).reduce()
"""
SHARDS = """
model = nn.Linear(4, 4)
fully_shard(model)
def part(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
class Clip:
    def norm(self, params):
        squares = sum(part(p.grad).pow(2).sum() for p in params)
        REDUCE
        return squares.sqrt()
    def __call__(self, params):
        norm = self.norm(params)
        factor = (1.0 / (norm + 1e-6)).clamp(max=1.0)
        for p in params:
            part(p.grad).mul_(factor)
model(torch.ones(4)).sum().backward()
Clip()(list(model.parameters()))
"""
HOOK = """
def hook(state, bucket):
    sent = bucket.buffer()DIVIDED.to(torch.bfloat16)
    state["bytes"] += sent.numel() * sent.element_size()
    future = dist.all_reduce(sent, async_op=True).get_future()
    return future.then(lambda done: bucket.buffer().copy_(done.value()[0]))
model = DDP(nn.Linear(2, 2))
model.register_comm_hook({"bytes": 0}, hook)
model(torch.ones(2)).sum().backward()
"""
MOMENTS = """
def over_ranks(value):
    value = value.clone()
    dist.all_reduce(value)
    return value / dist.get_world_size()
class Norm(nn.Module):
    def forward(self, x):
        mean, second = over_ranks(torch.stack([x.mean(0), SECOND]))
        return (x - mean) / (VARIANCE + 1e-5).sqrt()
Norm()(torch.randn(8, 4, generator=draw))
"""
MESH = """
class Sizes:
    def __init__(self):
        self.dp, self.tp = world // 2, 2
    def mesh(self):
        tp_size = self.tp
        return init_device_mesh("cpu", SHAPE, mesh_dim_names=NAMES)
Sizes().mesh()
"""
EXCHANGE = """
def send(rows, target):
    counts = torch.bincount(target, minlength=world)
    EXPECTED
    out = rows.new_empty(sum(expected.tolist()))
    dist.all_to_all_single(out, rows, expected.tolist(), counts.tolist())
target = torch.randint(0, world, (8,), generator=draw)
send(torch.ones(8), target)
"""
SUMS = """
class Codes(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("counts", torch.ones(4))
        self.register_buffer("sums", torch.ones(4))
        self.seen = 0
    def update(self, x, hot):
        counts, sums = hot.sum(0), hot.t() @ x
        REDUCE
        FOLD
Codes().update(torch.ones(2, 4), torch.ones(2, 4))
"""
AVERAGED = """
class Average:
    def __init__(self, model):
        self.kept = {name: p.detach().clone() for name, p in model.named_parameters()}
    def follow(self, model):
        for name, p in model.named_parameters():
            self.kept[name].mul_(0.9).add_(p.detach(), alpha=0.1)
    def give(self, model):
        for name, p in model.named_parameters():
            p.data.copy_(self.kept[name])
net = nn.Linear(2, 2)
model, average = DDP(net), Average(net)
for step in range(9):
    model(torch.ones(2)).sum().backward()
    if FOLLOWS:
        average.follow(net)
if GIVES:
    average.give(net)
"""
SKIPPED = """
import random
random.seed(SEED)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(4))
    def forward(self, x):
        for layer in self.layers:
            SKIP
        return x
net = Net()
net(torch.ones(2)).sum().backward()
for p in net.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad)
"""
MODE = """
net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
class Preview:
    def __init__(self, model, every):
        self.model, self.every = model, every
    def show(self, step):
        if step % self.every or rank != 0:
            return
        was = self.model.training
        self.model.eval()
        print(self.model(torch.ones(2)))
        AFTER
preview = Preview(net, 4)
net.train()
for step in range(9):
    net(torch.ones(2)).sum().backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    preview.show(step)
"""
STOPS = """
class Stopping:
    def __init__(self):
        self.best, self.waits, self.stop = 9.0, 0, False
    def see(self, value):
        self.waits = 0 if value < self.best else self.waits + 1
        if self.waits > 2:
            self.stop = True
def measure(model, loader):
    total = torch.zeros(2)
    for x in loader:
        total += torch.tensor([model(x).sum().item(), len(x)])
    SHARE
    return (total[0] / total[1]).item()
model, stopping = DDP(nn.Linear(2, 2)), Stopping()
data = torch.randn(64, 2)
for epoch in range(9):
    model(torch.ones(2)).sum().backward()
    stopping.see(measure(model.module, DataLoader(data, 8, sampler=DistributedSampler(data))))
    if stopping.stop:
        break
"""


def filled(template: str, **texts: str) -> str:
    for name, text in texts.items():
        template = template.replace(name, text)
    return START + template


def stepped(grow: str = IF_LARGE, *, value: str = LOCAL_LOSS, loop: str = "range(schedule.rounds())") -> str:
    return filled(STEPPED, ROUNDS="self.size", GROW=grow, LOOP=loop, VALUE=value)


def skipped(seed: str, skip: str) -> str:
    return filled(SKIPPED, SEED=seed, SKIP=skip)


GOES_ON = "if random.random() < 0.5:\n                continue\n            x = layer(x)"
TAKES = "if random.random() < 0.5:\n                x = layer(x)"
SUBSET = "DataLoader(Subset(range(99), list(range(99))[:schedule.rounds()]), 2, sampler=None)"
COPY, RECEIVED = (
    "expected = counts.clone()",
    "expected = torch.empty_like(counts)\n    dist.all_to_all_single(expected, counts)",
)
IN_PLACE = "self.counts.mul_(0.9).add_(counts)\n        self.sums.mul_(0.9).add_(sums)"
ASSIGNED = "self.counts = self.counts * 0.9 + counts\n        self.sums = self.sums * 0.9 + sums"
REDUCES_ALL = "dist.all_reduce(counts)\n        dist.all_reduce(sums)"

FOUND = {
    "a number that the losses of a rank step": ("DW405", stepped()),
    "a number that goes back by them": (
        "DW405",
        stepped("self.size = self.size - 1 if value > 0.5 else self.size + 1"),
    ),
    "a part of the data as long as that number": ("DW405", stepped(loop="list(range(99))[:schedule.rounds()]")),
    "a data set as long as that": ("DW405", stepped(loop=SUBSET)),
    "a mean of losses that stops the epochs": ("DW405", filled(STOPS, SHARE="pass")),
    "a root for all groups, in an object that a dataclass finishes": ("DW416", filled(GROUPS, ROOT="0")),
    "a sum behind a call in a loop of Join": (
        "DW257",
        filled(JOINED, INSIDE="dist.all_reduce(loss)", BEHIND="pass", OPTIONS=""),
    ),
    "a barrier there": ("DW257", filled(JOINED, INSIDE="dist.barrier()", BEHIND="pass", OPTIONS="")),
    "a retry around a function with a collective": ("DW411", filled(RETRIED, READ="", MEASURE="@retry(3)")),
    "sums that begin in one memory": (
        "DW415",
        filled(PENDING, MEMORY="torch.empty(4)", PART="self.memory[:size]", IN_ROUND="pass"),
    ),
    "a norm of shards from a method": ("DW303", filled(SHARDS, REDUCE="pass")),
    "a hook that counts what it sends": ("DW262", filled(HOOK, DIVIDED="")),
    "a mean of variances through a helper": (
        "DW444",
        filled(MOMENTS, SECOND="x.var(0, unbiased=False)", VARIANCE="second"),
    ),
    "exchanged sizes": ("DW489", filled(MESH, SHAPE="(self.tp, self.dp)", NAMES='("dp", "tp")')),
    "a size by its name at another place": ("DW489", filled(MESH, SHAPE="(tp_size, world // 2)", NAMES='("dp", "tp")')),
    "exchanged names": ("DW489", filled(MESH, SHAPE="[self.dp, self.tp]", NAMES='["tp", "dp"]')),
    "own counts for what comes": ("DW490", filled(EXCHANGE, EXPECTED=COPY)),
    "the same counts": ("DW490", filled(EXCHANGE, EXPECTED="expected = counts")),
    "sums of which one is reduced": ("DW486", filled(SUMS, REDUCE="dist.all_reduce(counts)", FOLD=IN_PLACE)),
    "sums that are assigned": ("DW486", filled(SUMS, REDUCE="dist.all_reduce(counts)", FOLD=ASSIGNED)),
    "weights that one rank averages": ("DW256", filled(AVERAGED, FOLLOWS="rank == 0", GIVES="True")),
    "layers that a rank leaves out": ("DW447", skipped("1 + rank", GOES_ON)),
    "layers that a rank takes": ("DW447", skipped("1 + rank", TAKES)),
    "a mode that one rank leaves": ("DW238", filled(MODE, AFTER="pass")),
}
SILENT = {
    "a number that the mean steps": ("DW405", stepped(value="torch.ones(1)")),
    "a number that time does not step": ("DW405", stepped("self.size = self.size + 2")),
    "a mean of all ranks that stops them": ("DW405", filled(STOPS, SHARE="dist.all_reduce(total)")),
    "the root of each group": ("DW416", filled(GROUPS, ROOT="self.ranks[self.mine][0]")),
    "a sum behind the loop": (
        "DW257",
        filled(JOINED, INSIDE="pass", BEHIND="dist.all_reduce(self.sum)", OPTIONS=""),
    ),
    "a context that ends for all": (
        "DW257",
        filled(JOINED, INSIDE="dist.all_reduce(loss)", BEHIND="pass", OPTIONS=", throw_on_early_termination=True"),
    ),
    "a retry around what does not communicate": ("DW411", filled(RETRIED, READ="@retry(3)", MEASURE="")),
    "a memory for each": (
        "DW415",
        filled(PENDING, MEMORY="[torch.empty(size) for size in sizes]", PART="self.memory[n]", IN_ROUND="pass"),
    ),
    "a new one in each round": (
        "DW415",
        filled(PENDING, MEMORY="None", PART="torch.empty(size)", IN_ROUND="pass"),
    ),
    "one memory, waited for in each round": (
        "DW415",
        filled(PENDING, MEMORY="torch.empty(4)", PART="self.memory[:size]", IN_ROUND="handle.wait()"),
    ),
    "a norm of all shards": ("DW303", filled(SHARDS, REDUCE="dist.all_reduce(squares)")),
    "a hook that takes the mean": ("DW262", filled(HOOK, DIVIDED=".div(world)")),
    "a mean of squares": ("DW444", filled(MOMENTS, SECOND="x.pow(2).mean(0)", VARIANCE="second - mean ** 2")),
    "a mean of variances with the spread of the means": (
        "DW444",
        filled(MOMENTS, SECOND="x.var(0)", VARIANCE="second + over_ranks((x.mean(0) - mean) ** 2)"),
    ),
    "sizes in the order of the names": ("DW489", filled(MESH, SHAPE="(self.dp, self.tp)", NAMES='("dp", "tp")')),
    "sizes with other names": ("DW489", filled(MESH, SHAPE="(world // 2, tp_size)", NAMES='("replicas", "shards")')),
    "counts that the others have sent": ("DW490", filled(EXCHANGE, EXPECTED=RECEIVED)),
    "counts that are the same on all": (
        "DW490",
        filled(EXCHANGE, EXPECTED="expected = counts = torch.tensor([8 // world] * world)"),
    ),
    "sums that are all reduced": ("DW486", filled(SUMS, REDUCE=REDUCES_ALL, FOLD=IN_PLACE)),
    "a number of this rank that is no state": (
        "DW486",
        filled(SUMS, REDUCE="dist.all_reduce(counts)", FOLD="self.counts += counts\n        self.seen += len(x)"),
    ),
    "weights that all average": ("DW256", filled(AVERAGED, FOLLOWS="True", GIVES="True")),
    "weights that one rank averages and takes": ("DW256", filled(AVERAGED, FOLLOWS="rank == 0", GIVES="rank == 0")),
    "layers that all leave out": ("DW447", skipped("1", GOES_ON)),
    "a mode that is taken back": ("DW238", filled(MODE, AFTER="self.model.train(was)")),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_goes_wrong_is_found(name: str) -> None:
    rule, code = FOUND[name]
    assert [each.severity for each in found(code, rule) if each.severity != "info"]


@pytest.mark.parametrize("name", SILENT)
def test_what_looks_alike_is_not(name: str) -> None:
    rule, code = SILENT[name]
    assert [each.message for each in found(code, rule) if each.severity != "info"] == []


def test_a_value_of_one_rank_is_shown_where_it_is_passed_on() -> None:
    code = """
    class Rates:
        def __init__(self, opt):
            self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt)
        def epoch(self, value):
            self.plateau.step(value)
    model = DDP(nn.Linear(2, 2))
    rates = Rates(torch.optim.SGD(model.parameters()))
    for _ in range(9):
        loss = model(torch.randn(2, generator=draw)).sum()
        loss.backward()
        rates.epoch(loss.item())
    """.replace("\n    ", "\n")
    assert lines(START + code, "DW226") == ["rates.epoch(loss.item())"]
