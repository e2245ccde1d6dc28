"""Values that a script computes from constants and from the environment of its process."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from .frame_scope import FrameScope
from .syntax import call_argument, called_function_name, dotted_name

DEPTH = 12
OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
CONVERSIONS: dict[str, Callable[[Any], Any]] = {"int": int, "str": str}
ENVIRONMENTS = ("os.environ", "environ")
READS = ("os.environ.get", "environ.get", "os.getenv", "getenv")
LONGEST = 1_000  # of a text


def launch_value(expr: ast.expr, scope: FrameScope, environ: Mapping[str, str], depth: int = DEPTH) -> int | str | None:
    """Return the number or the text that an expression is in a process with this environment; None if unknown."""
    try:
        value = _value(expr, scope, environ, depth)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return None
    return value if type(value) is int or (isinstance(value, str) and len(value) <= LONGEST) else None


def _value(expr: ast.expr, scope: FrameScope, environ: Mapping[str, str], depth: int) -> Any:
    def of(part: ast.expr) -> Any:
        return _value(part, scope, environ, depth - 1)

    if depth == 0:
        raise LookupError
    match expr:
        case ast.Constant(value=int() | str() | None as value):
            return value
        case ast.JoinedStr(values=parts):
            return "".join(str(of(part)) for part in parts)
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return of(value)
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in OPERATIONS:
            first, second = of(left), of(right)
            if isinstance(first, str) and not isinstance(operation, ast.Add):
                raise LookupError
            return OPERATIONS[type(operation)](first, second)
        case ast.BoolOp(op=ast.Or(), values=parts):
            return next((value for part in parts if (value := of(part))), None)
        case ast.Subscript(value=held, slice=name) if dotted_name(held) in ENVIRONMENTS:
            return environ[of(name)]
        case ast.Call(func=function, args=[name, *_]) if dotted_name(function) in READS:
            default = call_argument(expr, "default", 1)
            known = environ.get(of(name))
            return known if known is not None else of(default) if default else None
        case ast.Call(func=ast.Name(), args=[inner]) if (name := called_function_name(expr)) in CONVERSIONS:
            return CONVERSIONS[name](of(inner))
        case ast.Name() | ast.Attribute() | ast.Call():
            if known := scope.definition(expr):
                return _value(*known, environ, depth - 1)
    raise LookupError
