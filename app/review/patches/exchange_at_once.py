"""The edits that turn a blocking send and a blocking receive next to each other into one exchange."""

import ast
import itertools
from typing import NamedTuple

from ...training_script.edits import Edit
from ...training_script.source import ScriptSource
from ...training_script.syntax import call_argument, dotted_name
from .move_statement import block_of

PEER = {"send": "dst", "recv": "src"}


class _Transfer(NamedTuple):
    statement: ast.Expr
    kind: str
    module: str
    tensor: str
    operation: str


class Exchange(NamedTuple):
    """A send and a receive, in the order of the script, and the edits that make both at once."""

    first: ast.stmt
    second: ast.stmt
    edits: list[Edit]


def exchange_at_once(source: ScriptSource, stmt: ast.stmt) -> Exchange | None:
    """Return the exchange of a statement that sends or receives with the opposite call before or after it.

    None if there is no such call, or if one tensor is sent and received into: both transfers run at the same time.
    """
    block = block_of(source, stmt)
    at = block.index(stmt) if stmt in block else 0
    transfers = [_transfer(source, each) for each in block[max(at - 1, 0) : at + 2]]
    for first, second in itertools.pairwise(transfers):
        if first and second and first.kind != second.kind and first.module == second.module:
            if first.tensor == second.tensor:
                return None
            code = f"for request in {first.module}.batch_isend_irecv([{first.operation}, {second.operation}]):"
            step = source.one_level(source.indent(second.statement.lineno))
            wait = source.replace(second.statement, f"{step}request.wait()")
            return Exchange(first.statement, second.statement, [source.replace(first.statement, code), wait])
    return None


def _transfer(source: ScriptSource, stmt: ast.stmt) -> _Transfer | None:
    """Return a statement that only sends or receives, if its tensor and its peer are all that it is given."""
    if not isinstance(stmt, ast.Expr) or not isinstance(call := stmt.value, ast.Call) or not source.alone(stmt):
        return None
    module, _, kind = dotted_name(call.func).rpartition(".")
    if kind not in PEER or not module:
        return None
    tensor, peer = call_argument(call, "tensor", 0), call_argument(call, PEER[kind], 1)
    if tensor is None or peer is None or len(call.args) + len(call.keywords) != 2:
        return None
    code = source.one_line
    operation = f"{module}.P2POp({module}.i{kind}, {code(tensor)}, {code(peer)})"
    return _Transfer(stmt, kind, module, ast.unparse(tensor), operation)
