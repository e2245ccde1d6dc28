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
todo = [i for i in range(9) if i % world == rank]
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
    if rank == 1 and i == 1:
        raise ValueError
for i in range(3):
    try:
        work(i)
        dist.all_reduce(torch.ones(1))
    except ValueError:
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
    "two calls deep": """\
def wait():
    dist.barrier()
def checkpoint():
    wait()
def main():
    if rank == 0:
        checkpoint()
main()
""",
    "else branch": """\
if rank == 1:
    print("last")
else:
    dist.barrier()
""",
    "early return in function": """\
def save(x):
    if rank != 0:
        return
    print(x)
    dist.barrier()
save(1)
""",
    "break by rank": """\
for i in range(5):
    if rank == 1 and i == 3:
        break
    dist.all_reduce(torch.ones(1))
""",
    "and": """\
rank == 0 and dist.barrier()
""",
    "conditional expression": """\
x = dist.all_reduce(torch.ones(1)) if rank == 0 else None
""",
    "comprehension by rank": """\
y = [dist.all_reduce(torch.ones(1)) for _ in range(1 + rank)]
""",
    "environment": """\
if os.environ["RANK"] == "0":
    dist.barrier()
""",
    "negated flag": """\
is_main = rank == 0
if not is_main:
    dist.all_reduce(torch.ones(1))
""",
    "kept in a tuple": """\
def info():
    return dist.get_rank(), dist.get_world_size()
r, n = info()
if r < n - 1:
    dist.barrier()
""",
    "elements selected": """\
def mean_of_positive(values):
    kept = values[values > 0]
    if kept.numel() == 0:
        return torch.zeros(1)
    total = kept.sum()
    dist.all_reduce(total)
    return total
print(mean_of_positive(torch.arange(4.0) - 9 * rank))
""",
    "found before break": """\
def first_above(values, limit):
    found = None
    for value in values:
        if value > limit:
            found = value
            break
    if found is None:
        return
    if rank == 0:
        dist.barrier()
first_above([1, 5], 3)
""",
    "default of a call": """\
def finish(wait=True):
    if wait and rank == 0:
        dist.barrier()
finish()
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
open("x", "a").close()
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
    "type of the device": """\
device = torch.device("cpu", 0) if rank == 0 else torch.device("cpu", rank)
if device.type == "cpu":
    dist.all_reduce(torch.ones(1))
else:
    dist.barrier()
""",
    "flag in a tuple": """\
def info():
    if "RANK" in os.environ:
        return True, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return False, 0, 1
ddp, r, n = info()
if ddp:
    dist.barrier()
""",
    "filled by a function": """\
def share(values):
    dist.broadcast_object_list(values, 0)
values = [rank == 0]
share(values)
if values[0]:
    dist.barrier()
""",
    "first by a property": """\
class State:
    def __init__(self):
        self.index, self.count = dist.get_rank(), dist.get_world_size()
        self.kind = os.environ.get("KIND", "plain")
    @property
    def is_main(self):
        return self.index == 0 if self.kind != "pipeline" else self.index == self.count - 1
    def wait(self):
        dist.barrier()
def in_turn(state, first):
    if not first:
        state.wait()
    print("work")
    if first:
        state.wait()
state = State()
in_turn(state, state.is_main)
""",
    "same flag later": """\
synchronised = os.environ.get("SYNCHRONISED") == "1"
def evaluate():
    if not synchronised and rank != 0:
        return 0
    if synchronised:
        dist.barrier()
    return 1
evaluate()
""",
    "flag of the arguments": """\
class Options:
    fsdp = False
def finish(args):
    if getattr(args, "fsdp", False):
        dist.barrier()
def evaluate(args):
    if not getattr(args, "fsdp", False) and rank != 0:
        return
    finish(args)
evaluate(Options())
""",
    "length of a batch": """\
for x in DataLoader(data, batch_size=2, sampler=DistributedSampler(data)):
    for i in range(0, len(x), 2):
        dist.all_reduce(torch.ones(1))
""",
    "shared out evenly": """\
