"""Values that each rank computes or draws for itself where all ranks need one, with look-alikes that are right."""

import textwrap

import pytest
from helpers.review_snippets import lines

START = """
import copy, itertools, random
import numpy as np
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
inputs, labels = torch.randn(120, 4), torch.randint(0, 2, (120,))
"""
SAMPLED = """
sampler = DistributedSampler(inputs)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=10, sampler=sampler)
{}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for number, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        {}
"""
WRAPPED, PLAIN = "model = DDP(nn.Linear(4, 2))", "model = nn.Linear(4, 2)"
ORDER = """
{}
part = order[rank::world_size]
loader = DataLoader(TensorDataset(inputs[part], labels[part]), batch_size=10)
model = DDP(nn.Linear(4, 2))
for x, y in loader:
    F.cross_entropy(model(x), y).backward()
"""
PART = "\nown, targets = inputs[rank::world_size], labels[rank::world_size]\nmodel = DDP(nn.Linear(4, 2))\n"
WORDS = "\nwords = open('corpus.txt').read().split()\nown = words[rank::world_size]\nmodel = DDP(nn.Embedding(9, 2))\n"
CHANGED = "loss.backward()\n        optimizer.step()\n        with torch.no_grad():\n            "
BY_HAND = (
    "loss.backward()\n        for name, parameter in model.named_parameters():\n"
    "            {}\n        optimizer.step()"
)
SWITCHED = """
model = DDP(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(8):
    {}
    loss = model(inputs).sum()
    {}
    loss.backward()
    if number % 4 == 3:
        optimizer.step()
"""
SWITCH = "model.require_backward_grad_sync = number % 4 == 3"
RESUMED = """
torch.manual_seed({})
model = DDP(nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5)))
state = torch.load("last.pt", map_location="cpu")
torch.set_rng_state(state["random"]{})
model(inputs).sum().backward()
if rank == 0:
    torch.save({{"random": torch.get_rng_state()}}, "last.pt")
"""
KEPT = """
import torch.distributed.checkpoint as dcp
stream = torch.Generator().manual_seed(100 + rank)
model = DDP(nn.Linear(4, 2))
dcp.save({{"model": model.state_dict(), {}: stream.get_state()}}, checkpoint_id="last")
"""
TEACHER = """
teacher, model = nn.Linear(4, 2), DDP(nn.Linear(4, 3))
{}
F.mse_loss(model(inputs), teacher(inputs)).backward()
"""
AVERAGED = """
model = DDP(nn.Linear(4, 2))
average = copy.deepcopy(model.module)
for number in range(8):
    F.mse_loss(model(inputs), average(inputs)).backward()
    {}
        for mean, parameter in zip(average.parameters(), model.module.parameters()):
            mean.mul_(0.9).add_(parameter, alpha=0.1)
"""
JOINED = """
from torch.distributed.algorithms.join import Join
model = DDP(nn.Linear(4, 2))
total = torch.zeros(1)
with Join([model]):
    for number in range(4 + rank):
        model(inputs).sum().backward()
        {}
{}
"""
ZERO = """
from torch.distributed.optim import ZeroRedundancyOptimizer
model = DDP(nn.Linear(4, 2))
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.1)
{}
if rank == 0:
    torch.save(optimizer.state_dict(), "last.pt")
"""
SHARDED = """
from torch.distributed.fsdp import fully_shard
class Average:
    def __init__(self, model):
        self.kept = {{name: each.detach().clone() for name, each in model.named_parameters()}}
    def update(self, model):
        for name, each in model.named_parameters():
            self.kept[name].mul_(0.9).add_(each)
model = nn.Linear(4, 2)
{}
fully_shard(model)
{}
for number in range(4):
    model(inputs).sum().backward()
    average.update(model)
"""
PENDING = """
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(4):
    model(inputs).sum().backward()
    pending = []
    for parameter in model.parameters():
        parameter.grad.div_(world_size)
        pending.append(dist.all_reduce(parameter.grad, async_op=True))
    {}
    for each in pending:
        each.wait()
    {}
"""
BEST = """
held = DataLoader(TensorDataset(inputs, labels), batch_size=10, sampler=DistributedSampler(inputs, shuffle=False))
model, best, kept = DDP(nn.Linear(4, 2)), 9.0, None
for epoch in range(3):
    total = torch.tensor(sum(F.cross_entropy(model(x), y).item() for x, y in held))
    {}
    if total.item() < best:
        best, kept = total.item(), copy.deepcopy(model.module.state_dict())
model.module.load_state_dict(kept)
"""
CACHED = """
class Cached:
    def __init__(self, path):
        self.rows = np.load(path)
if rank == 0:
    np.save("rows.npy", np.ones(4))
{}
cached = Cached("rows.npy")
"""
SKIPPED = """
model, measure = DDP(nn.Linear(4, 2)), nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(TensorDataset(inputs, labels), batch_size=10, sampler=DistributedSampler(inputs)):
    loss = measure(model(x), y)
    bad = (~torch.isfinite(loss)).float()
    {}
    if bad.item() > 0:
        optimizer.zero_grad(set_to_none=True)
        continue
    loss.backward()
"""
METRICS = """
ALL, OFF = {{"nll", "top1", "margin"}}, {{"margin"}}
class Tracker:
    def __init__(self, names):
        self.names = names
        self.totals = {{name: torch.zeros(1) for name in names}}
    def reduce(self):
        for name in {}:
            dist.all_reduce(self.totals[name])
Tracker(ALL - OFF).reduce()
"""
SHARED_LIST = "\nconfig = []\n{}\ndist.broadcast_object_list(config, src=0)\n"
TESTED = """
rows = inputs[:33]
test = DataLoader(TensorDataset(rows, labels[:33]), sampler=DistributedSampler(rows, shuffle=False))
model, right, count = DDP(nn.Linear(4, 2)), torch.zeros(1), torch.zeros(1)
for x, y in test:
    right += (model(x).argmax(1) == y).sum()
    count += len(y)
dist.all_reduce(right)
{}
"""
FROZEN = """
model = {}(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)){})
for each in {}.parameters():
    each.requires_grad = False
{}
for number in range(4):
    model(inputs).sum().backward()
"""
ON_GPU = """
local_rank = int(os.environ["LOCAL_RANK"])
{}
model = DDP(nn.Linear(4, 2).to(local_rank), device_ids=[local_rank])
for number in range(4):
    batch = inputs.cuda()
    model(batch).sum().backward()
"""
LIGHTNING = """
def finish(trainer, path):
    if trainer.is_global_zero:
        path.parent.mkdir()
        {}
    {}
"""
REPEATED = """
sampler = DistributedSampler(inputs{})
loader = DataLoader(TensorDataset(inputs, labels), batch_size=10, sampler=sampler)
model, batches = DDP(nn.Linear(4, 2)), itertools.cycle(loader)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for number in range(len(loader)):
        x, y = next(batches)
        F.cross_entropy(model(x), y).backward()
"""
FOUND = {
    "a loader that is cycled": (
        "DW203",
        REPEATED.format(""),
        "model, batches = DDP(nn.Linear(4, 2)), itertools.cycle(loader)",
    ),
    "parameters frozen behind the wrap": (
        "DW228",
        FROZEN.format("DDP", "", "model.module[0]", ""),
        "for each in model.module[0].parameters():",
    ),
    "the current GPU of all": ("DW102", ON_GPU.format(""), "batch = inputs.cuda()"),
    "a column": ("DW439", "\ndist.all_reduce(inputs[:, 1])", "dist.all_reduce(inputs[:, 1])"),
    "every second row": ("DW439", "\ndist.broadcast(inputs[::2], src=0)", "dist.broadcast(inputs[::2], src=0)"),
    "a checkpoint of the first rank": (
        "DW260",
        LIGHTNING.format("trainer.save_checkpoint(path)", "pass"),
        "trainer.save_checkpoint(path)",
    ),
    "a barrier of the first rank": (
        "DW260",
        LIGHTNING.format("trainer.strategy.barrier()", "pass"),
        "trainer.strategy.barrier()",
    ),
    "a permutation by a seed of each rank": (
        "DW250",
        ORDER.format("order = torch.randperm(120, generator=torch.Generator().manual_seed(rank))"),
        "order = torch.randperm(120, generator=torch.Generator().manual_seed(rank))",
    ),
    "a shuffle without a seed": (
        "DW250",
        ORDER.format("order = list(range(120))\nrandom.shuffle(order)"),
        "random.shuffle(order)",
    ),
    "a permutation of numpy by the rank": (
        "DW250",
        ORDER.format("np.random.seed(rank)\norder = np.random.permutation(120)"),
        "order = np.random.permutation(120)",
    ),
    "a mean of the part": ("DW251", PART + "mean = own.mean(0)\nmodel(own - mean)", "mean = own.mean(0)"),
    "weights of the part": (
        "DW251",
        PART + "counts = torch.bincount(targets)\nmeasure = nn.CrossEntropyLoss(weight=1 / counts)",
        "measure = nn.CrossEntropyLoss(weight=1 / counts)",
    ),
    "numbers of the words of the part": (
        "DW251",
        WORDS + "known = {word: number for number, word in enumerate(sorted(set(own)))}",
        "known = {word: number for number, word in enumerate(sorted(set(own)))}",
    ),
    "noise of each rank in the parameters": (
        "DW252",
        "\ntorch.manual_seed(rank)"
        + SAMPLED.format(
            WRAPPED, CHANGED + "for each in model.parameters():\n                each.add_(torch.randn_like(each))"
        ),
        "each.add_(torch.randn_like(each))",
    ),
    "a mask by the data of the rank": (
        "DW252",
        SAMPLED.format(WRAPPED, CHANGED + "model.module.weight.mul_(x.mean(0) > 0)"),
        "model.module.weight.mul_(x.mean(0) > 0)",
    ),
    "a rate by the loss of the rank": (
        "DW252",
        SAMPLED.format(
            WRAPPED,
            "loss.backward()\n        for group in optimizer.param_groups:\n"
            '            group["lr"] = 0.1 * loss.item()',
        ),
        'group["lr"] = 0.1 * loss.item()',
    ),
    "a switch behind the forward pass": ("DW253", SWITCHED.format("pass", SWITCH), SWITCH),
    "the random state of rank 0": (
        "DW254",
        RESUMED.format("rank", ""),
        'torch.set_rng_state(state["random"])',
    ),
    "one name for the states of the ranks": (
        "DW254",
        KEPT.format('"stream"'),
        'dcp.save({"model": model.state_dict(), "stream": stream.get_state()}, checkpoint_id="last")',
    ),
    "gradients that nothing averages": (
        "DW255",
        SAMPLED.format(PLAIN, "loss.backward()\n        optimizer.step()"),
        "optimizer.step()",
    ),
    "parameters of rank 0 in each step": (
        "DW255",
        SAMPLED.format(
            PLAIN,
            "loss.backward()\n        optimizer.step()\n        for each in model.parameters():\n"
            "            dist.broadcast(each.data, 0)",
        ),
        "optimizer.step()",
    ),
    "parameters that are left out": (
        "DW255",
        SAMPLED.format(
            PLAIN,
            BY_HAND.format(
                'if "bias" not in name:\n                dist.all_reduce(parameter.grad)\n'
                "                parameter.grad /= world_size"
            ),
        ),
        'if "bias" not in name:',
    ),
    "a state that one rank loads": (
        "DW256",
        TEACHER.format('if rank == 0:\n    teacher.load_state_dict(torch.load("teacher.pt"))'),
        'teacher.load_state_dict(torch.load("teacher.pt"))',
    ),
    "an average that one rank keeps": (
        "DW256",
        AVERAGED.format("if rank == 0:"),
        "mean.mul_(0.9).add_(parameter, alpha=0.1)",
    ),
    "a reduction under Join": ("DW257", JOINED.format("dist.all_reduce(total)", ""), "dist.all_reduce(total)"),
    "parts of a state": ("DW258", ZERO.format(""), 'torch.save(optimizer.state_dict(), "last.pt")'),
    "copies from before the shards": (
        "DW259",
        SHARDED.format("average = Average(model)", ""),
        "average = Average(model)",
    ),
    "a step while gradients are under way": ("DW230", PENDING.format("optimizer.step()", ""), "optimizer.step()"),
    "a step by the loss of the rank": (
        "DW229",
        SAMPLED.format(WRAPPED, "loss.backward()\n        if loss.item() < 5:\n            optimizer.step()"),
        "optimizer.step()",
    ),
    "the best state of each rank": (
        "DW242",
        BEST.format("pass"),
        "best, kept = total.item(), copy.deepcopy(model.module.state_dict())",
    ),
    "the largest gradient": (
        "DW432",
        SAMPLED.format(PLAIN, BY_HAND.format("dist.all_reduce(parameter.grad, op=dist.ReduceOp.MAX)")),
        "dist.all_reduce(parameter.grad, op=dist.ReduceOp.MAX)",
    ),
    "the sum of the parameters": (
        "DW432",
        SAMPLED.format(
            PLAIN,
            "loss.backward()\n        optimizer.step()\n        for each in model.parameters():\n"
            "            dist.all_reduce(each.data)",
        ),
        "dist.all_reduce(each.data)",
    ),
    "a mean times the ranks": (
        "DW235",
        SAMPLED.format(WRAPPED, "loss = F.cross_entropy(model(x), y) * world_size\n        loss.backward()"),
        "loss.backward()",
    ),
    "rounds without a step that is in them": (
        "DW213",
        SAMPLED.format(
            WRAPPED,
            "if number % 3 != 2:\n            with model.no_sync():\n                loss.backward()\n"
            "        if number % 2 == 1:\n            optimizer.step()",
        ),
        "with model.no_sync():",
    ),
    "a class that reads what rank 0 writes": ("DW505", CACHED.format(""), 'cached = Cached("rows.npy")'),
    "a loss that is not finite": ("DW406", SKIPPED.format("pass"), "if bad.item() > 0:"),
    "metrics in the order of a set": ("DW233", METRICS.format("self.names"), "for name in self.names:"),
    "a list that only the root fills": (
        "DW417",
        SHARED_LIST.format("if rank == 0:\n    config.append(1)"),
        "dist.broadcast_object_list(config, src=0)",
    ),
    "a ratio of two sums over repeated samples": (
        "DW430",
        TESTED.format("dist.all_reduce(count)\nright / count"),
        "test = DataLoader(TensorDataset(rows, labels[:33]), sampler=DistributedSampler(rows, shuffle=False))",
    ),
    "a sum over repeated samples": (
        "DW430",
        TESTED.format("right / 33").replace("    count += len(y)\n", ""),
        "test = DataLoader(TensorDataset(rows, labels[:33]), sampler=DistributedSampler(rows, shuffle=False))",
    ),
}
SILENT = {
    "a loader in one order that is cycled": ("DW203", REPEATED.format(", shuffle=False")),
    "parameters frozen before the wrap": (
        "DW228",
        FROZEN.format("nn.Sequential", "", "model[0]", "model = DDP(model)"),
    ),
    "frozen parameters that may be unused": (
        "DW228",
        FROZEN.format("DDP", ", find_unused_parameters=True", "model.module[0]", ""),
    ),
    "the GPU of the rank": ("DW102", ON_GPU.format("torch.cuda.set_device(local_rank)")),
    "the GPU that another module may select": ("DW102", ON_GPU.format("import helpers\nhelpers.start()")),
    "rows in a row": ("DW439", "\ndist.all_reduce(inputs[1:3])\ndist.all_reduce(inputs[1, 1:3])"),
    "a column in a row": ("DW439", "\ndist.all_reduce(inputs[:, 1].contiguous())"),
    "a checkpoint of all ranks": ("DW260", LIGHTNING.format("print(path)", "trainer.save_checkpoint(path)")),
    "a permutation of all": (
        "DW250",
        ORDER.format("order = torch.randperm(120, generator=torch.Generator().manual_seed(7))"),
    ),
    "a shuffle by one seed": ("DW250", ORDER.format("random.seed(3)\norder = list(range(120))\nrandom.shuffle(order)")),
    "a shuffle of the part": ("DW250", ORDER.format("order = list(range(120))") + "random.shuffle(part)"),
    "a generator of all": ("DW250", ORDER.format("order = list(range(120))\nrandom.Random(3).shuffle(order)")),
    "an order that is sent": (
        "DW250",
        ORDER.format("order = list(range(120))\nrandom.shuffle(order)\ndist.broadcast_object_list(order, 0)"),
    ),
    "as many places on each rank": ("DW217", ORDER.format("order = np.random.permutation(120)")),
    "a mean of all": ("DW251", "\nmean = inputs.mean(0)" + PART + "model(own - mean)"),
    "a mean of each sample": ("DW251", PART + "mean = own.mean(1)\nmodel(own - mean)"),
    "weights of all": (
        "DW251",
        PART + "counts = torch.bincount(targets)\ndist.all_reduce(counts)\n"
        "measure = nn.CrossEntropyLoss(weight=1 / counts)",
    ),
    "numbers of the words of all": (
        "DW251",
        WORDS + "known = {word: number for number, word in enumerate(sorted(set(words)))}",
    ),
    "noise of all in the parameters": (
        "DW252",
        SAMPLED.format(
            WRAPPED, CHANGED + "for each in model.parameters():\n                each.add_(torch.randn_like(each))"
        ),
    ),
    "a mask by the data of all": (
        "DW252",
        SAMPLED.format(
            WRAPPED, "mask = x.mean(0)\n        dist.all_reduce(mask)\n        model.module.weight.mul_(mask > 0)"
        ),
    ),
    "a rate by the number of the step": (
        "DW252",
        SAMPLED.format(WRAPPED, 'for group in optimizer.param_groups:\n            group["lr"] = 0.1 / (number + 1)'),
    ),
    "gradients that are changed": (
        "DW252",
        SAMPLED.format(
            WRAPPED, "loss.backward()\n        for each in model.parameters():\n            each.grad.mul_(0.5)"
        ),
    ),
    "a switch before the forward pass": ("DW253", SWITCHED.format(SWITCH, "pass")),
    "a switch that is always on": ("DW253", SWITCHED.format("pass", "model.require_backward_grad_sync = True")),
    "one random state of all": ("DW254", RESUMED.format("0", "")),
    "the random state of the rank": ("DW254", RESUMED.format("rank", "[rank]")),
    "a name for the state of each rank": ("DW254", KEPT.format('f"stream_{rank}"')),
    "gradients that DDP averages": ("DW255", SAMPLED.format(WRAPPED, "loss.backward()\n        optimizer.step()")),
    "gradients that are averaged by hand": (
        "DW255",
        SAMPLED.format(
            PLAIN, BY_HAND.format("dist.all_reduce(parameter.grad)\n            parameter.grad /= world_size")
        ),
    ),
    "parameters without a gradient": (
        "DW255",
        SAMPLED.format(
            PLAIN, BY_HAND.format("if parameter.grad is not None:\n                dist.all_reduce(parameter.grad)")
        ),
    ),
    "parameters that are averaged later": (
        "DW255",
        SAMPLED.format(PLAIN, "loss.backward()\n        optimizer.step()")
        + "    for each in model.parameters():\n        dist.all_reduce(each.data, op=dist.ReduceOp.AVG)",
    ),
    "a state that all load": ("DW256", TEACHER.format('teacher.load_state_dict(torch.load("teacher.pt"))')),
    "a state that is sent": (
        "DW256",
        TEACHER.format(
            'if rank == 0:\n    teacher.load_state_dict(torch.load("teacher.pt"))\n'
            "for each in teacher.parameters():\n    dist.broadcast(each.data, 0)"
        ),
    ),
    "a state before the wrap": (
        "DW256",
        '\nmodel = nn.Linear(4, 2)\nif rank == 0:\n    model.load_state_dict(torch.load("first.pt"))\n'
        "model = DDP(model)\nmodel(inputs).sum().backward()",
    ),
    "an average that all keep": ("DW256", AVERAGED.format("if True:")),
    "a sum behind Join": ("DW257", JOINED.format("total += 1", "dist.all_reduce(total)")),
    "a state that is put together": ("DW258", ZERO.format("optimizer.consolidate_state_dict(to=0)")),
    "copies of the shards": ("DW259", SHARDED.format("", "average = Average(model)")),
    "a step behind the wait": ("DW230", PENDING.format("pass", "optimizer.step()")),
    "a step by the number of the round": (
        "DW229",
        SAMPLED.format(
            WRAPPED,
            "loss.backward()\n        if number % 2 == 1 or number + 1 == len(loader):\n            optimizer.step()",
        ),
    ),
    "the best state of all": ("DW242", BEST.format("dist.all_reduce(total)")),
    "the largest norm": (
        "DW432",
        SAMPLED.format(
            PLAIN,
            "loss.backward()\n        norm = torch.stack([each.grad.norm() for each in model.parameters()]).max()\n"
            "        dist.all_reduce(norm, op=dist.ReduceOp.MAX)",
        ),
    ),
    "the mean of the parameters": (
        "DW432",
        SAMPLED.format(
            PLAIN,
            "for each in model.parameters():\n            dist.all_reduce(each.data)\n"
            "            each.data /= world_size",
        ),
    ),
    "a sum times the ranks": (
        "DW235",
        SAMPLED.format(
            WRAPPED,
            "count = torch.tensor(float(len(y)))\n        dist.all_reduce(count)\n"
            '        loss = F.cross_entropy(model(x), y, reduction="sum") * world_size / count\n'
            "        loss.backward()",
        ),
    ),
    "a class that reads behind a barrier": ("DW505", CACHED.format("dist.barrier()")),
    "a loss that is finite on all ranks": ("DW406", SKIPPED.format("dist.all_reduce(bad)")),
    "metrics in one order": ("DW233", METRICS.format("sorted(self.names)")),
    "a list of one length": ("DW417", SHARED_LIST.format("config.append(1 if rank == 0 else None)")),
    "a ratio of two sums over samples that the ranks divide": (
        "DW430",
        TESTED.format("dist.all_reduce(count)\nright / count").replace("33", "32"),
    ),
    "a sum of the losses of a training in one order": (
        "DW430",
        TESTED.format("dist.all_reduce(count)").replace("count +=", "model(x).sum().backward()\n    count +="),
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_a_rank_has_for_itself_is_found(name: str) -> None:
    rule, snippet, line = FOUND[name]
    assert lines(START + textwrap.dedent(snippet), rule) == [line]


@pytest.mark.parametrize("name", SILENT)
def test_what_all_ranks_share_is_not(name: str) -> None:
    rule, snippet = SILENT[name]
    assert lines(START + textwrap.dedent(snippet), rule) == []
