"""Values of one rank that objects carry: loggers, states from files, attributes set later, handles, running totals."""

import textwrap

import pytest
from helpers.review_snippets import lines

START = """
import argparse, json, logging
import numpy as np
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
model = DDP(nn.Linear(2, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.arange(8.0)[rank::world_size]
"""
REDUCE = "dist.all_reduce(torch.ones(1))"
LOGGER = """
log = logging.getLogger({name})
{level}
for step in range(9):
    {test}
        dist.all_reduce(torch.ones(1))
"""
STOPPER = """
class Stopper:
    def __init__(self):
        self.best, self.misses = 1e9, 0
    def resume(self, path):
        state = None
        {read}
            state = torch.load(path, map_location="cpu")
        {share}
        if state is not None:
            {take}
    def is_over(self, value):
        self.misses = 0 if value < self.best else self.misses + 1
        return self.misses > 3
stopper = Stopper()
stopper.resume("stopper.pt")
for epoch in range(9):
    model(torch.ones(2)).sum().backward()
    total = torch.ones(1)
    dist.all_reduce(total)
    if stopper.is_over(total.item()):
        break
"""
BALANCE = """
class Balance:
    def __init__(self):
        self.last = 1e9
    def note(self, loss):
        value = loss.detach().clone()
        {share}
        self.last = value.item()
    def is_due(self, step):
        return self.last > 0.5 or step % 4 == 0
balance = Balance()
for step in range(9):
    if balance.is_due(step):
        loss = model(data).sum()
        loss.backward()
    balance.note(model.module(data).mean())
"""
HISTOGRAM = """
part = slice(rank * len(labels) // world_size, (rank + 1) * len(labels) // world_size)
class Histogram:
    def __init__(self):
        self.counts = None
    def add(self, given):
        new = torch.bincount(given{size}).float()
        self.counts = new if self.counts is None else self.counts + new
    def shared(self):
        dist.all_reduce(self.counts)
        return self.counts
histogram = Histogram()
histogram.add(labels[part])
histogram.shared()
"""
METER = """
class Meter:
    def __init__(self):
        self.total = torch.zeros(1)
    def add(self, value):
        self.total += value
    def reset(self):
        self.total = torch.zeros(1)
    def share(self):
        {share}
{before}
for epoch in range(3):
    {made}
    for batch in data:
        meter.add(batch)
        {inner}
    {outer}
"""
IN_PLACE = "dist.all_reduce(self.total)"
THERE_AND_BACK = """sent = torch.stack([self.total])
        dist.all_reduce(sent)
        self.total = sent[0]"""
COPIED = """sent = self.total.clone()
        dist.all_reduce(sent)
        return sent"""
AVERAGER = """
class Averager:
    def __init__(self, params):
        self.params, self.handle = list(params), None
        self.flat = torch.zeros(sum(each.numel() for each in self.params))
    def begin(self):
        torch.cat([each.grad.view(-1) for each in self.params], out=self.flat)
        self.handle = dist.all_reduce(self.flat, async_op=True)
    def end(self):
        {end}
averager = Averager(model.parameters())
for batch in data:
    averager.begin()
    averager.end()
"""
OVERFLOW = """
net = nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def average(params):
    for each in params:
        dist.all_reduce(each.grad)
        each.grad /= world_size
for step in range(9):
    net(torch.ones(2) * rank).sum().backward()
    {before}
    average(net.parameters())
    {after}
"""
TEST = "bad = any(not torch.isfinite(each.grad).all() for each in net.parameters())"
FROZEN = """
torch.manual_seed({first})
teacher = nn.Sequential(nn.Linear(2, 4), nn.Tanh()).eval()
{between}
student = DDP(nn.Linear(2, 4))
for batch in range(9):
    (student(torch.ones(2)) - teacher(torch.ones(2))).sum().backward()
"""
GROUP = """
parser = argparse.ArgumentParser()
parser.add_argument("--scorers", type=int, default=1)
args = parser.parse_args()
class Layout:
    def __init__(self, count):
        self.ranks = list(range(world_size - count, world_size))
        self.scores = rank in self.ranks
        self.group = None
        group = dist.new_group(self.ranks)
        if self.scores:
            self.group = group
    def agree(self, tensor):
        dist.broadcast(tensor, src={root}, group=self.group)
layout = Layout(args.scorers)
if layout.scores:
    layout.agree(torch.ones(1))
"""
PARSED = """
def parse(line):
    return torch.tensor(json.loads(line))
def collate(rows):
    {collate}
    return torch.stack(found)
rows = open("data.txt").read().splitlines()[rank::world_size]
for step in range(9):
    try:
        batch = collate(rows)
        model(batch).sum().backward()
    except {errors}:
        continue
"""
GUARDED = """found = [torch.ones(2)]
    for each in rows:
        try:
            found.append(parse(each))
        except ValueError:
            pass"""
