"""The patches that move a statement below or above others of the same block."""

import ast
from collections.abc import Sequence

from ...training_script.edits import Edit
from ...training_script.model.sequences import Site
from ...training_script.source import ScriptSource
from ...training_script.syntax import dotted_name


def statement_with(block: Sequence[ast.stmt], path: str, sites: Sequence[Site]) -> ast.stmt | None:
    """Return the statement of a block of the file at ``path`` that holds one of some places."""
    lines = {site.line for site in sites if site.path == path}
    inside = (stmt for stmt in block if lines & {*range(stmt.lineno, (stmt.end_lineno or stmt.lineno) + 1)})
    return next(inside, None)


def may_move_below(source: ScriptSource, stmt: ast.stmt, last: ast.stmt) -> bool:
    """Return whether ``last`` is behind a statement in its block, and nothing up to it uses what that assigns."""
    block = source.block_of(stmt)
    if last not in block or not source.alone(stmt) or not source.alone(last):
        return False
    names = {dotted_name(target) for target in stmt.targets} if isinstance(stmt, ast.Assign) else set[str]()
    between = block[block.index(stmt) + 1 : block.index(last) + 1]
    used = {
        dotted_name(node) for each in between for node in ast.walk(each) if isinstance(node, (ast.Name, ast.Attribute))
    }
    return bool(between) and not used & names


def moved_below(source: ScriptSource, stmt: ast.stmt, last: ast.stmt) -> list[Edit]:
    """Return the edits that move the lines of a statement below another."""
    first, end = stmt.lineno, stmt.end_lineno or stmt.lineno
    removed = source.remove_lines(first, end)
    code = source.text[removed.start : removed.end]
    behind = last.end_lineno or last.lineno
    at = source.starts[behind] if behind < len(source.starts) else len(source.text)
    code = code if at < len(source.text) or source.text.endswith("\n") else source.newline + code.rstrip("\r\n")
    return [removed, Edit(at, at, code)]
