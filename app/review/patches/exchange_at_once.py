"""The edits that turn a blocking send and a blocking receive next to each other into one exchange."""

import ast
import itertools
import re
from typing import NamedTuple

from ...training_script.edits import Edit
from ...training_script.source import ScriptSource
from ...training_script.syntax import call_argument, dotted_name

REQUESTS = ("request", "transfer", "begun")
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

    The edits include the exchanges that follow it directly. None if there is no such call, or if one tensor is sent
    and received into: both transfers run at the same time.
    """
    block = source.block_of(stmt)
    at = block.index(stmt) if stmt in block else 0
    transfers = [_transfer(source, each) for each in block[max(at - 1, 0) :]]
    start = next((n for n, pair in enumerate(itertools.pairwise(transfers[:3])) if _is_pair(pair)), None)
    name = next((each for each in REQUESTS if not re.search(rf"\b{each}\b", source.text)), "")
    if start is None or not name:
        return None
    pairs = itertools.takewhile(_is_pair, zip(transfers[start::2], transfers[start + 1 :: 2], strict=False))
    found = [(first, second) for first, second in pairs if first and second]
    if any(first.tensor == second.tensor for first, second in found):
        return None
    edits = [edit for first, second in found for edit in _at_once(source, first, second, name)]
    return Exchange(found[0][0].statement, found[0][1].statement, edits)


def _is_pair(pair: "tuple[_Transfer | None, _Transfer | None]") -> bool:
    """Return whether one of two transfers sends and the other receives."""
    first, second = pair
    return bool(first and second and first.kind != second.kind and first.module == second.module)


def _at_once(source: ScriptSource, first: "_Transfer", second: "_Transfer", name: str) -> list[Edit]:
    code = f"for {name} in {first.module}.batch_isend_irecv([{first.operation}, {second.operation}]):"
    step = source.one_level(source.indent(second.statement.lineno))
    return [source.replace(first.statement, code), source.replace(second.statement, f"{step}{name}.wait()")]


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
