"""Causes that small trainers of two ranks have shown, each with programs that look alike and are right."""

import pytest
from helpers.review_snippets import found, lines, repaired

START = """
import copy
import time
import torch.nn.functional as F
from pathlib import Path
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Sampler, TensorDataset, get_worker_info
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
data = TensorDataset(torch.load("x.pt"), torch.load("y.pt"))
"""
TRAIN = """
model = DDP(nn.Linear(4, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(DATA, batch_size=8)
for batch in loader:
    loss = model(batch).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
COUNTED = (
    START
    + """
store = dist.distributed_c10d._get_default_store()
for epoch in range(3):
    if rank == 0:
        torch.save(torch.ones(4), f"part_{epoch}.pt")
    WAIT
    part = torch.load(f"part_{epoch}.pt")
"""
)


@pytest.mark.parametrize(
    "wait",
    [
        'store.add(f"ready/{epoch}", 1)\n    while store.add(f"ready/{epoch}", 0) < world:\n        time.sleep(1)',
        'if rank == 0:\n        store.set(f"ready/{epoch}", "1")\n    store.wait([f"ready/{epoch}"])',
        'if rank == 0:\n        store.set(f"ready/{epoch}", "1")\n    store.get(f"ready/{epoch}")',
    ],
)
def test_wait_in_the_store_of_each_round(wait: str) -> None:
    code = COUNTED.replace("WAIT", wait)
    assert lines(code, "DW505") == lines(code, "DW480") == []


@pytest.mark.parametrize(
    "poll",
    [
        'while store.add("ready", 0) < world:\n        time.sleep(1)',
        'while True:\n        if store.add("ready", 0) >= world:\n            break\n        time.sleep(1)',
    ],
)
def test_counter_in_the_store_under_one_key_in_each_round(poll: str) -> None:
    code = COUNTED.replace("WAIT", f'store.add("ready", 1)\n    {poll}')
    assert lines(code, "DW480") == ['store.add("ready", 1)']


@pytest.mark.parametrize(
    "wait",
    [
        # Set back to zero, and waited for by a number that grows with the rounds.
        'store.set("ready", "0")\n    dist.barrier()\n    store.add("ready", 1)\n'
        '    while store.add("ready", 0) < world:\n        time.sleep(1)',
        'store.add("ready", 1)\n    while store.add("ready", 0) < world * (epoch + 1):\n        time.sleep(1)',
        'seen = store.add("tokens", 128)',
    ],
)
def test_counters_that_rounds_may_share(wait: str) -> None:
    assert lines(COUNTED.replace("WAIT", wait), "DW480") == []


def test_wait_for_a_counter_that_is_there_from_the_round_before() -> None:
    wait = 'store.add("ready", 1)\n    while store.add("ready", 0) < world:\n        time.sleep(1)'
    assert lines(COUNTED.replace("WAIT", wait), "DW505") == ['part = torch.load(f"part_{epoch}.pt")']


def test_counter_of_one_round() -> None:
    code = 'store = dist.distributed_c10d._get_default_store()\nstore.add("ready", 1)\n'
    assert lines(START + code + 'while store.add("ready", 0) < world:\n    time.sleep(1)\n', "DW480") == []


ENGINE = (
    START
    + """
class Engine:
    def __init__(self, net):
        self.net, self.count = net, 0
        self.opt = torch.optim.SGD(net.parameters(), lr=0.1)

    def backward(self, loss):
        loss.backward()
        self.count += 1
        for p in self.net.parameters():
            dist.all_reduce(p.grad)
            p.grad.div_(world)

    def step(self):
        if self.count % 4 == 0:
            self.opt.step()
            self.opt.zero_grad()

engine = Engine(nn.Linear(4, 2))
other = copy.deepcopy(engine.net)
other_opt = torch.optim.SGD(other.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=8):
    engine.backward(F.cross_entropy(engine.net(x), y))
    engine.step()
    F.cross_entropy(other(x), y).backward()
    other_opt.step()
"""
)


def test_gradients_averaged_in_a_method_called_backward() -> None:
    assert lines(ENGINE, "DW230") == []
    early = ENGINE.replace("        loss.backward()\n", "").replace("engine.step()", "y.sum().backward()")
    step = early.replace("    other_opt.step()", "    engine.opt.step()")
    assert lines(step, "DW230") == ["engine.backward(F.cross_entropy(engine.net(x), y))"]


REFERENCE = (
    START
    + """
