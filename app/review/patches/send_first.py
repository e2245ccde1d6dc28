"""The patch by which one of the ranks that wait for each other sends before it receives."""

import ast
from collections.abc import Iterable, Iterator

from ...training_script.edits import Edit
from ...training_script.model.reach import Reach
from ...training_script.nodes import node_at
from ...training_script.source import ScriptSource
from ...training_script.syntax import call_argument, dotted_name
from ..rule_context import Patch, Script, no_patch
from .names_in_code import names_read, names_set

FIX = "send-first"
SENDS = ("send", "isend")


def send_first(script: Script, waits: Iterable[Reach]) -> Patch:
    """Return the patch that moves a send in front of the receive of the same block in which its rank waits."""
    for reach in waits:
        site = script.place(reach)
        call = node_at(script.source.tree, site.line, site.column, ast.Call) if site and script.is_here(reach) else None
        stmt = script.source.statement_of(call) if call else None
        for edits in _moved_up(script.source, stmt, call) if stmt and call else ():
            why = "what is sent is what the tensor holds before anything is received"
            return Patch(id=FIX, safety="unsafe", why_unsafe=why, edits=edits)
    return no_patch(FIX, "each side sends what it has received: decide which of them begins, and with what")


def _moved_up(source: ScriptSource, receive: ast.stmt, call: ast.Call) -> Iterator[list[Edit]]:
    """Yield the edits that move a send behind a receive in front of it, if that needs nothing in between."""
    block, received = source.block_of(receive), call_argument(call, "tensor", 0)
    behind = block[block.index(receive) + 1 :] if receive in block else []
    for place, stmt in enumerate(behind):
        sends = isinstance(stmt, ast.Expr) and dotted_name(getattr(stmt.value, "func", stmt)).endswith(SENDS)
        if not sends or not source.alone(stmt) or not source.alone(receive) or received is None:
            continue
        bound = {name for each in behind[:place] if not isinstance(each, ast.AugAssign) for name in names_set(each)}
        if names_read(stmt) & (bound | names_read(received)):
            continue
        line = source.insert_line(receive.lineno, source.code(stmt), source.indent(receive.lineno))
        yield [line, source.remove_lines(stmt.lineno, stmt.end_lineno or stmt.lineno)]
