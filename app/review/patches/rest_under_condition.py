"""The text of a script in which the code behind an early exit is under the inverted condition of the exit."""

import ast
from collections.abc import Sequence

from ...training_script.edits import Edit
from ...training_script.syntax import nodes_of_body
from ..rule_context import Script
from .apply_edits import apply_edits
from .work_under_condition import inverted, only_leaves

LEAVING = (ast.Return, ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal)


def rest_under_condition(script: Script, leaving: ast.If) -> str:
    """Return the script with the rest of the block of ``leaving`` under a condition in its place; "" if not possible.

    What the exit does before it leaves has to be what the block ends with: it then stays behind the condition.
    """
    source = script.source
    parent = source.parents[leaving]
    body: list[ast.stmt] = getattr(parent, "body", [])
    if leaving not in body or leaving.orelse or not source.alone(leaving) or not _leaves(parent, leaving.body[-1]):
        return ""
    before, rest = leaving.body[:-1], body[body.index(leaving) + 1 :]
    work, ending = rest[: len(rest) - len(before)], rest[len(rest) - len(before) :]
    if [ast.unparse(each) for each in before] != [ast.unparse(each) for each in ending] or not work:
        return ""
    if not all(source.alone(stmt) for stmt in work) or any(_needs_place(stmt) for stmt in work):
        return ""
    test = inverted(script, leaving.test)
    header = Edit(source.start(leaving), source.starts[(leaving.end_lineno or 0)], f"if {test}:{source.newline}")
    moved = [edit for stmt in work for edit in source.indented(stmt)]
    comments = _comments_between(script, [leaving, *work])
    return apply_edits(source.text, [header, *moved, *comments])


def _leaves(parent: ast.AST, last: ast.stmt) -> bool:
    if isinstance(parent, ast.For | ast.While):
        return isinstance(last, ast.Continue)
    return isinstance(parent, ast.FunctionDef | ast.Module) and only_leaves(last)


def _needs_place(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Import | ast.ImportFrom) or any(
        isinstance(node, LEAVING) for node in (stmt, *nodes_of_body(stmt))
    )


def _comments_between(script: Script, stmts: Sequence[ast.stmt]) -> list[Edit]:
    """Return the edits that indent the comment lines between statements of one block."""
    source = script.source
    indent = source.indent(stmts[0].lineno)
    lines = range((stmts[0].end_lineno or 0) + 1, stmts[-1].lineno)
    inside = {line for stmt in stmts for line in range(stmt.lineno, (stmt.end_lineno or stmt.lineno) + 1)}
    comments = [line for line in lines if line not in inside and source.line(line).startswith(f"{indent}#")]
    return [Edit(source.starts[line - 1], source.starts[line - 1], source.one_level(indent)) for line in comments]