count = ((len(data) - 1) // (2 * world) + 1) * world
parts = torch.arange(10).tensor_split(count)
for part in parts[rank::world]:
    dist.barrier()
""",
    "values of a dictionary": """\
model = torch.nn.Linear(2, 2)
for x in DataLoader(data, sampler=DistributedSampler(data)):
    losses = {"sum": model(x).sum().detach()}
    for value in losses.values():
        dist.all_reduce(value)
""",
    "nothing to do": """\
def prepare(x):
    return x if x is not None else None
for x in DataLoader(data, sampler=DistributedSampler(data)):
    batch = prepare(x)
    if batch is None:
        continue
    dist.all_reduce(batch)
""",
    "chosen by rank": """\
if rank == 0:
    names = sorted(["a", "b"])
else:
    names = list("xy")
for name in names:
    dist.barrier()
""",
    "playing card": """\
class Card:
    def __init__(self, rank):
        self.rank = rank
card = Card(3)
if card.rank == 3:
    dist.barrier()
""",
    "print on rank 0": """\
x = torch.ones(1)
dist.all_reduce(x)
if rank == 0:
    print(x)
""",
    "work on rank 0": """\
def prepare():
    if rank == 0:
        open("cache", "w").close()
    dist.barrier()
prepare()
""",
    "one rank after the other": """\
for turn in range(world):
    if turn == rank:
        print("my turn")
    dist.barrier()
""",
    "rank as an argument": """\
def send(x, rank):
    dist.broadcast(x, rank)
for source in range(world):
    send(torch.ones(1), source)
""",
    "stopped together": """\
for step in range(10):
    bad = torch.tensor(float(step == 3 + rank))
    dist.all_reduce(bad)
    if bad.item() > 0:
        break
    dist.barrier()
""",
    "result given by name": """\
flag = torch.tensor(float(rank == 0))
dist.broadcast(tensor=flag, src=0)
if flag.item() > 0:
    dist.barrier()
""",
    "agreed on with more than one rank": """\
def agreed(x, number):
    flag = torch.tensor(float(rank == 0))
    if number > 1:
        dist.broadcast(flag, 0)
    return flag.item() > 0
if agreed(torch.ones(1), len(sys.argv) + 1):
    dist.barrier()
""",
    "names of losses": """\
losses = {"total": torch.tensor(float(rank)), "weight": torch.ones(1)}
def show(model, train_loader):
    for batch in train_loader:
        for name, value in model(batch).items():
            if name == "total":
                dist.all_reduce(value)
show(lambda batch: {**losses, "total": batch.sum()}, DataLoader(data, sampler=DistributedSampler(data)))
""",
    "group made by a function": """\
_GROUP = None
def make_groups():
    global _GROUP
    for each in range(world):
        group = dist.new_group([each])
        if each == rank:
            _GROUP = group
def own_group():
    return _GROUP
make_groups()
if rank == 0:
    dist.all_reduce(torch.ones(1), group=own_group())
""",
    "exit and collective exclude each other": """\
def collected(part, only_first):
    dist.barrier()
    if only_first and rank != 0:
        return None
    if not only_first:
        dist.barrier()
    return part
collected(1, True)
collected(1, False)
""",
    "flag among many arguments": """\
def save(name, wait):
    open(os.devnull, "w").close()
    if wait:
        dist.barrier()
for _ in range(2):
    save("model", True)
    save("optimizer", True)
    save("scheduler", True)
    save("scaler", True)
if rank == 0:
    save("a", False)
    save("b", False)
    save("c", False)
    save("d", False)
    save("e", False)
""",
    "sum that some models have": """\
def step(batches, auxiliary):
    extra = torch.zeros(1) if auxiliary else None
    for batch in batches:
        if extra is not None:
            extra += batch.sum()
    if extra is not None:
        dist.all_reduce(extra)
train_loader = DataLoader(data, sampler=DistributedSampler(data))
step(train_loader, True)
step(train_loader, False)
""",
    "error on every rank": """\
try:
    import horovod_that_is_not_installed
except ImportError:
    dist.barrier()
""",
    "elements of a sum selected": """\
values = torch.arange(4.0) - 9 * rank
dist.all_reduce(values)
kept = values[values > 0]
if kept.numel() > 0:
    dist.all_reduce(torch.ones(1))
""",
    "size of a batch": """\
loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data))
for batch in loader:
    for start in range(0, batch.size(0), 1):
        dist.all_reduce(batch[start : start + 1])
""",
    "found before break on all": """\
def first_above(values, limit):
    found = None
    for value in values:
        if value > limit:
            found = value
            break
    if found is not None:
        dist.barrier()
first_above([1, 5], 3)
""",
    "default that keeps out": """\
def finish(wait=False):
    if wait and rank == 0:
        dist.barrier()
finish()
""",
    "unwrapped where there are several": """\
model = DDP(torch.nn.BatchNorm1d(2)).eval()
if world > 1:
    model = model.module
if rank == 0:
    with torch.no_grad():
        model(torch.ones(2, 2))
""",
}


def source(code: str) -> str:
    """Return a program as a script."""
    return HEADER + code
