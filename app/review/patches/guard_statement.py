"""The patch that lets one rank only run a statement."""

import ast

from ..rule_context import Patch, Script, no_patch
from .torch_names import distributed_module
from .work_under_condition import events_in

WHY_UNSAFE = "what reads the file next on another rank has to wait for it"
ONE_DISK = "on disks that nodes do not share only the first node has the file then"


def guard_statement(script: Script, node: ast.expr, id_: str, *, others_wait: bool, why: str = "") -> Patch:
    """Return the patch that puts the statement of a call under a condition on rank 0.

    With ``others_wait`` the other ranks wait behind it until it is done. ``why``: why it is unsafe.
    """
    source = script.source
    stmt = source.statement_of(node)
    last = stmt.end_lineno or stmt.lineno
    if not (isinstance(stmt, ast.Expr) or _only_writes(script, stmt)) or not source.alone(stmt):
        return no_patch(id_, "the call is part of another statement: put it under a condition on rank 0")
    if source.inside_strings.intersection(range(stmt.lineno, last + 1)):
        return no_patch(id_, "the statement holds a text of several lines: put it under a condition on rank 0")
    module = distributed_module(script, stmt)
    if not module:
        return no_patch(id_, "no name for torch.distributed is bound in the script: import it and test for rank 0")
    if others_wait and last >= len(source.starts):
        return no_patch(id_, "the statement is the last line: put it under a condition on rank 0")
    test = f"if not {module}.is_initialized() or {module}.get_rank() == 0:"
    indent = source.indent(stmt.lineno)
    edits = source.put_below(stmt, test)
    if others_wait:
        wait = (f"if {module}.is_initialized():", f"{source.one_level(indent)}{module}.barrier()")
        edits += [source.insert_line(last + 1, line, indent) for line in wait]
    return Patch(id=id_, safety="unsafe", why_unsafe=why or (ONE_DISK if others_wait else WHY_UNSAFE), edits=edits)


def _only_writes(script: Script, stmt: ast.stmt) -> bool:
    """Return whether a ``with`` statement only makes calls, none of which needs other ranks."""
    if not isinstance(stmt, ast.With) or events_in(script, stmt):
        return False
    inside = (node for each in stmt.body for node in ast.walk(each) if isinstance(node, ast.stmt))
    return all(isinstance(node, ast.Expr | ast.For) for node in inside)
