"""Hooks of gradients, contexts of no_sync, loops over parameters and keys of rounds, with programs that look alike."""

import pytest
from helpers.review_snippets import lines

START = """
import contextlib
import itertools
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
"""
ACCUMULATED = (
    START
    + """
net = nn.Linear(2, 2)
model = DDP(net)
opt = torch.optim.SGD(model.parameters(), 0.1)
def loss_of(model, x):
    return model(x).sum()
for step in range(4):
    for number, x in enumerate(torch.ones(4, 2)):
        last = number == 3
BODY
    opt.step()
    opt.zero_grad()
"""
)
HOOKED = (
    START
    + """
def ready(t):
    fut = torch.futures.Future()
    fut.set_result(t)
    return fut
model = DDP(nn.Linear(2, 2))
def total(t):
    dist.all_reduce(t)
def scaled(t, n):
    return t / n
def hook(state, bucket):
BODY
model.register_comm_hook(None, hook)
loss = model(torch.ones(2, 2)).sum()LOSS
loss.backward()
"""
)
STEPPED = (
    START
    + """
net = nn.Linear(2, 2)
model = WRAP
opts = {p: torch.optim.SGD([p], 0.1) for p in model.parameters()}
class Steps:
    def one(self, p):
        opts[p].step()
        opts[p].zero_grad()
def make(opt):
    def hook(p):
        opt.step()
    return hook
def note(p):
    seen.append(p)
for p in model.parameters():
    p.register_post_accumulate_grad_hook(HOOK)
model(torch.ones(2, 2)).sum().backward()
"""
)
PARAMETERS = (
    START
    + """
net = nn.Linear(2, 2)
opt = torch.optim.SGD(net.parameters(), 0.1)
net(torch.ones(2, 2)).sum().backward()
for name, p in net.named_parameters():
BODY
opt.step()
"""
)
ROUNDS = (
    START
    + """
store = dist.distributed_c10d._get_default_store()
for step in range(4):
    if rank == 0:
        store.set(KEY, str(step))
    BETWEEN
    if rank > 0:
        store.wait([KEY])
        plan = store.get(KEY)
    AFTER
"""
)
STREAM = (
    START
    + """
class Stream(IterableDataset):
    def __init__(self, files, rank, world):
        self.files, self.rank, self.world = FILES, rank, world
    def __iter__(self):
        info = get_worker_info()
        for name in PART:
            g = torch.Generator().manual_seed(name)
            yield torch.DRAWN
model = DDP(nn.Linear(2, 2))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x in DataLoader(Stream(list(range(8)), rank, world), batch_size=2, num_workers=2):
    model(x).sum().backward()
    opt.step()
"""
)
EXCHANGED = (
    START
    + """
counts = COUNTED
OTHERS
out = x.new_empty(int(others.sum()))
dist.all_to_all_single(out, x, others.tolist(), counts.tolist())
"""
)


def indented(text: str, body: str, depth: int, **parts: str) -> str:
    """Return a program with these lines as its body, and its other parts."""
    text = text.replace("BODY", "\n".join(" " * depth + line for line in body.split("\n")))
    for name, part in parts.items():
        text = text.replace(name, part)
    return text


def accumulated(body: str) -> tuple[str, str]:
    return "DW261", indented(ACCUMULATED, body, 8)


def hooked(body: str, loss: str = "") -> tuple[str, str]:
    future = "get_future().then(lambda f: f.value()[0])"
    return "DW262", indented(HOOKED, body, 4, LOSS=loss, FUTURE=future)


def stepped(hook: str, wrap: str = "DDP(net)") -> tuple[str, str]:
    return "DW263", indented(STEPPED, "", 0, HOOK=hook, WRAP=wrap)


def parameters(body: str) -> tuple[str, str]:
    return "DW421", indented(PARAMETERS, body, 4)


def rounds(key: str, between: str = "", after: str = "") -> tuple[str, str]:
    return "DW485", indented(ROUNDS, "", 0, KEY=key, BETWEEN=between, AFTER=after)


def stream(part: str, files: str = "files", drawn: str = "randn(2, generator=g)") -> tuple[str, str]:
    return "DW244", indented(STREAM, "", 0, PART=part, FILES=files, DRAWN=drawn)


def exchanged(others: str, counted: str = "torch.bincount(chosen, minlength=world)") -> tuple[str, str]:
    return "DW424", indented(EXCHANGED, "", 0, OTHERS=others, COUNTED=counted)


