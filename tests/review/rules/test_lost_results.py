"""Results of collectives that are lost, parts of a training that ranks do not share, and values of one process."""

import textwrap

import pytest
from helpers.review_snippets import lines

START = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
value = torch.ones(2)
"""
NET = """
import copy
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
    def forward(self, x):
        return self.layer(x)
"""
HEAD = "class Head(Net):\n    pass\nmodel, head = DDP(Net()), Head()\n"
STEP = """
model = DDP(nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
sampler = torch.utils.data.DistributedSampler(data)
"""
EPOCH_OF_ONE = "if rank == 0:\n    sampler.set_epoch(1)\n"
READ_BY_ALL = "for x in torch.utils.data.DataLoader(data, sampler=sampler):\n    model(x)\n"
BY_HAND = """
net = nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def average(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
for x in data:
    net(x).sum().backward()
    {}
    {}
    optimizer.zero_grad()
"""
FOUND = {
    "a converted tensor": ("DW421", "dist.all_reduce(value.float())", "dist.all_reduce(value.float())"),
    "a sum": (
        "DW421",
        "def share(loss):\n    dist.reduce(loss / world_size, 0)\nshare(value)",
        "dist.reduce(loss / world_size, 0)",
    ),
    "None that is divided": (
        "DW422",
        "mean = dist.all_reduce(value)\nprint(mean / world_size)",
        "mean = dist.all_reduce(value)",
    ),
    "None that is read": ("DW422", "print(dist.all_reduce(value).item())", "print(dist.all_reduce(value).item())"),
    "a whole number for no samples": (
        "DW423",
        "def share(hits, n):\n    mean = torch.tensor(hits / n if n else 0)\n    dist.all_reduce(mean)\nshare(1, 2)",
        "dist.all_reduce(mean)",
    ),
    "sizes of what is sent": (
        "DW424",
        "sizes = torch.bincount(target).tolist()\ndist.all_to_all_single(out, value, sizes, sizes)",
        "dist.all_to_all_single(out, value, sizes, sizes)",
    ),
    "a scheduler of rank 0": ("DW229", STEP + "if rank == 0:\n    scheduler.step()", "scheduler.step()"),
    "an optimizer of rank 0": (
        "DW229",
        STEP + "def update():\n    if rank != 0:\n        return\n    optimizer.step()\nupdate()",
        "optimizer.step()",
    ),
    "an epoch of rank 0": ("DW229", STEP + EPOCH_OF_ONE + READ_BY_ALL, "sampler.set_epoch(1)"),
    "an epoch of rank 0 for batches in an order of its own": (
        "DW229",
        STEP + EPOCH_OF_ONE + "order = torch.utils.data.BatchSampler(sampler, 2, True)\n"
        "for x in torch.utils.data.DataLoader(data, batch_sampler=order):\n    model(x)",
        "sampler.set_epoch(1)",
    ),
    "an epoch of all but rank 1": (
        "DW229",
        STEP + EPOCH_OF_ONE.replace("==", "!= 1 or rank ==") + READ_BY_ALL,
        "sampler.set_epoch(1)",
    ),
    "gradients averaged after the step": ("DW230", BY_HAND.format("optimizer.step()", "average(net)"), "average(net)"),
    "two losses of one forward": (
        "DW224",
        STEP + "a, b = model(value)\na.sum().backward(retain_graph=True)\nb.sum().backward()",
        "b.sum().backward()",
    ),
    "a head next to DDP": (
        "DW208",
        NET + HEAD + "optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], 0.1)\n"
        "head(model(value)).sum().backward()",
        "optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], 0.1)",
    ),
    "a copy before DDP": (
        "DW231",
        NET + "net = Net()\nteacher = copy.deepcopy(net)\nmodel = DDP(net)",
        "teacher = copy.deepcopy(net)",
    ),
    "a text that is compared": (
        "DW114",
        'RANK = os.environ.get("RANK", 0)\ndef log(text):\n    if RANK == 0:\n        print(text)',
        'RANK = os.environ.get("RANK", 0)',
    ),
    "a hash of a name": (
        "DW414",
        "names = [name for name in os.listdir('.') if hash(name) % world_size == rank]",
        "names = [name for name in os.listdir('.') if hash(name) % world_size == rank]",
    ),
}
SILENT = {
    "an epoch of rank 0, which alone reads the data": (
        "DW229",
        STEP
        + EPOCH_OF_ONE
        + "    for x in torch.utils.data.DataLoader(data, sampler=sampler):\n        model.module(x)",
    ),
    "an epoch of rank 0, which alone takes one batch": (
        "DW229",
        STEP
        + "loader = torch.utils.data.DataLoader(data, sampler=sampler)\n"
        + EPOCH_OF_ONE
        + "    x = next(iter(loader))",
    ),
    "an epoch of rank 0 for data of its own": (
        "DW229",
        STEP
        + "own = torch.utils.data.DistributedSampler(tests)\n"
        + EPOCH_OF_ONE.replace("sampler", "own")
        + READ_BY_ALL,
    ),
    "a view": ("DW421", "dist.all_reduce(value.data)\ndist.broadcast(value.view(-1), 0)\ndist.all_reduce(value[:1])"),
    "a new tensor to wait": ("DW421", "dist.all_reduce(torch.zeros(1).cuda())"),
    "a copy that is sent": (
        "DW421",
        "if rank == 0:\n    dist.broadcast(value.float(), 0)\nelse:\n    dist.broadcast(value, 0)",
    ),
    "a handle": ("DW422", "work = dist.all_reduce(value, async_op=True)\nwork.wait()"),
    "a result that nothing reads": ("DW422", "done = dist.all_reduce(value)\nprint(value)"),
    "a wrapper that returns it": ("DW422", "def reduce(x):\n    return dist.all_reduce(x)\nreduce(value)"),
    "a float for no samples": (
        "DW423",
        "def share(hits, n):\n    mean = torch.tensor(hits / n if n else 0.0)\n    dist.all_reduce(mean)\nshare(1, 2)",
    ),
    "a type for both": (
        "DW423",
        "mean = torch.tensor(1 / n if n else 0, dtype=torch.float32)\ndist.all_reduce(mean)",
    ),
    "equal sizes for all": (
        "DW424",
        "sizes = [2] * world_size\ndist.all_to_all_single(out, value, sizes, sizes)",
    ),
    "sizes that were exchanged": (
        "DW424",
        "sizes = torch.bincount(target).tolist()\ndist.all_to_all_single(out, value, others, sizes)",
    ),
    "a scheduler of all": ("DW229", STEP + "scheduler.step()\nif rank == 0:\n    print(scheduler.get_last_lr())"),
    "an optimizer that only rank 0 has": (
        "DW229",
        STEP + "if rank == 0:\n    own = torch.optim.SGD(head.parameters(), lr=0.1)\n    own.step()",
    ),
    "gradients averaged before the step": ("DW230", BY_HAND.format("average(net)", "optimizer.step()")),
    "a forward pass for each loss": (
        "DW224",
        STEP + "model(value).sum().backward(retain_graph=True)\nmodel(value).sum().backward()",
    ),
    "the first backward without reduction": (
        "DW224",
        STEP
        + "a, b = model(value)\nwith model.no_sync():\n    a.sum().backward(retain_graph=True)\nb.sum().backward()",
    ),
    "a head inside of DDP": (
        "DW208",
        NET + "body, head = Net(), Net()\nmodel = DDP(nn.Sequential(body, head))\n"
        "optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], 0.1)\nmodel(value).sum().backward()",
    ),
    "a head that is reduced by hand": (
        "DW208",
        NET + HEAD + "optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], 0.1)\n"
        "head(model(value)).sum().backward()\nfor each in head.parameters():\n    dist.all_reduce(each.grad)",
    ),
    "a copy after DDP": ("DW231", NET + "model = DDP(Net())\nteacher = copy.deepcopy(model.module)"),
    "a copy of a seeded model": (
        "DW231",
        NET + "torch.manual_seed(0)\nnet = Net()\nteacher = copy.deepcopy(net)\nmodel = DDP(net)",
    ),
    "a number that is compared": ("DW114", 'RANK = int(os.environ.get("RANK", 0))\nif RANK == 0:\n    print()'),
    "a text that is compared with one": ("DW114", 'if os.environ["RANK"] == "0":\n    print()'),
    "a hash of a number": ("DW414", "for number in range(8):\n    print(hash(number) % world_size == rank)"),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_is_lost_or_not_shared_is_found(name: str) -> None:
    rule, snippet, line = FOUND[name]
    assert lines(START + textwrap.dedent(snippet), rule) == [line]


@pytest.mark.parametrize("name", SILENT)
def test_what_looks_like_it_is_not(name: str) -> None:
    rule, snippet = SILENT[name]
    assert lines(START + textwrap.dedent(snippet), rule) == []
