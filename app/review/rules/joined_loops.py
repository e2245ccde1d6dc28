"""DW257: collectives in a loop that ranks leave at different times, where Join answers for DDP only."""

import ast
import re
from collections.abc import Iterator

from ...training_script.collectives import collective_name
from ...training_script.model.function_steps import Noted
from ...training_script.model.library_calls import FUNCTIONS
from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below
from ...training_script.syntax import LOOPS, nodes_of_body
from ..rule_context import Script, Violation
from ..violations import violation_at, violation_at_node

JOIN = re.compile(r"\bJoin\(|\.join\(")
PREFIX = "torch.distributed."
# Classes that answer for their own collectives, and a context that ends with the first rank.
ANSWERS = re.compile(r"\b(?:JoinHook|Joinable|notify_join_context)\b|throw_on_early_termination\s*=\s*True")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the collectives of the program itself in loops within a context of Join."""
    if not run.distributed or script.mentions(ANSWERS, "Join", "throw_on_early_termination", "notify_join_context"):
        return
    yield from _called(script, run)
    if not script.mentions(JOIN, "Join(", ".join("):
        return
    for node in nodes_below(script.source.tree):
        if not isinstance(node, ast.With) or not any(_joins(script, each.context_expr) for each in node.items):
            continue
        for loop in (each for stmt in node.body for each in ast.walk(stmt) if isinstance(each, LOOPS)):
            for call in nodes_of_body(loop):
                if isinstance(call, ast.Call) and (name := collective_name(call, script.names)):
                    yield violation_at_node(call, _message(name), 0.85)


def _called(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the collectives that a loop in such a context comes to by the calls of functions."""
    for reach in run.reached:
        fact = reach.fact
        if not isinstance(fact, Noted) or not fact.name.startswith(PREFIX) or not reach.calls:
            continue
        effect = FUNCTIONS.get(fact.name)
        if effect and effect.event and any(each.free for each in reach.loops) and reach.several:
            yield from violation_at(script, reach, _message(fact.name.removeprefix(PREFIX)), 0.8)


def _message(name: str) -> str:
    answers = "Join answers for the model of a rank that has no more data, and for nothing else"
    return f"{answers}: this {name} waits for it"


def _joins(script: Script, context: ast.expr) -> bool:
    """Return whether a context is that of Join, or of a model in DDP."""
    if not isinstance(context, ast.Call):
        return False
    if script.names.qualified(context.func).endswith("distributed.algorithms.join.Join"):
        return True
    match context.func:
        case ast.Attribute(value=owner, attr="join"):
            return not context.args and not isinstance(owner, ast.Constant)
        case _:
            return False
