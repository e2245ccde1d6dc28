"""The patch that makes a process group only where there is none."""

import ast

from ..rule_context import Patch, Script, no_patch
from .torch_names import distributed_module

ONCE = "init-once"


def init_once(script: Script, call: ast.Call) -> Patch:
    """Return the patch that asks for a process group before one is made."""
    source, stmt = script.source, script.source.statement_of(call)
    module, last = distributed_module(script, stmt), stmt.end_lineno or stmt.lineno
    is_whole = isinstance(stmt, ast.Expr) and stmt.value is call and source.alone(stmt)
    if not is_whole or not module or source.inside_strings.intersection(range(stmt.lineno, last + 1)):
        return no_patch(ONCE, "ask dist.is_initialized() before it")
    return Patch(
        id=ONCE,
        safety="unsafe",
        why_unsafe="the first process group stays, with its own backend and time-out",
        edits=source.put_below(stmt, f"if not {module}.is_initialized():"),
    )
