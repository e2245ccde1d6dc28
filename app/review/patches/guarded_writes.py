"""The edits by which only rank 0 writes in a function that every rank runs."""

import ast
from collections.abc import Sequence

from ...training_script.edits import Edit
from ...training_script.syntax import Function, nodes_of_body
from ..rule_context import Script
from .names_in_code import names_set
from .torch_names import distributed_module
from .work_under_condition import events_in


def guarded_writes(script: Script, function: Function, writes: Sequence[ast.Call]) -> list[Edit] | None:
    """Return the edits that put the statements of some calls under a condition on rank 0; None if that is not possible.

    Such a statement may be no collective, and nothing behind it may read what it binds.
    """
    source, module = script.source, distributed_module(script, function)
    stmts = list(dict.fromkeys(_statement(script, function, call) for call in writes))
    if not module or not all(_is_apart(script, function, stmt) for stmt in stmts):
        return None
    test = f"if not {module}.is_initialized() or {module}.get_rank() == 0:"
    edits: list[Edit] = []
    for stmt in stmts:
        block = source.block_of(stmt)
        follows = block.index(stmt) > 0 and block[block.index(stmt) - 1] in stmts
        edits += source.indented(stmt) if follows else source.put_below(stmt, test)
    return edits


def _statement(script: Script, function: Function, call: ast.Call) -> ast.stmt:
    """Return the statement of a call, or the outermost ``with`` around it."""
    stmt = at = script.source.statement_of(call)
    while (parent := script.source.parents[at]) is not function and isinstance(parent, ast.stmt):
        at = parent
        stmt = at if isinstance(at, ast.With) else stmt
    return stmt


def _is_apart(script: Script, function: Function, stmt: ast.stmt) -> bool:
    """Return whether other ranks can leave out a statement."""
    source = script.source
    inside = [stmt, *nodes_of_body(stmt)]
    last = stmt.end_lineno or stmt.lineno
    bound = names_set(stmt)
    read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and node.lineno > last}
    return (
        isinstance(stmt, ast.Expr | ast.With)
        and source.alone(stmt)
        and not source.inside_strings.intersection(range(stmt.lineno, last + 1))
        and not any(isinstance(node, ast.Return | ast.Yield | ast.YieldFrom | ast.Raise) for node in inside)
        and not bound & read
        and not events_in(script, stmt)
    )
