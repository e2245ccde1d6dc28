"""Loops in which ranks wait for what a leader sends: the leader calls the same collective from wherever it likes."""

import ast

from ..training_script.collectives import collective_name
from ..training_script.syntax import FUNCTIONS, Function, nodes_of_body
from .rank_bindings import is_under_rank_condition
from .rule_context import Script

SERVED = {"broadcast", "broadcast_object_list", "scatter", "scatter_object_list"}


def served_kinds(script: Script) -> set[str]:
    """Return the collectives that a worker receives in an endless loop, which ends by what it receives."""
    return {
        kind
        for loop in script.names.scope_of
        if isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant) and _is_of_workers(script, loop)
        for call in nodes_of_body(loop)
        if isinstance(call, ast.Call) and (kind := collective_name(call, script.names)) in SERVED
    }


def _is_of_workers(script: Script, loop: ast.While) -> bool:
    """Return whether only some ranks run a loop: by a condition on the rank, or as another file starts its function."""
    if not any(isinstance(node, (ast.Break, ast.Return)) for node in nodes_of_body(loop)):
        return False
    if is_under_rank_condition(script, loop):
        return True
    function: Function | None = script.names.enclosing_function(loop)
    calls = [call for call, _ in script.names.arguments.get(function, [])] if isinstance(function, FUNCTIONS) else []
    if function is None:
        return False
    return all(is_under_rank_condition(script, call) for call in calls)