OF_WORKER = "itertools.islice(self.files, info.id, None, info.num_workers)"
FOUND: dict[str, tuple[str, str]] = {
    "a chosen context": accumulated(
        "ctx = contextlib.nullcontext() if last else model.no_sync()\n"
        "loss = model(x).sum()\nwith ctx:\n    loss.backward()"
    ),
    "a branch with the context": accumulated(
        "y = model(x).sum()\nif last:\n    y.backward()\nelse:\n    with model.no_sync():\n        y.backward()"
    ),
    "a context in the with": accumulated(
        "loss = loss_of(model, x)\nwith model.no_sync() if not last else contextlib.nullcontext():\n    loss.backward()"
    ),
    "a loss of outputs": accumulated(
        "y = model(x)\nwith model.no_sync():\n    loss = F.mse_loss(y, x)\n    loss.backward()"
    ),
    "two contexts": accumulated(
        "loss = model(x).sum()\nwith torch.enable_grad(), model.no_sync():\n    (loss / 4).backward()"
    ),
    "a future": hooked(
        "fut = dist.all_reduce(bucket.buffer(), async_op=True).get_future()\nreturn fut.then(lambda f: f.value()[0])"
    ),
    "a smaller type": hooked(
        "small = bucket.buffer().half()\ndist.all_reduce(small, group=state)\nbucket.buffer().copy_(small)\n"
        "fut = torch.futures.Future()\nfut.set_result(bucket.buffer())\nreturn fut"
    ),
    "a helper": hooked("buffer = bucket.buffer()\ntotal(buffer)\nreturn ready(buffer)"),
    "an operation": hooked("return dist.all_reduce(bucket.buffer(), op=dist.ReduceOp.SUM, async_op=True).FUTURE"),
    "a lambda": stepped("lambda p: opts[p].step()"),
    "a method": stepped("Steps().one"),
    "a function that a call returns": stepped("make(opts[p])"),
    "a parameter": parameters("mean = p.detach().clone()\ndist.all_reduce(mean)\np = mean / world"),
    "a gradient by its name": parameters("g = p.grad\ndist.all_reduce(g)\ng = g / world"),
    "a gradient, by div": parameters("grad = p.grad.data\ndist.all_reduce(grad)\ngrad = grad.div(world)"),
    "the data of a parameter": parameters("dist.all_reduce(p.data)\np = p.data / world"),
    "a text as a key": rounds('"plan"'),
    "one key with a barrier behind": rounds('"plan"', after="torch.ones(1)"),
    "parts of the workers": stream(OF_WORKER),
    "parts of the workers, by a step": stream("self.files[info.id :: info.num_workers]"),
    "all of it": stream("self.files", drawn="ones(2)"),
    "a copy of the counts": exchanged("others = counts.clone()"),
    "the counts by another name": exchanged("others = counts"),
    "drawn counts": exchanged(
        "others = counts.clone()", "torch.randint(1, 4, (world,), generator=torch.Generator().manual_seed(rank))"
    ),
}
HEALTHY: dict[str, tuple[str, str]] = {
    "both passes inside": accumulated(
        "with contextlib.nullcontext() if last else model.no_sync():\n    loss = model(x).sum()\n    loss.backward()"
    ),
    "a helper inside": accumulated("with model.no_sync():\n    loss_of(model, x).backward()"),
    "an evaluation before": accumulated(
        "with torch.no_grad():\n    model(x)\nwith model.no_sync():\n    loss = model(x).sum()\n    loss.backward()"
    ),
    "another model": accumulated(
        "loss = model(x).sum()\nloss.backward()\nwith model.no_sync():\n    net(x).sum().backward()"
    ),
    "a mean before": hooked("b = bucket.buffer().div_(world)\nreturn dist.all_reduce(b, async_op=True).FUTURE"),
    "a mean behind": hooked(
        "f = dist.all_reduce(bucket.buffer(), async_op=True).get_future()\n"
        "return f.then(lambda f: f.value()[0] / world)"
    ),
    "AVG": hooked("return dist.all_reduce(bucket.buffer(), dist.ReduceOp.AVG, async_op=True).FUTURE"),
    "a helper that divides": hooked("b = scaled(bucket.buffer(), world)\ndist.all_reduce(b)\nreturn ready(b)"),
    "a divided loss": hooked("return dist.all_reduce(bucket.buffer(), async_op=True).FUTURE", " / world"),
    "a list of what is ready": stepped("note"),
    "a hook without DDP": stepped("lambda p: opts[p].step()", "net"),
    "a hook that clips": stepped("lambda p: p.grad.clamp_(-1, 1)"),
    "a copy into the parameter": parameters("mean = p.detach().clone()\ndist.all_reduce(mean)\np.copy_(mean / world)"),
    "a division in place": parameters("g = p.grad\ndist.all_reduce(g)\ng /= world"),
    "a gradient that is set": parameters("g = p.grad\ndist.all_reduce(g)\ng = g / world\np.grad = g"),
    "a number for the log": parameters("g = p.grad\ndist.all_reduce(g)\np.grad /= world\ng = g.norm()"),
    "a list of means": parameters("p = p.data\ndist.all_reduce(p)\np = p / world\nmeans.append(p)"),
    "a key of the round": rounds('f"plan/{step}"'),
    "a barrier between": rounds('"plan"', between="dist.barrier()", after="dist.barrier()"),
    "a key that is deleted": rounds('"plan"', after='store.delete_key("plan")'),
    "parts of the ranks": stream("self.files[self.rank :: self.world]"),
    "files of the rank": stream(OF_WORKER, files="files[rank::world]"),
    "draws of each rank": (
        "DW244",
        indented(STREAM, "", 0, PART=OF_WORKER, FILES="files", DRAWN="randn(2)").replace(
            "g = torch.Generator().manual_seed(name)", "pass"
        ),
    ),
    "counts of the others": exchanged("others = torch.empty_like(counts)\ndist.all_to_all_single(others, counts)"),
    "alike on all": exchanged("others = counts.clone()", "torch.full((world,), 4)"),
}


@pytest.mark.parametrize(("rule", "code"), FOUND.values(), ids=FOUND)
def test_found(rule: str, code: str) -> None:
    assert len(lines(code, rule)) == 1


@pytest.mark.parametrize(("rule", "code"), HEALTHY.values(), ids=HEALTHY)
def test_look_alikes(rule: str, code: str) -> None:
    assert lines(code, rule) == []
