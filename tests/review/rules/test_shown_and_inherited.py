"""Objects shown as text, models under attributes of a base class, and texts made of objects."""

import pytest
from helpers.review_snippets import lines

START = """
import json
import pickle
from collections import defaultdict
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
"""
METERS = (
    START
    + """
class Meter:
    def __init__(self):
        self.total = 0.0
    def add(self, value):
        self.total += value
    @property
    def shared(self):
        t = torch.tensor([self.total])
        dist.all_reduce(t)
        return t.item()
    def __str__(self):
        return f"{self.shared:.3f}"
class Meters:
    def __init__(self):
        self.held = defaultdict(FACTORY)
    def add(self, name, value):
        self.held[name].add(value)
    def __str__(self):
        return ", ".join(f"{name} {meter}" for name, meter in self.held.items())
meters = Meters()
for step in range(3):
    meters.add("loss", 0.5)
    BEFORE
    if rank == 0:
        SHOWN
"""
)
TASK = (
    START
    + """
class Task(BASE):
    def __init__(self, net):
        self.net = net
    def setup(self):
        self.wrapped = DDP(self.net)
    def run(self, data):
        self.setup()
        opt = torch.optim.SGD(self.net.parameters(), 0.1)
        for x in data:
            loss = self.loss_of(x)
            loss.backward()
            opt.step()
class Reconstruction(Task):
    def __init__(self):
        super().__init__(nn.Linear(2, 2))
    def loss_of(self, x):
        return (CALLED(x) - x).pow(2).mean()
Reconstruction().run([torch.ones(2, 2)])
"""
)
MAILBOX = (
    START
    + """
store = dist.distributed_c10d._get_default_store()
plan = {"lr": 0.1, "steps": 3}
if rank == 0:
    store.set("plan", VALUE)
else:
    plan = store.get("plan")
"""
)
COMPARED = (
    START
    + """
net = nn.Linear(2, 2)
model = DDP(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
FIRST(torch.ones(2, 2)).sum().backward()
AFTER
THEN(torch.ones(2, 2)).sum().backward()
LAST
"""
)


def filled(text: str, **parts: str) -> str:
    for name, part in parts.items():
        text = text.replace(name, part)
    return text


FOUND: dict[str, tuple[str, str, str]] = {
    "an f-string": ("DW401", filled(METERS, FACTORY="Meter", BEFORE="", SHOWN='print(f"{meters}")'), ""),
    "print": ("DW401", filled(METERS, FACTORY="Meter", BEFORE="", SHOWN="print(meters)"), ""),
    "str": ("DW401", filled(METERS, FACTORY="Meter", BEFORE="", SHOWN='print("m " + str(meters))'), ""),
    "format": ("DW401", filled(METERS, FACTORY="Meter", BEFORE="", SHOWN='print("{}".format(meters))'), ""),
    "percent": ("DW401", filled(METERS, FACTORY="Meter", BEFORE="", SHOWN='print("%s" % meters)'), ""),
    "percent of two": (
        "DW401",
        filled(METERS, FACTORY="Meter", BEFORE="", SHOWN='print("%d %s" % (step, meters))'),
        "",
    ),
    "a lambda": ("DW401", filled(METERS, FACTORY="lambda: Meter()", BEFORE="", SHOWN="print(meters)"), ""),
    "an element": ("DW401", filled(METERS, FACTORY="Meter", BEFORE="", SHOWN='print(meters.held["loss"].shared)'), ""),
    "the inner model of a base class": ("DW207", filled(TASK, BASE="object", CALLED="self.net"), ""),
    "the inner model, by DDP": ("DW207", filled(TASK, BASE="object", CALLED="self.wrapped.module"), ""),
    "a dict as a value": ("DW460", MAILBOX.replace("VALUE", "plan"), 'store.set("plan", plan)'),
    "a step behind the inner model": (
        "DW207",
        filled(COMPARED, FIRST="model", AFTER="opt.step()", THEN="net", LAST="opt.step()"),
        "",
    ),
    "only the inner model": ("DW207", filled(COMPARED, FIRST="net", AFTER="", THEN="net", LAST="opt.step()"), ""),
}
HEALTHY: dict[str, tuple[str, str]] = {
    "a text made before": ("DW401", filled(METERS, FACTORY="Meter", BEFORE="text = str(meters)", SHOWN="print(text)")),
    "an f-string made before": (
        "DW401",
        filled(METERS, FACTORY="Meter", BEFORE='text = f"{meters}"', SHOWN="print(text)"),
    ),
    "the number of meters": ("DW401", filled(METERS, FACTORY="Meter", BEFORE="", SHOWN="print(len(meters.held))")),
    "meters that share nothing": (
        "DW401",
        filled(METERS, FACTORY="Meter", BEFORE="", SHOWN="print(meters)").replace("dist.all_reduce(t)", ""),
    ),
    "numbers": (
        "DW401",
        filled(METERS, FACTORY="float", BEFORE="", SHOWN='print("%s" % meters.held["loss"])').replace(
            ".add(value)", ""
        ),
    ),
    "the wrapper of a base class": ("DW207", filled(TASK, BASE="object", CALLED="self.wrapped")),
    "json": ("DW460", MAILBOX.replace("VALUE", "json.dumps(plan)")),
    "pickle": ("DW460", MAILBOX.replace("VALUE", "pickle.dumps(plan)")),
    "text": ("DW460", MAILBOX.replace("VALUE", "str(plan)")),
    "a comparison behind the step": (
        "DW207",
        filled(COMPARED, FIRST="model", AFTER="opt.step()", THEN="net", LAST="print(net.weight.grad)"),
    ),
    "a comparison without a step": (
        "DW207",
        filled(COMPARED, FIRST="model", AFTER="net.zero_grad()", THEN="net", LAST=""),
    ),
}


@pytest.mark.parametrize(("rule", "code", "line"), FOUND.values(), ids=FOUND)
def test_found(rule: str, code: str, line: str) -> None:
    found = lines(code, rule)
    assert found
    assert not line or line in found


@pytest.mark.parametrize(("rule", "code"), HEALTHY.values(), ids=HEALTHY)
def test_look_alikes(rule: str, code: str) -> None:
    assert lines(code, rule) == []
