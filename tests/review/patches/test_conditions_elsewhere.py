"""Patches that move a condition on the rank from around a collective to its effects, and places that have none."""

import pytest
from helpers.review_snippets import found, refused, repaired

START = """\
from torch import nn
dist.init_process_group("gloo")
rank = dist.get_rank()
value = torch.ones(1)
"""
CHOICE = """\
match rank:
    case {}:
        {}
    case _:
        print("another")
"""
LEADER = """\
def leader_only(function):
    def call(*args):
        if dist.get_rank() > 0:
            return
        {}(*args)
    return call
@leader_only
def report(x):
    dist.reduce(x, dst=0)
    {}
report(value)
"""
HOOK = """\
class Hook:
    def run(self):
        dist.all_reduce(value)
        {}
hooks = []
if rank == 0:
    hooks.append(Hook())
for hook in hooks:
    hook.run()
"""
STEP = """\
net, done = nn.Linear(1, 1), []
def step(text):
    number = int(text)
    {}
    dist.all_reduce(value)
    return number
for text in open(f"part-{{rank}}"):
    try:
        done.append(step(text))
    except {}:
        continue
"""


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        (
            "DW401",
            CHOICE.format(0, "dist.all_reduce(value)\n        print(value)"),
            "dist.all_reduce(value)\n" + CHOICE.format(0, "print(value)"),
        ),
        (
            "DW404",
            LEADER.format("function", "print(x)"),
            LEADER.format("function", "if dist.get_rank() <= 0:\n        print(x)").replace("@leader_only\n", ""),
        ),
        (
            "DW401",
            HOOK.format("print(value)"),
            HOOK.format("if not dist.is_initialized() or dist.get_rank() == 0:\n            print(value)").replace(
                "if rank == 0:\n    hooks", "hooks"
            ),
        ),
    ],
)
def test_condition_is_at_the_effect(rule: str, before: str, after: str) -> None:
    assert repaired(START + before, rule) == START + after


def test_all_ranks_skip_the_step_that_one_cannot_make() -> None:
    after = repaired(START + STEP.format("net(value)", "ValueError"), "DW411")
    head, _, rest = after.partition("    failure = None\n    try:\n        number = int(text)\n        net(value)\n")
    assert head.endswith("def step(text):\n")
    assert rest.startswith("    except ValueError as error:\n        failure = error\n    any_failed = torch.tensor(")
    assert '    if any_failed.item():\n        raise failure or ValueError("another rank has failed here")\n' in rest


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (
            "DW401",
            CHOICE.format("int() as number", "dist.reduce(value, dst=number)").replace("match rank", "match rank % 2"),
        ),
        ("DW404", LEADER.format("return function", "return x.item()")),
        ("DW411", STEP.format("return 0", "ValueError")),
        ("DW411", STEP.format("net(value)", "(ValueError, KeyError)")),
        ("DW411", STEP.format("net(value)", "json.JSONDecodeError")),
    ],
)
def test_no_patch(rule: str, code: str) -> None:
    assert not found(START + code, rule) or refused(START + code, rule)
