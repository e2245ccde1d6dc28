"""Small programs for two ranks over gloo: some diverge, the others look alike and run."""

HEADER = """\
import os, random, sys
from datetime import timedelta
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("gloo", timeout=timedelta(seconds=6))
rank = dist.get_rank()
world = dist.get_world_size()
data = [torch.full((2,), float(i)) for i in range(10)]
"""

DIVERGING = {  # programs that hang, crash, or lose a rank
    "exit": """\
if rank == 1:
    sys.exit(0)
dist.barrier()
""",
    "swap": """\
x = torch.ones(1)
if rank == 0:
    dist.all_reduce(x)
    dist.barrier()
else:
    dist.barrier()
    dist.all_reduce(x)
""",
    "patience": """\
def train(model, loader):
    best, bad = 1e9, 0
    for epoch in range(10):
        total = 0.0
        for x in loader:
            loss = model(x).sum()
            loss.backward()
            total += loss.item() - epoch * rank
        if total < best:
            best, bad = total, 0
        else:
            bad += 1
        if bad > 2:
            break
        dist.barrier()
model = torch.nn.Linear(2, 2)
train(model, DataLoader(data, sampler=DistributedSampler(data)))
""",
    "ddp one rank": """\
model = DDP(torch.nn.Linear(2, 2))
x = torch.ones(1, 2)
out = model(x).sum()
if rank == 0:
    out.backward()
""",
    "ddp step in function": """\
def step(m, x):
    m(x).sum().backward()
model = DDP(torch.nn.Linear(2, 2))
if rank == 0:
    step(model, torch.ones(1, 2))
""",
    "uneven": """\
model = DDP(torch.nn.Linear(2, 2))
data = list(range(11))[rank::world]
for each in data:
    model(torch.ones(1, 2)).sum().backward()
""",
    "rounds by rank": """\
for i in range(rank + 1):
    dist.all_reduce(torch.ones(1))
""",
    "local loss decides": """\
model = DDP(torch.nn.Linear(2, 2))
for x in DataLoader(data, sampler=DistributedSampler(data)):
    loss = model(x).sum()
    if loss.item() > loss.item() + x.sum().item() - 9:
        continue
    loss.backward()
""",
    "nan skip with all_reduce": """\
model = DDP(torch.nn.Linear(2, 2))
for x in DataLoader(data, sampler=DistributedSampler(data)):
    loss = model(x).sum() + (float("nan") if x.sum() == 8 else 0)
    if torch.isnan(loss):
        continue
    dist.all_reduce(loss)
""",
    "decorator": """\
import functools
def main_only(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        if dist.get_rank() == 0:
            return f(*args, **kwargs)
    return inner
@main_only
def report(x):
    dist.all_reduce(x)
report(torch.ones(1))
""",
    "alias": """\
r = dist.all_reduce
if rank == 0:
    r(torch.ones(1))
""",
    "group of all": """\
g = dist.new_group(list(range(world)))
if rank == 0:
    dist.all_reduce(torch.ones(1), group=g)
""",
    "match": """\
match rank:
    case 0:
        dist.barrier()
    case _:
        pass
""",
    "callbacks": """\
class A:
    def __call__(self, x):
        dist.all_reduce(x)
def log(x):
    print(x)
cbs = [A(), log]
if rank == 0:
    for cb in cbs:
        cb(torch.ones(1))
""",
    "caught above": """\
def load():
    if rank == 0:
        raise ValueError("x")
    dist.barrier()
try:
    load()
except ValueError:
    print("ignored")
dist.all_reduce(torch.ones(1))
""",
    "while local list": """\
todo = [i for i in range(10) if i % world == rank]
while todo:
    todo.pop()
    dist.barrier()
""",
    "method chain": """\
class T:
    def __init__(self):
        self.main = dist.get_rank() == 0
    def a(self):
        self.b()
    def b(self):
        dist.barrier()
    def run(self):
        if self.main:
            self.a()
T().run()
""",
    "return in eval": """\
def evaluate(x):
    if dist.get_rank() != 0:
        return None
    y = x * 2
    return y
def gathered(x):
    v = evaluate(x)
    if v is None:
        return
    dist.all_reduce(v)
gathered(torch.ones(1))
""",
    "file exists": """\
path = f"part{rank}.pt"
if rank == 0:
    torch.save(torch.ones(1), path)
if os.path.exists(path):
    x = torch.load(path)
    dist.all_reduce(x)
""",
    "swallow": """\
def work(i):
    if i == rank:
        raise RuntimeError
for i in range(3):
    try:
        work(i)
        dist.all_reduce(torch.ones(1))
    except RuntimeError:
        continue
""",
    "gather only on main": """\
def metrics(v):
    out = [None] * world
    dist.all_gather_object(out, v)
    return out
class Logger:
    def __init__(self, rank):
        self.rank = rank
    def log(self, v):
        if self.rank != 0:
            return
        print(metrics(v))
Logger(rank).log(3)
""",
}

