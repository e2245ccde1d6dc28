"""Causes in the order of steps, in results and in parts of streams, each with programs that look alike."""

import pytest
from helpers.review_snippets import lines

START = """
import contextlib
import itertools
import random
import signal
from accelerate import Accelerator
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset, get_worker_info
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
"""
GUARDED = (
    START
    + """
def any_rank(flag):
    t = torch.tensor(float(flag))
    dist.all_reduce(t)
    return t.item() > 0
for x in DataLoader(TensorDataset(torch.randn(8, 2)), sampler=DistributedSampler([1, 2])):
    bad = not torch.isfinite(x).all().item()
    if TEST:
        break
"""
)
NAMED = (
    START
    + """
def from_first(name):
    box = [name if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    return box[0]
def shared_mean(t):
    MADE
    dist.all_reduce(t)
    t /= world
    return t
name = str(random.random())
value = torch.randn(1)
CALL
"""
)
LEFT = (
    START
    + """
def fit(first, total):
    sampler = DistributedSampler(data)
    for LOOP:
        sampler.set_epoch(EPOCH)
fit(load(), 9)
"""
)
SHIPPED = (
    START
    + """
class Actor:
    def __init__(self):
        self.stage = torch.empty(4)
        self.pending = []
    def ship(self, rows):
        BEFORE
        FILL
        self.pending.append(dist.isend(self.stage, dst=0))
actor = Actor()
for step in range(4):
    if rank == 1:
        actor.ship(load())
"""
)
TALKED = (
    START
    + """
class History:
    def __init__(self):
        self.rows = []
    def record(self, row):
        self.rows.append(row)
        EACH
    def exchange(self):
        parts = [None] * world
        dist.all_gather_object(parts, self.rows)
        AFTER
history = History()
for step in range(9):
    history.record(step)
    BEHIND
"""
)
SCALED = (
    START
    + """
scaler = torch.amp.GradScaler("cpu")
model = nn.Linear(2, 2)
opt = torch.optim.SGD(model.parameters(), 0.1)
def average():
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
for x in load():
    scaler.scale(model(x).sum()).backward()
    ORDER
    scaler.step(opt)
"""
)
STREAM = (
    START
    + """
class Stream(IterableDataset):
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
    def __iter__(self):
        BODY
for x in DataLoader(Stream(rank, world), num_workers=WORKERS):
    print(x)
"""
)
TOKENS = (
    START
    + """
def batch():
    ids = torch.randint(1, 9, (4, 8))
    FILL
    return ids.chunk(world)[rank]
model = DDP(nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9)))
for step in range(4):
    ids = batch()
    loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), GIVEN)
    loss.backward()
"""
)
MEASURED = (
    START
    + """
accelerator = Accelerator()
data = TensorDataset(torch.randn(COUNT, 4))
model, loader = accelerator.prepare(nn.Linear(4, 2), DataLoader(data, batch_size=8))
found = []
for (x,) in loader:
    found.append(accelerator.GATHER(model(x).argmax(1)))
found = torch.cat(found)CUT
"""
)
PREPARED = (
    START
    + """
accelerator = Accelerator()
model = nn.Linear(4, 2)
opt = torch.optim.SGD(model.parameters(), 0.1)
model, opt, loader = accelerator.prepare(model, opt, DataLoader(TensorDataset(torch.randn(64, 4)), shuffle=True))
schedule = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.0, TOTAL)
PREPARE
"""
)
PHASES = (
    START
    + """
@contextlib.contextmanager
def micro(model, number, window):
    last = LAST
    with contextlib.nullcontext() if last else model.no_sync():
        yield
class Steps:
    def __init__(self, model, opt):
        self.model, self.opt, self.seen = model, opt, 0
    def feed(self, x):
        with micro(self.model, self.seen, 4):
            self.model(x).sum().backward()
        self.seen += 1
        if self.seen % 4 == 0:
            self.opt.step()
model = DDP(nn.Linear(2, 2))
steps = Steps(model, torch.optim.SGD(model.parameters(), 0.1))
for x in load():
    steps.feed(x)
"""
)
ALARM = (
    START
    + """
class Deadline:
    def __init__(self):
        self.expired = False
    def __enter__(self):
        signal.signal(signal.SIGALRM, self.ring)
        return self
    def ring(self, *_):
        self.expired = True
    def __exit__(self, *_):
        pass
def over(deadline):
    ASK
model = DDP(nn.Linear(2, 2))
with Deadline() as deadline:
    while not over(deadline):
        model(load()).sum().backward()
"""
)
BY_HAND = (
    START
    + """
def average(model):
    for p in model.parameters():
        SOME
        dist.all_reduce(p.grad)
        DIVIDED
model = nn.Linear(2, 2)
opt = torch.optim.SGD(model.parameters(), 0.1)
for step in range(9):
    opt.zero_grad(set_to_none=False)
    ROUND
    opt.step()
"""
)
OWNED = (
    START
    + """
model = nn.Linear(2, 2)
everything = list(model.parameters())
opt = torch.optim.SGD([p for n, p in enumerate(everything) if n % world == rank], 0.1)
for step in range(9):
    model(load()).sum().backward()
    for p in everything:
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
    SEND
"""
)
CHOSEN = (
    START
    + """
if rank == 0:
    value = load()
else:
    value = torch.zeros(4)
dist.broadcast(value, src=SOURCE)
"""
)
COLLECTED = (
    START
    + """
parts = [None] * world if rank == 0 else None
dist.gather_object(load(), parts, dst=0)
READ
"""
)
GROUPS = (
    START
    + """
groups = [dist.new_group([n, n + 1]) for n in range(0, world, 2)]
mine = groups[rank // 2]
value = load()
dist.all_reduce(value, group=mine)
value /= SIZE
"""
)
AVERAGED = (
    START
    + """
class Average:
    def __init__(self, model):
        self.held = [p.detach().clone() for p in model.parameters()]
    def update(self, model):
        for held, p in zip(self.held, model.parameters()):
            held.lerp_(p, 0.1)
torch.manual_seed(SEED)
net = nn.Linear(2, 2)
FIRST
SECOND
average.update(model.module)
"""
)
RESTORED = (
    START
    + """
def restore(model, opt):
    state = torch.load("last.pt", map_location="cpu")
    if WHO:
        opt.load_state_dict(state)
def train(model, opt):
    ddp = DDP(model)
    for x in load():
        ddp(x).sum().backward()
        opt.step()
model = nn.Linear(2, 2)
opt = torch.optim.Adam(model.parameters())
train(model, opt)
again = nn.Linear(2, 2)
opt = torch.optim.Adam(again.parameters())
restore(again, opt)
train(again, opt)
"""
)
ORDERED = (
    START
    + """
model = nn.Linear(2, 2)
model(load()).sum().backward()
for p in sorted(model.parameters(), key=KEY):
    dist.all_reduce(p.grad)
"""
)
COPIED, WRAPPED = "average = Average(net)", "model = DDP(net)"
SPLIT = "return itertools.islice(range(9), self.rank, None, self.world)"
BY_WORKER = "info = get_worker_info()\n        w, n = info.id, info.num_workers\n        " + SPLIT.replace(
    "self.rank, None, self.world", "self.rank + w * self.world, None, self.world * n"
)
TRAINED = "model(load()).sum().backward()\n    average(model)"


