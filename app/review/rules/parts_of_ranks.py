"""DW442: slices of the data by the rank that overlap between ranks, or leave a rank without any."""

import ast
import re
from collections.abc import Iterator
from itertools import combinations

from ...training_script.model.keys import BY_RANK, LOCAL, Key, parts
from ...training_script.model.members import Member
from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below
from ...training_script.syntax import last_name
from ..rule_context import Script, Violation

SIZE, RANKS = 64, 4  # of the data and of the job for which the parts are computed
WHOLE = frozenset(range(SIZE))
MOST_SHARED = 4  # elements at the edges: windows, targets that are shifted by one
OF_RANK = re.compile(r"rank", re.IGNORECASE)
JOINS = {"cat", "concat", "concatenate", "chain", "roll"}  # of a part with the rest: another order of the whole


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the slices whose bounds follow from the rank, the number of ranks and the length of what is cut."""
    if not run.distributed or run.function is not None or not script.mentions(OF_RANK):
        return
    for node in nodes_below(script.source.tree):
        if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
            continue
        part, held = script.evaluated.value(node.slice), script.evaluated.value(node.value)
        if (
            part is None
            or held is None
            or not part.differs_by & BY_RANK
            or part.differs_by & LOCAL
            or _joins(script, node)
        ):
            continue
        if part.op == "slice" and (found := _problem(_parts(part, held))):
            yield Violation(
                line=node.lineno,
                column_bytes=node.col_offset + 1,
                end_line=node.end_lineno or node.lineno,
                message=f"of {SIZE} elements on {RANKS} ranks, {found}",
                confidence=0.8,
            )


def _joins(script: Script, node: ast.Subscript) -> bool:
    """Return whether a part is put together with others."""
    parent = script.source.parents.get(node)
    while isinstance(parent, ast.Tuple | ast.List | ast.Starred):
        parent = script.source.parents.get(parent)
    return isinstance(parent, ast.BinOp) or (isinstance(parent, ast.Call) and last_name(parent.func) in JOINS)


def _parts(part: Key, held: Key) -> list[set[int]]:
    """Return the places that each rank takes, none if they do not follow or the number of ranks does not decide."""
    decided = {each.op for each in parts(part)} & {"world", "length"}
    taken: list[set[int]] = []
    for rank in range(RANKS) if decided else ():
        bounds = [None if each.is_constant and each.value is None else _bound(each, held, rank) for each in part.args]
        absent = [each.is_constant and each.value is None for each in part.args]
        if any(value is None and not missing for value, missing in zip(bounds, absent, strict=True)) or bounds[2] == 0:
            return []
        taken.append(set(range(SIZE)[slice(*bounds)]))
    return taken


def _bound(key: Key, held: Key, rank: int) -> int | None:
    """Return a bound of a slice on a rank: the length of what is cut is SIZE."""
    value = _value(key, held, Member(rank, RANKS))
    return int(value) if value is not None and value == int(value) else None


def _value(key: Key, held: Key, rank: Member) -> float | None:
    match key.op, key.args:
        case "constant", (int() | float() as value,):
            return value
        case "rank", ("global" | "spawned", *_):
            return rank.rank
        case "world", ("global",):
            return rank.world_size
        case "length", (of,) if of is held:
            return SIZE
        case "unary", ("USub", inner):
            value = _value(inner, held, rank)
            return None if value is None else -value
        case (("min" | "max"), (left, right)):
            first, second = _value(left, held, rank), _value(right, held, rank)
            if first is None or second is None:
                return None
            return min(first, second) if key.op == "min" else max(first, second)
        case "binary", (name, left, right):
            return _computed(name, _value(left, held, rank), _value(right, held, rank))
        case _:
            return None


def _computed(name: str, left: float | None, right: float | None) -> float | None:
    if left is None or right is None:
        return None
    match name:
        case "Add":
            return left + right
        case "Sub":
            return left - right
        case "Mult":
            return left * right
        case "FloorDiv" if right:
            return left // right
        case "Div" if right:
            return left / right
        case "Mod" if right:
            return left % right
        case _:
            return None


def _problem(taken: list[set[int]]) -> str:
    """Return what is wrong with the parts of the ranks, an empty text if nothing is."""
    if not taken or all(part == taken[0] for part in taken):
        return ""
    empty = [rank for rank, part in enumerate(taken) if not part]
    if empty:
        return f"rank {empty[0]} gets none" if len(empty) < len(taken) else ""
    for (first, own), (second, other) in combinations(enumerate(taken), 2):
        if len(own & other) > MOST_SHARED:
            return f"ranks {first} and {second} both get {len(own & other)} of them"
    return ""