FOUND = {
    "a logger of which the level depends on the rank": (
        "DW401",
        LOGGER.format(
            name='"train"',
            level="log.setLevel(logging.INFO if rank == 0 else logging.WARNING)",
            test="if log.isEnabledFor(logging.INFO):",
        ),
        REDUCE,
    ),
    "the root of the loggers": (
        "DW401",
        LOGGER.format(
            name="__name__",
            level='logging.basicConfig(level="INFO" if rank == 0 else "ERROR")',
            test="if log.getEffectiveLevel() <= logging.INFO:",
        ),
        REDUCE,
    ),
    "a logger that other ranks turn down": (
        "DW401",
        LOGGER.format(
            name='"train"',
            level="log.setLevel(20)\nif rank != 0:\n    log.setLevel(logging.CRITICAL)",
            test="if log.isEnabledFor(logging.DEBUG + 10 if False else logging.INFO):",
        ),
        REDUCE,
    ),
    "a state that updates all attributes": (
        "DW405",
        STOPPER.format(read="if rank == 0:", share="pass", take="self.__dict__.update(state)"),
        "if stopper.is_over(total.item()):",
    ),
    "a state that updates the mapping of an object": (
        "DW405",
        STOPPER.format(read="if rank == 0:", share="pass", take="vars(self).update(state)"),
        "if stopper.is_over(total.item()):",
    ),
    "a state of which a loop sets each attribute": (
        "DW405",
        STOPPER.format(
            read="if rank == 0:",
            share="pass",
            take="for name, value in state.items():\n                setattr(self, name, value)",
        ),
        "if stopper.is_over(total.item()):",
    ),
    "an attribute set by its name": (
        "DW405",
        STOPPER.format(read="if rank == 0:", share="pass", take='setattr(self, "misses", state["misses"])'),
        "if stopper.is_over(total.item()):",
    ),
    "a loss that a later round asks for": ("DW406", BALANCE.format(share="pass"), "if balance.is_due(step):"),
    "counts of the rank's part": (
        "DW427",
        "labels = torch.randint(0, 9, (80,))\n" + HISTOGRAM.format(size=""),
        "dist.all_reduce(self.counts)",
    ),
    "a total that each round sums up": (
        "DW436",
        METER.format(share=IN_PLACE, before="meter = Meter()", made="pass", inner="meter.share()", outer="pass"),
        IN_PLACE,
    ),
    "a total that goes there and back": (
        "DW436",
        METER.format(share=THERE_AND_BACK, before="meter = Meter()", made="pass", inner="pass", outer="meter.share()"),
        "dist.all_reduce(sent)",
    ),
    "a total in a loop over attributes": (
        "DW436",
        METER.format(
            share="for each in (self.total,):\n            dist.all_reduce(each)",
            before="meter = Meter()",
            made="pass",
            inner="meter.share()",
            outer="pass",
        ),
        "dist.all_reduce(each)",
    ),
    "a buffer that is divided before its sum is there": (
        "DW415",
        AVERAGER.format(end="self.flat.div_(world_size)\n        self.handle.wait()"),
        "self.flat.div_(world_size)",
    ),
    "a buffer that is copied before its sum is there": (
        "DW415",
        AVERAGER.format(end="parts = self.flat.clone()\n        self.handle.wait()\n        return parts"),
        "parts = self.flat.clone()",
    ),
    "own gradients that decide about the step": (
        "DW458",
        OVERFLOW.format(before=TEST, after="if not bad:\n        optimizer.step()"),
        TEST,
    ),
    "one gradient that decides about the step": (
        "DW458",
        OVERFLOW.format(
            before="bad = net.weight.grad.isnan().any()",
            after="if bad:\n        continue\n    optimizer.step()",
        ),
        "bad = net.weight.grad.isnan().any()",
    ),
    "a frozen model of an own seed": (
        "DW206",
        FROZEN.format(first="rank", between="teacher.requires_grad_(False)"),
        "torch.manual_seed(rank)",
    ),
    "an array that every rank begins": (
        "DW412",
        'store = np.memmap("out.bin", dtype="float32", mode="w+", shape=(8, 2))\nstore[rank] = 1',
        'store = np.memmap("out.bin", dtype="float32", mode="w+", shape=(8, 2))',
    ),
    "an archive that every rank begins": (
        "DW412",
        'import h5py\nwith h5py.File("out.h5", mode="w") as store:\n    store[str(rank)] = 1',
        'with h5py.File("out.h5", mode="w") as store:',
    ),
    "a root that is no member of the last ranks": (
        "DW446",
        GROUP.format(root="0"),
        "dist.broadcast(tensor, src=0, group=self.group)",
    ),
    "a record that cannot be parsed": (
        "DW411",
        PARSED.format(collate="found = [parse(each) for each in rows]", errors="ValueError"),
        "except ValueError:",
    ),
    "any error behind records that are parsed with care": (
        "DW411",
        PARSED.format(collate=GUARDED, errors="Exception"),
        "except Exception:",
    ),
}
SILENT = {
    "a logger with one level on all ranks": (
        "DW401",
        LOGGER.format(name='"train"', level="log.setLevel(logging.INFO)", test="if log.isEnabledFor(logging.INFO):"),
    ),
    "a level that all ranks reach": (
        "DW401",
        LOGGER.format(
            name='"train"',
            level="log.setLevel(logging.DEBUG if rank == 0 else logging.INFO)",
            test="if log.isEnabledFor(logging.WARNING):",
        ),
    ),
    "the level of another logger": (
        "DW401",
        LOGGER.format(
            name='"train"',
            level='log.setLevel(20)\nlogging.getLogger("other").setLevel(10 if rank == 0 else 40)',
            test="if log.isEnabledFor(logging.INFO):",
        ),
    ),
    "a state that all ranks read": (
        "DW405",
        STOPPER.format(read="if True:", share="pass", take="self.__dict__.update(state)"),
    ),
    "a state that rank 0 sends": (
        "DW405",
        STOPPER.format(
            read="if rank == 0:",
            share="box = [state]\n        dist.broadcast_object_list(box, src=0)\n        state = box[0]",
            take="self.__dict__.update(state)",
        ),
    ),
    "a loss of all ranks": ("DW406", BALANCE.format(share="dist.all_reduce(value)")),
    "counts of a number of classes": (
        "DW427",
        "labels = torch.randint(0, 9, (80,))\n" + HISTOGRAM.format(size=", minlength=9"),
    ),
    "a total of each epoch": (
        "DW436",
        METER.format(share=IN_PLACE, before="", made="meter = Meter()", inner="pass", outer="meter.share()"),
    ),
    "a total that is emptied": (
        "DW436",
        METER.format(
            share=IN_PLACE, before="meter = Meter()", made="meter.reset()", inner="pass", outer="meter.share()"
        ),
    ),
    "a copy of a total": (
        "DW436",
        METER.format(share=COPIED, before="meter = Meter()", made="pass", inner="meter.share()", outer="pass"),
    ),
    "a total that is summed up at the end": (
        "DW436",
        METER.format(share=IN_PLACE, before="meter = Meter()", made="pass", inner="pass", outer="pass")
        + "meter.share()\n",
    ),
    "a buffer behind its sum": (
        "DW415",
        AVERAGER.format(end="self.handle.wait()\n        self.flat.div_(world_size)"),
    ),
    "the shape of a buffer": (
        "DW415",
        AVERAGER.format(end="size = self.flat.numel()\n        self.handle.wait()\n        return size"),
    ),
    "a handle that another name waits for": (
        "DW415",
        AVERAGER.format(
            end="handle = self.handle\n        handle.wait()\n        self.flat.div_(2)\n        self.handle.wait()"
        ),
    ),
    "an overflow that the ranks agree on": (
        "DW458",
        OVERFLOW.format(
            before=TEST + "\n    flag = torch.tensor(float(bad))\n    dist.all_reduce(flag)",
            after="if not flag:\n        optimizer.step()",
        ),
    ),
    "an overflow of the average": (
        "DW458",
        OVERFLOW.format(before="pass", after=TEST + "\n    if not bad:\n        optimizer.step()"),
    ),
    "a check of gradients before accumulated steps": (
        "DW458",
        OVERFLOW.format(before=TEST, after="if (step + 1) % 3 == 0:\n        optimizer.step()"),
    ),
    "a frozen model of one seed": (
        "DW206",
        FROZEN.format(first="0", between="torch.manual_seed(rank)\nteacher.requires_grad_(False)"),
    ),
    "a frozen model that rank 0 sends": (
        "DW206",
        FROZEN.format(
            first="rank",
            between="teacher.requires_grad_(False)\nfor each in teacher.parameters():\n    dist.broadcast(each, 0)",
        ),
    ),
    "an array that one rank begins": (
        "DW412",
        'if rank == 0:\n    np.memmap("out.bin", mode="w+", shape=(8, 2)).flush()\ndist.barrier()\n'
        'store = np.memmap("out.bin", mode="r+", shape=(8, 2))',
    ),
    "an array of each rank": ("DW412", 'store = np.memmap(f"out{rank}.bin", mode="w+", shape=(8, 2))'),
    "a root that is a member": ("DW446", GROUP.format(root="self.ranks[0]")),
    "a collective of members alone": ("DW401", GROUP.format(root="self.ranks[0]")),
    "records that are parsed with care": ("DW411", PARSED.format(collate=GUARDED, errors="ValueError")),
    "a reference that one rank trains for itself": (
        "DW229",
        """
        def fit(net):
            own = torch.optim.SGD(net.parameters(), lr=0.1)
            for step in range(9):
                net(torch.ones(2)).sum().backward()
                own.step()
        fit(model)
        if rank == 0:
            fit(nn.Linear(2, 2))
        """,
    ),
    "the loss of the last batch": (
        "DW434",
        """
        def collate(rows):
            found = []
            for each in rows:
                found.append(each * 2)
            return torch.stack(found)
        for step in range(9):
            loss = nn.functional.mse_loss(model(collate(data)), torch.ones(2))
            loss.backward()
        if rank == 0:
            print(loss.item())
        """,
    ),
}


def code(rule: str, snippet: str) -> str:
    start = START.replace("DDP(nn.Linear(2, 2))", "nn.Linear(2, 2)") if rule == "DW458" else START  # reduced by hand
    return start + textwrap.dedent(snippet)


@pytest.mark.parametrize("name", FOUND)
def test_what_an_object_carries_is_found(name: str) -> None:
    rule, snippet, line = FOUND[name]
    assert lines(code(rule, snippet), rule) == [line]


@pytest.mark.parametrize("name", SILENT)
def test_what_the_ranks_share_is_not(name: str) -> None:
    rule, snippet = SILENT[name]
    assert lines(code(rule, snippet), rule) == []