model = DDP(nn.Linear(4, 2))

def reference(state, x):
    net = nn.Linear(4, 2)
    net.load_state_dict(state)
    return net(x)

if rank == 0:
    print(reference(model.module.state_dict(), torch.ones(1, 4)))
"""
)


def test_module_that_only_a_function_of_rank_0_makes_and_uses() -> None:
    assert lines(REFERENCE, "DW256") == []
    used = 'teacher = nn.Linear(4, 2)\nif rank == 0:\n    teacher.load_state_dict(torch.load("t.pt"))\nteacher(data)\n'
    assert lines(START + used, "DW256") == ['teacher.load_state_dict(torch.load("t.pt"))']


DEALT = """
class Stream(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        for number, line in enumerate(open(self.path)):
            if number % world == rank:
                yield torch.tensor(float(line))

"""


def test_records_of_a_file_that_the_ranks_deal_out() -> None:

    code = START + DEALT + TRAIN.replace("DATA", 'Stream("records.txt")')
    assert [each.severity for each in found(code, "DW217")] == ["warning"]
    counted = code.replace("enumerate(open(self.path))", "enumerate(range(17))")
    assert [each.severity for each in found(counted, "DW217")] == ["warning"]
    assert found(counted.replace("range(17)", "range(16)"), "DW217") == []


NONE_ON_OTHERS = (
    START
    + """
from lightning.pytorch.utilities import rank_zero_only

def main_only(function):
    def inner(*args):
        if dist.get_rank() == 0:
            return function(*args)
    return inner

@rank_zero_only
def build():
    return {"a": 1}

@main_only
def load():
    return ["a", "b"]

@rank_zero_only
def log(text):
    print(text)

table = MADE
"""
)


@pytest.mark.parametrize("made", ["build()", "load()", "load() if rank == 0 else None"])
@pytest.mark.parametrize("use", ["size = len(table)", "first = table[0]", "for each in table:\n    print(each)"])
def test_use_of_what_only_rank_0_has_built(made: str, use: str) -> None:
    code = NONE_ON_OTHERS.replace("MADE", made)
    assert lines(code + use, "DW437") == [use.split("\n")[0]]
    for before in ("if rank == 0:\n    ", "if table is not None:\n    ", "if table:\n    "):
        assert lines(code + before + use.replace("\n", "\n    "), "DW437") == []
    shared = "box = [table]\ndist.broadcast_object_list(box)\ntable = box[0]\n"
    assert lines(f"{code}{shared}{use}", "DW437") == []
    assert lines(f"{code}if rank != 0:\n    raise SystemExit\n{use}", "DW437") == []


def test_none_is_passed_on_and_asked_for() -> None:
    code = NONE_ON_OTHERS.replace("MADE", "build()")
    fine = "log(table)\nout = [None]\ndist.scatter_object_list(out, table)\nsize = len(table) if table else 0\n"
    assert lines(code + fine, "DW437") == []


STOP = (
    START
    + """
model = DDP(nn.Linear(4, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
stop = Path("STOP")

def asked():
    return os.path.exists("STOP")

def asked_by_rank_0():
    flag = torch.zeros(1)
    if rank == 0 and os.path.exists("STOP"):
        flag.fill_(1)
    dist.broadcast(flag, src=0)
    return bool(flag.item())

def train():
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        STOPS
    dist.barrier()

train()
"""
)


@pytest.mark.parametrize("test", ["os.path.exists('STOP')", "stop.exists()", "asked()", "os.path.isfile('STOP')"])
@pytest.mark.parametrize("leave", ["break", "return", "raise SystemExit"])
def test_loop_that_each_rank_leaves_by_a_file(test: str, leave: str) -> None:
    assert lines(STOP.replace("STOPS", f"if {test}:\n            {leave}"), "DW481") == [f"if {test}:"]


@pytest.mark.parametrize(
    "stops",
    [
        "if asked_by_rank_0():\n            break",
        "if os.path.exists('STOP'):\n            print('a stop is asked for')",
        "if rank == 0 and stop.exists():\n            stop.unlink()",
    ],
)
def test_loops_that_ranks_leave_together(stops: str) -> None:
    assert lines(STOP.replace("STOPS", stops), "DW481") == []


def test_file_that_is_asked_for_outside_of_the_training() -> None:
    before = 'for name in ("a", "b"):\n    if os.path.exists(name):\n        break\n'
    assert lines(START + before + TRAIN.replace("DATA", "data"), "DW481") == []
    until = TRAIN.replace("for batch in loader:", "while not os.path.exists('STOP'):\n    batch = next(iter(loader))")
    assert lines(START + until.replace("DATA", "data"), "DW481") == ["while not os.path.exists('STOP'):"]


WORKERS = """
class Stream(IterableDataset):
    def __init__(self, path, rank=0, world=1):
        self.path, self.rank, self.world = path, rank, world

    def share(self):
        info = get_worker_info()
        number, count = (0, 1) if info is None else (info.id, info.num_workers)
        return SHARE

    def __iter__(self):
        first, step = self.share()
        with open(self.path) as lines:
            for number, line in enumerate(lines):
                if number % step == first:
                    yield torch.tensor(float(line))

"""


def test_stream_that_only_the_workers_share() -> None:
    code = START + WORKERS + TRAIN.replace("DATA", 'Stream("records.txt", rank, world)')
    assert lines(code.replace("SHARE", "number, count"), "DW244") == ["yield torch.tensor(float(line))"]
    shared = code.replace("SHARE", "self.rank * count + number, self.world * count")
    assert lines(shared, "DW244") == []
    alone = code.replace("SHARE", "number, count").replace('Stream("records.txt", rank, world)', "Stream(FILES[rank])")
    assert lines(alone.replace("model = DDP", 'FILES = ["a", "b"]\nmodel = DDP'), "DW244") == []


OWN_SEED = """
class Weighted(Sampler):
    def __init__(self, weights, rank, world, seed=0):
        self.weights, self.rank, self.world, self.seed, self.epoch = weights, rank, world, seed, 0

    def __iter__(self):
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        order = torch.multinomial(self.weights, len(self.weights), False, generator=generator)
        return iter(PART)

sampler = Weighted(torch.ones(64), rank, world, seed=SEED)
loader = DataLoader(data, batch_size=8, sampler=sampler)
"""


@pytest.mark.parametrize(
    "part", ["order[self.rank :: self.world]", "order[self.rank * 8 : self.rank * 8 + 8].tolist()"]
)
def test_sampler_that_divides_an_order_of_each_rank(part: str) -> None:
    code = (START + OWN_SEED).replace("PART", part)
    assert lines(code.replace("SEED", "rank"), "DW205") == [
        "sampler = Weighted(torch.ones(64), rank, world, seed=rank)"
    ]
    assert lines(code.replace("SEED", "7"), "DW205") == []


def test_sampler_that_draws_for_its_rank_alone() -> None:
    assert lines((START + OWN_SEED).replace("PART", "order[:8]").replace("SEED", "rank"), "DW205") == []


CLOSURE = (
    START
    + """
model = DDP(nn.Linear(4, 2))
opt = torch.optim.LBFGS(model.parameters(), OPTIONS)
for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
    def closure():
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        RETURNS
    opt.step(closure)
"""
)


@pytest.mark.parametrize("options", ["line_search_fn='strong_wolfe'", "max_iter=10"])
def test_closure_that_returns_the_loss_of_one_rank(options: str) -> None:
    code = CLOSURE.replace("OPTIONS", options)
    assert lines(code.replace("RETURNS", "return loss"), "DW482") == ["return loss"]
    shared = "total = loss.detach().clone()\n        dist.all_reduce(total)\n        return total / world"
    assert lines(code.replace("RETURNS", shared), "DW482") == []


@pytest.mark.parametrize(
    "other", ["torch.optim.LBFGS(model.parameters(), max_iter=1)", "torch.optim.SGD(model.parameters())"]
)
def test_optimizers_that_call_a_closure_once(other: str) -> None:
    code = CLOSURE.replace("torch.optim.LBFGS(model.parameters(), OPTIONS)", other)
    assert lines(code.replace("RETURNS", "return loss"), "DW482") == []
    alone = CLOSURE.replace("DDP(nn.Linear(4, 2))", "nn.Linear(4, 2)").replace("OPTIONS", "max_iter=10")
    assert lines(alone.replace("RETURNS", "return loss"), "DW482") == []


def test_closure_that_is_a_method() -> None:
    method = """
class Objective:
    def __init__(self, model, opt, batch):
        self.model, self.opt, self.batch = model, opt, batch

    def evaluate(self):
        self.opt.zero_grad()
        loss = self.model(self.batch).sum()
        loss.backward()
        return loss

model = DDP(nn.Linear(4, 2))
opt = torch.optim.LBFGS(model.parameters())
for batch in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
    opt.step(Objective(model, opt, batch).evaluate)
"""
    assert lines(START + method, "DW482") == ["return loss"]


@pytest.mark.parametrize("name", ["out", "places"])
def test_list_with_one_tensor_in_each_place(name: str) -> None:
    code = f"{START}mine = torch.ones(3)\nplace = torch.zeros(3)\n{name} = [PLACE for _ in range(world)]\n"
    gather = f"dist.all_gather({name}, mine)"
    shared = code.replace("PLACE", "place") + gather
    assert lines(shared, "DW418") == [gather]
    assert f"{name} = [place.clone() for _ in range(world)]" in repaired(shared, "DW418")
    for each in ("torch.zeros(3)", "place.clone()", "torch.zeros_like(mine)"):
        assert lines(code.replace("PLACE", each) + gather, "DW418") == []
    several = f"{name} = [place for place in torch.zeros(world, 3).unbind()]\n"
    assert lines(f"{START}mine = torch.ones(3)\n{several}{gather}", "DW418") == []


ACCUMULATED = (
    START
    + """
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)

class Trainer:
    def __init__(self, every):
        self.every, self.count = every, 0

    def backward(self, loss):
        loss.backward()
        self.count += 1
        REDUCE

    def step(self):
        if self.count % self.every:
            return
        LAST
        opt.step()
        opt.zero_grad()

trainer = Trainer(4)
for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
    trainer.backward(F.cross_entropy(net(x), y) / 4)
    trainer.step()
"""
)
SUM_UP = "for p in net.parameters():\n            dist.all_reduce(p.grad)"


def test_gradients_of_micro_batches_that_are_summed_each_time() -> None:
    each_time = ACCUMULATED.replace("REDUCE", SUM_UP).replace("LAST", "pass")
    assert lines(each_time, "DW483") == ["dist.all_reduce(p.grad)"]
    later = ACCUMULATED.replace("REDUCE", SUM_UP)
    later = later.replace("LAST", "for p in net.parameters():\n            p.grad /= world")
    assert lines(later, "DW483") == ["dist.all_reduce(p.grad)"]


def test_gradients_that_are_summed_once_or_averaged_each_time() -> None:
    once = ACCUMULATED.replace("REDUCE", "pass").replace("LAST", SUM_UP)
    assert lines(once, "DW483") == []
    for average in ("            p.grad /= world", "            p.grad.div_(world)"):
        code = ACCUMULATED.replace("REDUCE", f"{SUM_UP}\n{average}").replace("LAST", "pass")
        assert lines(code, "DW483") == []
    mean = SUM_UP.replace("p.grad)", "p.grad, op=dist.ReduceOp.AVG)")
    assert lines(ACCUMULATED.replace("REDUCE", mean).replace("LAST", "pass"), "DW483") == []
    cleared = ACCUMULATED.replace("REDUCE", SUM_UP).replace("LAST", "pass")
    assert lines(cleared.replace("    trainer.backward(", "    opt.zero_grad()\n    trainer.backward("), "DW483") == []


def test_micro_batches_in_a_loop_of_their_own() -> None:
    code = """
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=32, sampler=DistributedSampler(data)):
    opt.zero_grad()
    for part in x.split(8):
        net(part).sum().backward()
    REDUCE
    opt.step()
"""
    inside = "    for p in net.parameters():\n            dist.all_reduce(p.grad)"
    assert lines(START + code.replace("REDUCE", inside), "DW483") == ["dist.all_reduce(p.grad)"]
    behind = "for p in net.parameters():\n        dist.all_reduce(p.grad)"
    assert lines(START + code.replace("REDUCE", behind), "DW483") == []


SHARED_PART = (
    START
    + """
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.layers = nn.Linear(4, 4), nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = CALL
        return x

model = DDP(Net()OPTIONS)
"""
)


def test_part_that_is_checkpointed_in_each_round() -> None:
    shared = SHARED_PART.replace("CALL", "checkpoint(self.block, x, use_reentrant=True)")
    assert lines(shared.replace("OPTIONS", ""), "DW224") == ["model = DDP(Net())"]
    assert lines(shared.replace("OPTIONS", ", static_graph=True"), "DW224") == []
    for call in ("checkpoint(self.block, x, use_reentrant=False)", "checkpoint(layer, x, use_reentrant=True)"):
        assert lines(SHARED_PART.replace("CALL", call).replace("OPTIONS", ""), "DW224") == []


METER = (
    START
    + """
class Accuracy:
    def __init__(self, size):
        self.size, self.hits, self.count = size, torch.zeros(1), torch.zeros(1)

    def update(self, guess, y, number):
        KEPT
        self.hits += (guess == y).sum()
        self.count += (guess == guess).sum()

    def compute(self):
        dist.all_reduce(self.hits)
        dist.all_reduce(self.count)
        return self.hits / self.count

test_set = TensorDataset(torch.randn(SAMPLES, 4), torch.zeros(SAMPLES))
sampler = DistributedSampler(test_set, shuffle=False)
model = DDP(nn.Linear(4, 2))
accuracy = Accuracy(len(test_set))
for number, (x, y) in enumerate(DataLoader(test_set, batch_size=4, sampler=sampler)):
    accuracy.update(model(x).argmax(1), y, number)
print(accuracy.compute())
"""
)


def test_meter_that_counts_what_the_sampler_repeats() -> None:
    sampler = "sampler = DistributedSampler(test_set, shuffle=False)"
    assert lines(METER.replace("KEPT", "pass").replace("SAMPLES", "25"), "DW430") == [sampler]
    assert lines(METER.replace("KEPT", "pass").replace("SAMPLES", "24"), "DW430") == []
    cut = "guess, y = (each[: self.size - number * 4 * world] for each in (guess, y))"
    assert lines(METER.replace("KEPT", cut).replace("SAMPLES", "25"), "DW430") == []


GIVEN = METER.replace("def update(self, guess, y, number):", "def update(self, hits, number):").replace(
    "        self.hits += (guess == y).sum()\n        self.count += (guess == guess).sum()",
    "        self.hits += hits * number\n        self.count += number",
)
GIVEN = GIVEN.replace(
    "    accuracy.update(model(x).argmax(1), y, number)",
    "    hits = (model(x).argmax(1) == y).float().mean().item()\n    accuracy.update(hits, len(y))",
)


def test_meter_that_a_loop_gives_what_the_sampler_repeats() -> None:
    sampler = "sampler = DistributedSampler(test_set, shuffle=False)"
    code = GIVEN.replace("KEPT", "pass")
    assert lines(code.replace("SAMPLES", "25"), "DW430") == [sampler]
    assert lines(code.replace("SAMPLES", "24"), "DW430") == []
    cut = "    x, y = x[: len(test_set) - number * 4 * world], y[: len(test_set) - number * 4 * world]\n    hits ="
    assert lines(code.replace("SAMPLES", "25").replace("    hits =", cut, 1), "DW430") == []
    trains = code.replace("    accuracy.update(hits", "    model(x).sum().backward()\n    accuracy.update(hits")
    assert lines(trains.replace("SAMPLES", "25"), "DW430") == []


def test_mean_of_the_f1_scores_of_the_ranks() -> None:
    code = """
def f1(guess, y):
    hits = ((guess == 1) & (y == 1)).sum().float()
    wrong, missed = ((guess == 1) & (y == 0)).sum(), ((guess == 0) & (y == 1)).sum()
    return 2 * hits / (2 * hits + wrong + missed)

for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
    score = f1(x.argmax(1), y)
    dist.all_reduce(score)
    score /= world
"""
    assert lines(START + code, "DW429") == ["dist.all_reduce(score)"]
    sums = code.replace("return 2 * hits / (2 * hits + wrong + missed)", "return torch.stack([hits, wrong, missed])")
    assert lines(START + sums, "DW429") == []


COPIED = START.replace("torch.manual_seed(0)\n", "SEED\n") + "net = nn.Linear(4, 2)\nshadow = copy.deepcopy(net)\n"


def test_copy_of_a_model_in_a_program_that_loads_data() -> None:
    wrapped = COPIED + "model = DDP(net, broadcast_buffers=False)\n"
    assert lines(wrapped.replace("SEED", "torch.manual_seed(rank)"), "DW231") == ["shadow = copy.deepcopy(net)"]
    assert lines(wrapped.replace("SEED", "torch.manual_seed(0)"), "DW231") == []
    loaded = wrapped.replace("shadow =", 'net.load_state_dict(torch.load("net.pt"))\nshadow =')
    assert lines(loaded.replace("SEED", "torch.manual_seed(rank)"), "DW231") == []


SPLIT = (
    START.replace("torch.manual_seed(0)\n", "SEED\n")
    + """
from sklearn.model_selection import train_test_split
from torch.utils.data import random_split
parts = DRAWN
model = DDP(nn.Linear(4, 2))
"""
)


@pytest.mark.parametrize("drawn", ["random_split(data, [80, 20])", "train_test_split(list(range(len(data))))"])
def test_split_in_a_program_that_sets_no_seed(drawn: str) -> None:
    code = SPLIT.replace("DRAWN", drawn)
    assert lines(code.replace("SEED", ""), "DW227") == [f"parts = {drawn}"]
    assert lines(code.replace("SEED", "torch.manual_seed(0)"), "DW227") == []
    assert lines(code.replace("SEED", "from helpers import seed_everything\nseed_everything(3)"), "DW227") == []
    shared = f"{code}box = [parts]\ndist.broadcast_object_list(box)\nparts = box[0]\n"
    assert lines(shared.replace("SEED", ""), "DW227") == []


def test_split_with_a_seed_of_its_own_or_in_order() -> None:
    for drawn in (
        "random_split(data, [80, 20], generator=torch.Generator().manual_seed(1))",
        "train_test_split(list(range(len(data))), random_state=1)",
        "train_test_split(list(range(len(data))), shuffle=False)",
    ):
        assert lines(SPLIT.replace("DRAWN", drawn).replace("SEED", ""), "DW227") == []


def test_key_that_each_rank_sets_to_its_own_value() -> None:
    code = f"{START}store = dist.distributed_c10d._get_default_store()\n"
    own = 'store.set("result", str(rank))'
    assert lines(code + own, "DW484") == [own]
    for fine in (
        'store.set(f"result/{rank}", str(rank))',
        'store.set("ready", "1")',
        'if rank == 0:\n    store.set("result", str(rank))',
    ):
        assert lines(code + fine, "DW484") == []


ROWS = (
    START
    + """
class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad

class Rows(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, features // world))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        part = F.linear(x, PRODUCT)
        return Summed.apply(part)MORE

layer = Rows(8, 4)
layer(torch.ones(2, 8 // world))
"""
)


def test_bias_before_a_sum_in_an_autograd_function() -> None:
    each = ROWS.replace("PRODUCT", "self.weight, self.bias").replace("MORE", "")
    assert lines(each, "DW438") == ["part = F.linear(x, self.weight, self.bias)"]
    once = ROWS.replace("PRODUCT", "self.weight").replace("MORE", " + self.bias")
    assert lines(once, "DW438") == []


def test_autograd_function_that_only_some_ranks_call() -> None:
    call = "layer(torch.ones(2, 8 // world))"
    code = ROWS.replace("PRODUCT", "self.weight").replace("MORE", " + self.bias")
    assert lines(code, "DW401") == []
    assert len(lines(code.replace(call, f"if rank == 0:\n    {call}"), "DW401")) == 1


def test_gather_with_a_backward_pass_of_its_own() -> None:
    code = """
class Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = [torch.zeros_like(x) for _ in range(world)]
        dist.all_gather(out, x)
        return tuple(out)

    @staticmethod
    def backward(ctx, *grads):
        total = torch.stack(grads)
        dist.all_reduce(total)
        return total[rank]

model = DDP(nn.Linear(4, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
    mine = model(x)
    everything = torch.cat(Gathered.apply(mine))
    loss = F.cross_entropy(mine @ everything.t(), torch.arange(8) + 8 * rank)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
    assert lines(START + code, "DW420") == lines(START + code, "DW236") == []
