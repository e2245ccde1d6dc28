"""The patch that lets one rank only run a statement."""

import ast

from ...training_script.edits import Edit
from ..rule_context import Patch, Script, no_patch

WHY_UNSAFE = "what reads the file next on another rank has to wait for it"


def guard_statement(script: Script, node: ast.expr, id_: str, *, local: bool = False) -> Patch:
    """Return the patch that puts the statement of a call under a condition on rank 0."""
    source = script.source
    stmt = source.statement_of(node)
    if not isinstance(stmt, ast.Expr) or not source.alone(stmt):
        return no_patch(id_, "the call is part of another statement: put it under a condition on rank 0")
    if source.inside_strings.intersection(range(stmt.lineno, (stmt.end_lineno or stmt.lineno) + 1)):
        return no_patch(id_, "the statement holds a text of several lines: put it under a condition on rank 0")
    module = _distributed(script)
    if not module:
        return no_patch(id_, "no name for torch.distributed is bound in the script: import it and test for rank 0")
    test = f"if not {module}.is_initialized() or {module}.get_rank() == 0:"
    indent = source.indent(stmt.lineno)
    guard = source.insert_line(stmt.lineno, test, indent)
    first, *rest = source.indented(stmt)
    edits = [Edit(first.start, first.end, guard.text + first.text), *rest]
    return Patch(id=id_, safety="unsafe", why_unsafe=WHY_UNSAFE, edits=edits)


def _distributed(script: Script) -> str:
    """Return an expression for torch.distributed by the imports at the top of the script, or ""."""
    for stmt in script.source.tree.body:
        match stmt:
            case ast.Import(names=names):
                for alias in names:
                    if alias.name == "torch.distributed" and alias.asname:
                        return alias.asname
            case ast.ImportFrom(module="torch", names=names, level=0):
                for alias in names:
                    if alias.name == "distributed":
                        return alias.asname or alias.name
            case _:
                pass
    plain = any(
        alias.name.partition(".")[0] == "torch" and not alias.asname
        for stmt in script.source.tree.body
        if isinstance(stmt, ast.Import)
        for alias in stmt.names
    )
    return "torch.distributed" if plain else ""
