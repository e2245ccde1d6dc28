"""DW260: calls of a trainer of Lightning that need every rank, on the first one only."""

import ast
from collections.abc import Iterator

from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, dotted_name, nodes_of_body
from ..rule_context import Script, Violation
from ..violations import violation_at_node

FIRST = ".is_global_zero"
OF_ALL = {"save_checkpoint", "fit", "validate", "test", "predict"}
OF_STRATEGY = {"barrier", "broadcast", "reduce", "all_gather"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the calls in a branch for the first rank that wait for the others."""
    del run
    if not script.mentions(FIRST):
        return
    for node in nodes_below(script.source.tree):
        if not isinstance(node, ast.If) or not dotted_name(node.test).endswith(FIRST):
            continue
        trainer = dotted_name(node.test).removesuffix(FIRST)
        for stmt in (each for each in node.body if not isinstance(each, FUNCTIONS)):
            for call in (each for each in nodes_of_body(stmt) if isinstance(each, ast.Call)):
                owner, _, name = dotted_name(call.func).rpartition(".")
                waits = name in OF_ALL if owner == trainer else owner == f"{trainer}.strategy" and name in OF_STRATEGY
                if waits:
                    yield violation_at_node(
                        call,
                        f"{name} of the trainer waits for all ranks, and only the first one comes here (line "
                        f"{node.lineno})",
                        0.85,
                        branch=node.lineno,
                    )
