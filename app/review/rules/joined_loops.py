"""DW257: collectives in a loop that ranks leave at different times, where Join answers for DDP only."""

import ast
import re
from collections.abc import Iterator

from ...training_script.collectives import collective_name
from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below
from ...training_script.syntax import LOOPS, nodes_of_body
from ..rule_context import Script, Violation
from ..violations import violation_at_node

JOIN = re.compile(r"\bJoin\(|\.join\(")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the collectives of the program itself in loops within a context of Join."""
    if not run.distributed or not script.mentions(JOIN):
        return
    for node in nodes_below(script.source.tree):
        if not isinstance(node, ast.With) or not any(_joins(script, each.context_expr) for each in node.items):
            continue
        for loop in (each for stmt in node.body for each in ast.walk(stmt) if isinstance(each, LOOPS)):
            for call in nodes_of_body(loop):
                if isinstance(call, ast.Call) and (name := collective_name(call, script.names)):
                    yield violation_at_node(
                        call,
                        "Join answers for the model of a rank that has no more data, and for nothing else: "
                        f"this {name} waits for it",
                        0.85,
                    )


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
