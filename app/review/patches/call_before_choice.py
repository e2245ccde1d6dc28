"""The patch that moves a collective out of a side of ``match``, ``elif`` or ``else`` in front of the statement."""

import ast

from ...training_script.edits import Edit
from ...training_script.syntax import nodes_of_body
from ..rule_context import Patch, Script
from .names_in_code import names_read

FIX = "call-before-choice"


def call_before_choice(script: Script, call: ast.Call) -> Patch | None:
    """Return the patch that makes a call which begins a side before the side is chosen; None if it needs the side."""
    source, stmt = script.source, script.source.statement_of(call)
    if not isinstance(stmt, ast.Expr) or stmt.value is not call or not source.alone(stmt):
        return None
    side = _side(script, stmt)
    choice = _choice(script, side) if side else None
    if side is None or choice is None or not source.alone(choice) or names_read(stmt) & _bound_by_choice(choice):
        return None
    line = source.insert_line(choice.lineno, source.code(stmt), source.indent(choice.lineno))
    only = len(source.block_of(stmt) or side.body) == 1
    rest = source.replace(stmt, "pass") if only else source.remove_lines(stmt.lineno, stmt.end_lineno or stmt.lineno)
    return Patch(
        id=FIX,
        safety="unsafe",
        why_unsafe="every rank makes the call then, with what it needs, before the condition is asked",
        edits=[line, Edit(rest.start, rest.end, rest.text)],
    )


def _side(script: Script, stmt: ast.stmt) -> ast.match_case | ast.If | None:
    """Return the side that begins with a statement."""
    parent = script.source.parents[stmt]
    if isinstance(parent, ast.match_case) and parent.guard is None and parent.body[0] is stmt:
        return parent
    return parent if isinstance(parent, ast.If) and stmt in (parent.body[0], *parent.orelse[:1]) else None


def _choice(script: Script, side: ast.match_case | ast.If) -> ast.stmt | None:
    """Return the statement that chooses a side: the first ``if`` of a chain."""
    parents = script.source.parents
    if isinstance(side, ast.match_case):
        parent = parents[side]
        return parent if isinstance(parent, ast.Match) else None
    while isinstance(above := parents[side], ast.If) and above.orelse == [side]:
        side = above
    return side


def _bound_by_choice(choice: ast.stmt) -> set[str]:
    """Return the names that the patterns and the conditions of a choice bind."""
    nodes = list(nodes_of_body(choice))
    captured = {node.name for node in nodes if isinstance(node, ast.MatchAs | ast.MatchStar) and node.name}
    return captured | {node.target.id for node in nodes if isinstance(node, ast.NamedExpr)}
