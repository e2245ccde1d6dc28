"""``pair-exchange``: a blocking send and a blocking receive of one rank become one exchange."""

import ast
import itertools
from typing import NamedTuple

from ...training_script.syntax import call_argument, dotted_name
from ..facts import CaseFacts
from ..types import Place
from ..user_code import UserFile
from .types import RecipeResult

PEER = {"send": "dst", "recv": "src"}


class _Transfer(NamedTuple):
    statement: ast.stmt
    kind: str
    module: str
    operation: str


def pair_exchange(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the line where the ranks wait and the opposite call next to it."""
    report = facts.context.report
    where = facts.place(report.verdict.where or "", "the ranks wait here") if report else None
    file = facts.file_as_started(where.path) if where else None
    if where is None or file is None:
        return RecipeResult()
    for block in _blocks(file):
        transfers = [_transfer(file, statement) for statement in block]
        for first, second in itertools.pairwise(transfers):
            if first and second and first.kind != second.kind and where.line in (_line(first), _line(second)):
                return _exchange(file, first, second)
    return RecipeResult(places=[where])


def _exchange(file: UserFile, first: _Transfer, second: _Transfer) -> RecipeResult:
    source = file.source
    code = f"for request in {first.module}.batch_isend_irecv([{first.operation}, {second.operation}]):"
    edits = [
        source.replace(first.statement, code),
        source.replace(second.statement, "    request.wait()"),
    ]
    patch = file.patched(edits)
    places = [Place(path=file.path, line=_line(each), text=file.line(_line(each))) for each in (first, second)]
    return RecipeResult(patches=[patch], places=places)


def _blocks(file: UserFile) -> list[list[ast.stmt]]:
    blocks: list[list[ast.stmt]] = []
    for node in ast.walk(file.source.tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                blocks.append([statement for statement in block if isinstance(statement, ast.stmt)])
    return blocks


def _transfer(file: UserFile, statement: ast.stmt) -> _Transfer | None:
    """Return a statement that only sends or receives, if its tensor and its peer are all that it is given."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not file.source.alone(statement):
        return None
    module, _, kind = dotted_name(call.func).rpartition(".")
    if kind not in PEER or file.imports.get(module.partition(".")[0], "").partition(".")[0] != "torch":
        return None
    tensor, peer = call_argument(call, "tensor", 0), call_argument(call, PEER[kind], 1)
    if tensor is None or peer is None or len(call.args) + len(call.keywords) != 2:
        return None
    code = file.source.one_line
    return _Transfer(statement, kind, module, f"{module}.P2POp({module}.i{kind}, {code(tensor)}, {code(peer)})")


def _line(transfer: _Transfer) -> int:
    return transfer.statement.lineno