SAME = {  # programs that run
    "leader worker": """\
sig = torch.zeros(1)
if rank == 0:
    for i in range(10):
        dist.broadcast(sig, 0)
    sig.fill_(1)
    dist.broadcast(sig, 0)
else:
    while True:
        dist.broadcast(sig, 0)
        if sig.item() == 1:
            break
""",
    "matrix rank": """\
m = torch.ones(2, 2)
rank = int(torch.linalg.matrix_rank(m))
if rank == 1:
    dist.barrier()
""",
    "patience reduced": """\
def train(model, loader):
    best, bad = 1e9, 0
    for epoch in range(10):
        total = torch.zeros(1)
        for x in loader:
            loss = model(x).sum()
            loss.backward()
            total += loss.detach()
        dist.all_reduce(total)
        if total.item() < best:
            best, bad = total.item(), 0
        else:
            bad += 1
        if bad > 2:
            break
        dist.barrier()
model = DDP(torch.nn.Linear(2, 2))
train(model, DataLoader(data, sampler=DistributedSampler(data)))
""",
    "stop broadcast": """\
stop = torch.zeros(1)
for epoch in range(10):
    if rank == 0 and random.random() < .1:
        stop += 1
    dist.broadcast(stop, 0)
    if stop.item():
        break
    dist.barrier()
""",
    "complementary": """\
if rank != 0:
    dist.barrier()
data = 1
if rank == 0:
    dist.barrier()
""",
    "raise main": """\
if rank == 0 and not os.path.exists("x"):
    raise SystemExit("no")
dist.barrier()
""",
    "save then barrier": """\
model = DDP(torch.nn.Linear(2, 2))
if rank == 0:
    torch.save(model.module.state_dict(), "x")
dist.barrier()
""",
    "eval unwrapped": """\
model = DDP(torch.nn.Linear(2, 2))
raw = model.module
def evaluate(m):
    return m(torch.ones(1, 2))
if rank == 0:
    with torch.no_grad():
        evaluate(raw)
""",
    "same both": """\
o = [None]
if rank == 0:
    o = [1]
    dist.broadcast_object_list(o, 0)
else:
    dist.broadcast_object_list(o, 0)
""",
    "group members": """\
g = dist.new_group([0])
if rank == 0:
    dist.all_reduce(torch.ones(1), group=g)
""",
    "steps": """\
model = DDP(torch.nn.Linear(2, 2))
loader = DataLoader(data, sampler=DistributedSampler(data, shuffle=True))
opt = torch.optim.SGD(model.parameters(), lr=.1)
for epoch in range(3):
    for step, x in enumerate(loader):
        loss = model(x).sum() / 2
        loss.backward()
        if (step + 1) % 2 == 0:
            opt.step()
        if step % 10 == 0 and rank == 0:
            print(loss.item())
        if step > 100:
            break
""",
    "join": """\
model = DDP(torch.nn.Linear(2, 2))
with model.join():
    for x in list(range(11))[rank::world]:
        model(torch.ones(1, 2)).sum().backward()
""",
    "decorator own raw": """\
def main_only(f):
    def inner(*a):
        if rank == 0:
            return f(*a)
    return inner
@main_only
def say(x):
    print(x)
say(1)
dist.barrier()
""",
}


def source(code: str) -> str:
    """Return a program as a script."""
    return HEADER + code
