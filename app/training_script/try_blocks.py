"""The blocks of a ``try`` statement: its body, and the code that runs after an error or in any case."""

import ast
from collections.abc import Sequence
from typing import Literal, NamedTuple

from .line_queries import LineQueries
from .syntax import contains_line

# ``except*`` has a class of its own since Python 3.11, with the same fields.
TRY_CLASSES: tuple[type[ast.Try], ...] = tuple(getattr(ast, name) for name in ("Try", "TryStar") if hasattr(ast, name))


class LeftTry(NamedTuple):
    """A ``try`` statement whose body is left: the block in which execution is now, and the line at which it begins.

    ``retries``: the statement is in a loop that the handler continues.
    """

    block: Literal["except", "finally"]
    line: int
    retries: bool = False


def left_try(source: LineQueries, line: int, inside: int) -> LeftTry | None:
    """Return the innermost ``try`` that has ``line`` in a handler or its ``finally`` block and ``inside`` before it.

    An error has led to a handler; a ``finally`` block is also reached without one.
    """
    function = source.function_at(line)
    if function is not source.function_at(inside):
        return None
    for node in reversed([node for node in ast.walk(function) if isinstance(node, TRY_CLASSES)]):
        handler = next((each for each in node.handlers if _holds(each.body, line)), None)
        if handler and (_holds([*node.body, *node.orelse, *node.finalbody], inside)):
            return LeftTry("except", handler.lineno, _is_in_loop(source, node) and _goes_on(handler))
        handled = [statement for each in node.handlers for statement in each.body]
        if _holds(node.finalbody, line) and _holds([*node.body, *node.orelse, *handled], inside):
            return LeftTry("finally", node.finalbody[0].lineno)
    return None


def _holds(block: Sequence[ast.stmt], line: int) -> bool:
    return any(contains_line(statement, line) for statement in block)


def _is_in_loop(source: LineQueries, node: ast.Try) -> bool:
    return bool(source.loops(node.lineno))


def _goes_on(handler: ast.ExceptHandler) -> bool:
    return not isinstance(handler.body[-1], (ast.Raise, ast.Return, ast.Break))
