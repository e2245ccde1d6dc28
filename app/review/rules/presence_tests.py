"""Conditions that ask only if something is there: data of one kind, or a result of a model, is there on all ranks."""

import ast
from collections.abc import Iterator

from ...training_script.model.amounts import BATCH, DISTINCT
from ...training_script.model.divergence import Divergence
from ...training_script.model.keys import LOCAL, Key, parts
from ...training_script.nodes import node_at
from ..rule_context import Script

ORDERS = ("Lt", "LtE", "Gt", "GtE", "Eq", "NotEq")
CHANGED = ("altered", "changing", "changed")  # by statements whose conditions are not in the value
ASKS_NUMBER = ("isnan", "isinf", "isfinite")
TESTS = (ast.If, ast.While, ast.IfExp)


def asks_for_presence(script: Script, found: Divergence) -> bool:
    """Return whether data of one rank decide only by being there, and no number of them is compared on the way."""
    at = found.decided
    node = node_at(script.source.tree, at.line, at.column, *TESTS) if at.path == script.source.path else None
    if not isinstance(node, TESTS):
        return False
    keys = {each: key for each in _asked(node.test) if (key := script.evaluated.value(each)) is not None}
    by_data = {each: key for each, key in keys.items() if key.differs_by & LOCAL}
    return bool(by_data) and all(_is_presence(each) and not _is_measured(key) for each, key in by_data.items())


def _asked(test: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of a test that ``and``, ``or`` and ``not`` connect."""
    match test:
        case ast.BoolOp(values=values):
            for each in values:
                yield from _asked(each)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _asked(operand)
        case _:
            yield test


def _is_presence(node: ast.expr) -> bool:
    match node:
        case ast.Name() | ast.Attribute() | ast.Subscript(slice=ast.Constant(value=str())):
            return True
        case ast.Call(func=ast.Name(id="getattr")):
            return True
        case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return True
        case _:
            return False


def _is_measured(key: Key) -> bool:
    """Return whether a value comes of the clock or a draw of one rank, or of a number of its data that is compared."""
    return any(
        (part.op == "local" and part.args[0] != BATCH)
        or part.op in (*CHANGED, DISTINCT)
        or (part.op == "compare" and part.args[0] in ORDERS)
        or (part.op == "call" and str(part.args[0]).rpartition(".")[2] in ASKS_NUMBER)
        for part in parts(key)
        if part.differs_by & LOCAL
    )
