"""Orders, groups and choices that each rank has of its own: found where ranks wait for each other, else silent."""

import pytest
from ddpwizard.app.review.review import review_text
from helpers.review_snippets import KNOWLEDGE, apply_fixes

INIT = """\
import itertools
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
value = torch.ones(4)
"""
ANSWERS = """\
def ask(answer):
    for number in range(3):
        dist.recv(answer, src=1)
        value.mul_(2)
        dist.send(value, dst=1)
def reply(question):
    for number in range(3):
        {}
if rank == 0:
    ask(torch.zeros(4))
elif rank == 1:
    reply(torch.zeros(4))
"""
WAIT_FIRST = "dist.recv(question, src=0)\n        dist.send(question * 2, dst=0)"
SEND_FIRST = "dist.send(value, dst=0)\n        dist.recv(question, src=0)"
STEPS = """\
def total():
    dist.all_reduce(value)
def parts():
    found = [torch.empty(4) for _ in range(world_size)]
    dist.all_gather(found, value)
weights = {{total: {}, parts: 2}}
for step in sorted(weights, key=weights.get{}):
    step()
"""
GROUPS = """\
pairs = [(n, (n + 1) % world_size) for n in range(world_size)]
groups = {{pair: dist.new_group(pair) for pair in pairs}}
own = [pair for pair in pairs if rank in pair]
for pair in {}:
    dist.all_reduce(value, group=groups[pair])
"""
GROUP = """\
half = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
group = {}
dist.all_reduce(value, group=group)
"""
TABLE = """\
METHODS = {{}}
def method(name):
    def keep(function):
        METHODS[name] = function
        return function
    return keep
@method("mean")
def mean(x):
    dist.all_reduce(x)
    return x / world_size
@method("first")
def first(x):
    dist.broadcast(x, src=0)
    return x
result = METHODS[{}](value)
"""
INVALID = """\
model = DDP(nn.Linear(4, 1), broadcast_buffers=False)
noise = {}
for step in range(9):
    loss = model(noise).mean()
    if torch.isnan(loss):
        break
    loss.backward()
"""
STREAM = """\
class Blocks(IterableDataset):
    def __init__(self, texts):
        self.texts = texts
    def __iter__(self):
        length = 0
        for text in self.texts:
            length += text
            while length > 16:
                length -= 16
                yield torch.zeros(16)
stream = iter(DataLoader(Blocks({}), batch_size=2))
while (block := next(stream, None)) is not None:
    dist.all_reduce(block)
"""
FOUND = {
    "both wait before they send": ("DW431", ANSWERS.format(WAIT_FIRST), "send-first"),
    "functions in an order of the rank": ("DW401", STEPS.format("rank", ""), "common-order"),
    "groups in an order of the rank": (
        "DW450",
        GROUPS.format("sorted(own, key=lambda pair: (pair[1] + rank) % world_size)"),
        "common-order",
    ),
    "a group of all on one rank": ("DW451", GROUP.format("dist.group.WORLD if rank == 3 else half"), "same-group"),
    "a function by the data of a rank": ("DW401", TABLE.format('"mean" if rank > 1 else "first"'), "choice-of-rank-0"),
    "a loss of the noise of a rank": (
        "DW406",
        INVALID.format("torch.zeros(4, 4) if rank else torch.randn(4, 4)"),
        "agree-on-condition",
    ),
    "a stream of the texts of a rank": ("DW217", STREAM.format("[20, 30, 9 * rank]"), "agree-on-rounds"),
}
SILENT = {
    "one sends before it waits": ANSWERS.format(SEND_FIRST),
    "functions in one order": STEPS.format("1", ", reverse=True"),
    "groups in one order": GROUPS.format("sorted(own, key=lambda pair: pair[1])"),
    "groups as they were made": GROUPS.format("own"),
    "groups of one size": GROUP.format("half"),
    "the group of all": GROUP.format("dist.group.WORLD"),
    "one function for all": TABLE.format('"mean" if world_size > 1 else "first"'),
    "one noise for all": INVALID.format("torch.zeros(4, 4)"),
    "a stream of the same texts": STREAM.format("[20, 30, 9]"),
}
KINDS = {"DW401", "DW405", "DW406", "DW217", "DW431", "DW450", "DW451"}


@pytest.mark.parametrize("name", FOUND)
def test_found_and_patched(name: str) -> None:
    rule, text, patch = FOUND[name]
    found = [each for each in review_text(INIT + text, "train.py", KNOWLEDGE) if each.rule in KINDS]
    assert [(each.rule, each.fix and each.fix.id) for each in found] == [(rule, patch)]
    after, _ = apply_fixes(INIT + text, [rule])
    assert not [each for each in review_text(after, "train.py", KNOWLEDGE) if each.rule in KINDS], after


@pytest.mark.parametrize("name", SILENT)
def test_silent(name: str) -> None:
    found = review_text(INIT + SILENT[name], "train.py", KNOWLEDGE)
    assert not [each for each in found if each.rule in KINDS and each.severity != "info"]