def filled(code: str, **parts: str) -> str:
    for name, text in parts.items():
        code = code.replace(name, text)
    return code


def by_hand(some: str = "", divided: str = "p.grad /= world", rounds: str = TRAINED) -> str:
    return filled(BY_HAND, SOME=some or "pass", DIVIDED=divided, ROUND=rounds)


FOUND = {
    "a value or its reduction": ("DW456", filled(GUARDED, TEST="bad or any_rank(bad)"), "if bad or any_rank(bad):"),
    "a value and its reduction": (
        "DW456",
        filled(GUARDED, TEST="not bad and not any_rank(bad)"),
        "if not bad and not any_rank(bad):",
    ),
    "a name of rank 0 that nothing takes": (
        "DW421",
        filled(NAMED, MADE="t = t.clone()", CALL="from_first(name)"),
        "from_first(name)",
    ),
    "a mean that nothing takes": (
        "DW421",
        filled(NAMED, MADE="t = t.clone()", CALL="shared_mean(value)")
        .replace("def shared_mean(t)", "def shared_mean(x)")
        .replace("t = t.clone()", "t = x.clone()"),
        "shared_mean(value)",
    ),
    "the epochs that are left": (
        "DW203",
        filled(LEFT, LOOP="n in range(total - first)", EPOCH="n"),
        "sampler.set_epoch(n)",
    ),
    "the number of an epoch that is left": (
        "DW203",
        filled(LEFT, LOOP="n, epoch in enumerate(range(first, total))", EPOCH="n"),
        "sampler.set_epoch(n)",
    ),
    "a buffer of messages under way": (
        "DW415",
        filled(SHIPPED, BEFORE="pass", FILL="self.stage.copy_(rows)"),
        "self.stage.copy_(rows)",
    ),
    "a history in each step": (
        "DW457",
        filled(TALKED, EACH="self.exchange()", AFTER="pass", BEHIND="pass"),
        "self.exchange()",
    ),
    "an overflow of one rank": (
        "DW458",
        filled(SCALED, ORDER="scaler.unscale_(opt)\n    average()"),
        "scaler.unscale_(opt)",
    ),
    "a stream for each worker": ("DW459", filled(STREAM, BODY=SPLIT, WORKERS="2"), SPLIT),
    "numbers for each worker": (
        "DW459",
        filled(
            STREAM,
            BODY="for n in range(9):\n            if n % self.world == self.rank:\n                yield n",
            WORKERS="2",
        ),
        "if n % self.world == self.rank:",
    ),
    "a mean over the tokens of a rank": (
        "DW429",
        filled(TOKENS, FILL="ids[0, 4:] = 0", GIVEN="ignore_index=0"),
        "loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)",
    ),
    "samples that Accelerate repeats": (
        "DW430",
        filled(MEASURED, COUNT="69", GATHER="gather", CUT=""),
        "found.append(accelerator.gather(model(x).argmax(1)))",
    ),
    "a schedule that Accelerate steps": (
        "DW247",
        filled(PREPARED, TOTAL="3 * len(loader)", PREPARE="schedule = accelerator.prepare(schedule)"),
        "schedule = accelerator.prepare(schedule)",
    ),
    "the first round is reduced": (
        "DW213",
        filled(PHASES, LAST="number % window == 0"),
        "with contextlib.nullcontext() if last else model.no_sync():",
    ),
    "an alarm of each rank": ("DW405", filled(ALARM, ASK="return deadline.expired"), "while not over(deadline):"),
    "gradients of the round before": (
        "DW230",
        by_hand(rounds="average(model)\n    model(load()).sum().backward()"),
        "average(model)",
    ),
    "gradients of every other round": (
        "DW255",
        by_hand(rounds="model(load()).sum().backward()\n    if step % 2 == 0:\n        average(model)"),
        "if step % 2 == 0:",
    ),
    "gradients of matrices": (
        "DW255",
        filled(
            BY_HAND,
            SOME="if p.dim() > 1:\n            dist.all_reduce(p.grad)\n            p.grad /= world",
            ROUND=TRAINED,
        ).replace("        dist.all_reduce(p.grad)\n        DIVIDED\n", ""),
        "dist.all_reduce(p.grad)",
    ),
    "gradients and loss divided": (
        "DW235",
        by_hand(rounds="(model(load()).sum() / world).backward()\n    average(model)"),
        "p.grad /= world",
    ),
    "parameters of one owner": ("DW452", filled(OWNED, SEND="pass"), "opt.step()"),
    "parameters of another owner": (
        "DW452",
        filled(OWNED, SEND="for p in everything:\n        dist.broadcast(p.data, src=0)"),
        "dist.broadcast(p.data, src=0)",
    ),
    "a root without values": ("DW453", filled(CHOSEN, SOURCE="1"), "dist.broadcast(value, src=1)"),
    "a list of the root": (
        "DW454",
        filled(COLLECTED, READ="print(sum(each for each in parts))"),
        "print(sum(each for each in parts))",
    ),
    "an average of own parameters": (
        "DW231",
        filled(AVERAGED, SEED="rank", FIRST=COPIED, SECOND=WRAPPED),
        "average = Average(net)",
    ),
    "the momentum of one rank": ("DW225", filled(RESTORED, WHO="rank == 0"), "opt.load_state_dict(state)"),
    "an order of addresses": ("DW443", filled(ORDERED, KEY="id"), "dist.all_reduce(p.grad)"),
    "a mean over a group by all": ("DW455", filled(GROUPS, SIZE="world"), "value /= world"),
}
RIGHT = {
    "the reduction of a value": ("DW456", filled(GUARDED, TEST="any_rank(bad)")),
    "a value of all and a reduction": ("DW456", filled(GUARDED, TEST="world > 1 and any_rank(bad)")),
    "a name of rank 0": ("DW421", filled(NAMED, MADE="t = t.clone()", CALL="name = from_first(name)")),
    "a mean in place": ("DW421", filled(NAMED, MADE="pass", CALL="shared_mean(value)")),
    "the epochs from the first one": ("DW203", filled(LEFT, LOOP="n in range(first, total)", EPOCH="n")),
    "the epochs that are left, counted on": (
        "DW203",
        filled(LEFT, LOOP="n in range(total - first)", EPOCH="first + n"),
    ),
    "the epochs but one": ("DW203", filled(LEFT, LOOP="n in range(total - 1)", EPOCH="n")),
    "a buffer that is free": (
        "DW415",
        filled(
            SHIPPED, BEFORE="while self.pending:\n            self.pending.pop().wait()", FILL="self.stage.copy_(rows)"
        ),
    ),
    "a buffer for each message": ("DW415", filled(SHIPPED, BEFORE="pass", FILL="self.stage = rows.clone()")),
    "a history that is emptied": (
        "DW457",
        filled(TALKED, EACH="self.exchange()", AFTER="self.rows.clear()", BEHIND="pass"),
    ),
    "a history at the end": ("DW457", filled(TALKED, EACH="pass", AFTER="pass", BEHIND="pass") + "history.exchange()"),
    "an overflow of all ranks": ("DW458", filled(SCALED, ORDER="average()\n    scaler.unscale_(opt)")),
    "an overflow that the ranks reduce": (
        "DW458",
        filled(
            SCALED,
            ORDER="scaler.unscale_(opt)\n    for v in scaler._found_inf_per_device(opt).values():\n"
            "        dist.all_reduce(v, op=dist.ReduceOp.MAX)\n    average()",
        ),
    ),
    "a stream for one worker": ("DW459", filled(STREAM, BODY=SPLIT, WORKERS="0")),
    "a stream that workers share": ("DW459", filled(STREAM, BODY=BY_WORKER, WORKERS="2")),
    "tokens that are all there": ("DW429", filled(TOKENS, FILL="pass", GIVEN="ignore_index=0")),
    "a sum over tokens": ("DW429", filled(TOKENS, FILL="ids[0, 4:] = 0", GIVEN='ignore_index=0, reduction="sum"')),
    "samples that Accelerate leaves out": ("DW430", filled(MEASURED, COUNT="69", GATHER="gather_for_metrics", CUT="")),
    "samples that the ranks divide": ("DW430", filled(MEASURED, COUNT="64", GATHER="gather", CUT="")),
    "samples that are cut off": ("DW430", filled(MEASURED, COUNT="69", GATHER="gather", CUT="[: len(data)]")),
    "a schedule of the program": ("DW247", filled(PREPARED, TOTAL="3 * len(loader)", PREPARE="pass")),
    "a schedule for all steps": (
        "DW247",
        filled(
            PREPARED,
            TOTAL="3 * len(loader) * accelerator.num_processes",
            PREPARE="schedule = accelerator.prepare(schedule)",
        ),
    ),
    "the last round is reduced": ("DW213", filled(PHASES, LAST="(number + 1) % window == 0")),
    "an alarm of all ranks": (
        "DW405",
        filled(
            ALARM, ASK="flag = torch.tensor(int(deadline.expired))\n    dist.all_reduce(flag)\n    return bool(flag)"
        ),
    ),
    "gradients of this round": ("DW230", by_hand()),
    "gradients of all rounds": ("DW255", by_hand()),
    "gradients and steps of some rounds": (
        "DW255",
        by_hand(rounds="model(load()).sum().backward()\n    if step % 2:\n        continue\n    average(model)"),
    ),
    "gradients divided": ("DW235", by_hand()),
    "a loss divided": (
        "DW235",
        by_hand(divided="pass", rounds="(model(load()).sum() / world).backward()\n    average(model)"),
    ),
    "parameters of the owner": (
        "DW452",
        filled(OWNED, SEND="for n, p in enumerate(everything):\n        dist.broadcast(p.data, src=n % world)"),
    ),
    "a root with values": ("DW453", filled(CHOSEN, SOURCE="0")),
    "a list on the root": (
        "DW454",
        filled(COLLECTED, READ="if rank == 0:\n    print(sum(each for each in parts))"),
    ),
    "a list that is asked for": (
        "DW454",
        filled(COLLECTED, READ="if parts:\n    print(sum(each for each in parts))"),
    ),
    "an average of shared parameters": ("DW231", filled(AVERAGED, SEED="rank", FIRST=WRAPPED, SECOND=COPIED)),
    "an average of one seed": ("DW231", filled(AVERAGED, SEED="0", FIRST=COPIED, SECOND=WRAPPED)),
    "the momentum of all": ("DW225", filled(RESTORED, WHO="world > 1")),
    "an order of sizes": ("DW443", filled(ORDERED, KEY="torch.numel")),
    "a mean over a group": ("DW455", filled(GROUPS, SIZE="dist.get_world_size(mine)")),
}


@pytest.mark.parametrize(("rule", "code", "line"), FOUND.values(), ids=FOUND)
def test_the_cause_is_found(rule: str, code: str, line: str) -> None:
    assert lines(code, rule) == [line]


@pytest.mark.parametrize(("rule", "code"), RIGHT.values(), ids=RIGHT)
def test_nothing_in_what_is_right(rule: str, code: str) -> None:
    assert lines(code, rule) == []
