"""DW248: parts of the data for workers of ranks that are dealt out by places which two of them share."""

import ast
import itertools
from collections.abc import Iterator

from ...training_script.model.keys import Key, parts
from ...training_script.model.piece_lengths import OPERATIONS
from ...training_script.nodes import nodes_below
from ...training_script.syntax import last_name
from ..rule_context import Script, Violation
from ..violations import violation_at_node

RANKS, WORKERS = 2, 3
OF_WORKER = {"id": 0, "worker_id": 0, "num_workers": WORKERS}


def check(script: Script) -> list[Violation]:
    """DW248: return the slices in which workers of two ranks begin at one place, as the step counts all of them."""
    return [*_violations(script)] if script.mentions("num_workers") and script.has_ranks else []


def _violations(script: Script) -> Iterator[Violation]:
    for node in nodes_below(script.source.tree):
        match node:
            case ast.Slice(lower=ast.expr() as first, step=ast.expr() as step):
                pass
            case ast.Call() if last_name(node.func) in ("islice", "range") and len(node.args) > 2:
                first, step = node.args[-3], node.args[-1]
            case _:
                continue
        begin, every = script.evaluated.value(first), script.evaluated.value(step)
        if begin is not None and every is not None and _is_shared(begin, every):
            made = next((each for each in script.names.origins(first) if isinstance(each, ast.BinOp)), first)
            yield violation_at_node(
                made,
                "workers of two ranks begin at one place, and none at others: some data is read twice, some never",
                0.85,
            )


def _is_shared(begin: Key, every: Key) -> bool:
    """Return whether two of the workers of all ranks begin at one place, where each of them should have its own."""
    ops = {part.op for part in parts(begin)}
    if "rank" not in ops or not any(_is_of_worker(part) for part in parts(begin)):
        return False
    found: list[int] = []
    for rank, worker in itertools.product(range(RANKS), range(WORKERS)):
        first, step = (_number(each, rank, worker) for each in (begin, every))
        if first is None or step is None or step != RANKS * WORKERS:
            return False
        found.append(first % step)
    return len(set(found)) < len(found)


def _is_of_worker(key: Key) -> bool:
    return key.op == "attribute" and len(key.args) > 1 and key.args[1] in ("id", "worker_id")


def _number(key: Key, rank: int, worker: int) -> int | None:
    """Return a number as it is in a worker of a rank."""
    match key.op, key.args:
        case "constant", (int() as value,):
            return value
        case "rank", _:
            return rank
        case "world", _:
            return RANKS
        case "attribute", (_, str() as name, *_) if name in OF_WORKER:
            return OF_WORKER[name] or worker
        case "if", (_, then, other):
            known = [each for each in (then, other) if any(part.op == "attribute" for part in parts(each))]
            return _number(known[0], rank, worker) if len(known) == 1 else None
        case "binary", (name, left, right) if name in OPERATIONS:
            first, second = (_number(each, rank, worker) for each in (left, right))
            by_zero = second == 0 and name in ("Mod", "FloorDiv")
            return None if first is None or second is None or by_zero else OPERATIONS[name](first, second)
        case _:
            return None
