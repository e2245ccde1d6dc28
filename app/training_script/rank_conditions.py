"""Evaluate conditions on the rank: does a condition depend on the rank, and what is it on rank r of n?

Conditions are read from the text, nothing is executed. The answer is true, false or unknown (``UnknownValue``): a
condition may depend on more than the rank. Triage asks here about the frames of a stack.
"""

import ast
from collections.abc import Callable
from typing import Any

from .rank_expressions import RankContext, RankScope
from .rank_names import first_process, is_distributed_flag, is_last, world_size

PLAIN = ("int", "bool", "str", "len", "min", "max", "range", "set", "frozenset", "list", "tuple")
LARGEST = 1 << 40  # no number in a rank test is larger; a hostile one would take for ever
DEPTH = 12  # how far aliases are followed; a name assigned from itself ends there

COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Is: lambda a, b: a == b,
    ast.IsNot: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mod: lambda a, b: a % b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mult: lambda a, b: int(a) * int(b),
    ast.BitAnd: lambda a, b: a & b,
    ast.BitXor: lambda a, b: a ^ b,
    ast.RShift: lambda a, b: a >> b,
}


class UnknownValue(Exception):
    """The text does not determine the value."""


def evaluate_condition(test: ast.expr, context: RankContext, scope: RankScope) -> bool | None:
    """Return the value of ``test`` on that rank, or None if unknown."""
    try:
        return bool(_value(test, context, scope, DEPTH))
    except (UnknownValue, KeyError, RecursionError):
        return None


def evaluate_integer(node: ast.expr, context: RankContext, scope: RankScope) -> int | None:
    """Return the whole number that an expression is on that rank (a peer, a source), or None if unknown."""
    try:
        value = _value(node, context, scope, DEPTH)
    except (UnknownValue, KeyError, RecursionError):
        return None
    return value if isinstance(value, int) else None


def depends_on_rank(test: ast.expr, scope: RankScope, depth: int = DEPTH) -> bool:
    """Return whether anything in ``test`` is a rank or refers to one.

    Of what is passed to an unknown function only a rank itself counts, not what was computed with one.
    """
    if depth == 0:
        return False
    known = scope.known_dependence
    key = (test, min(depth, 3))
    if key not in known:
        known[key] = False  # a name that is defined by itself ends here
        known[key] = _depends_on_rank(test, scope, depth)
    return known[key]


def _depends_on_rank(test: ast.expr, scope: RankScope, depth: int) -> bool:
    less = depth - 1 if depth < 3 else depth
    name = known_name(test)
    if name and (scope.rank(test) or first_process(name, isinstance(test, ast.Call)) or is_last(name)):
        return True
    if any(depends_on_rank(value, inner, less) for value, inner in scope.definitions(test)):
        return True
    passed_on = isinstance(test, ast.Call) and name is not None
    return any(depends_on_rank(part, scope, 1 if passed_on else depth) for part in _parts(test))


def _parts(node: ast.expr) -> list[ast.expr]:
    children: list[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call):
        # The name of the function has been considered with its arguments.
        children[:1] = [node.func.value] if isinstance(node.func, ast.Attribute) else []
    found = [part for part in children if isinstance(part, ast.expr)]
    found += [clause.iter for clause in ast.iter_child_nodes(node) if isinstance(clause, ast.comprehension)]
    return found + [keyword.value for keyword in getattr(node, "keywords", [])]


def known_name(node: ast.AST) -> str | None:
    """Return the name that says what ``node`` is: of a variable, attribute, key, environment variable or function."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str() as name)):
            return name
        case ast.Call(
            func=ast.Attribute(attr="get" | "getenv") | ast.Name(id="getenv"),
            args=[ast.Constant(value=str() as name), *_],
        ):
            return name
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str() as name), *_]):
            return name
        case ast.Call(func=ast.Name(id=name)) if name in PLAIN:
            return None
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name
    return None


def _value(node: ast.expr, context: RankContext, scope: RankScope, depth: int) -> Any:
    """Return the value of an expression of numbers, texts and containers of them, computed once."""
    if depth == 0:
        raise UnknownValue
    key = (node, context, depth)
    if key not in scope.known_values:
        try:
            scope.known_values[key] = _read_value(node, context, scope, depth)
        except (UnknownValue, KeyError):
            scope.known_values[key] = UnknownValue
    if scope.known_values[key] is UnknownValue:
        raise UnknownValue
    return scope.known_values[key]


def _read_value(node: ast.expr, context: RankContext, scope: RankScope, depth: int) -> Any:
    def of(inner: ast.expr) -> Any:
        return _value(inner, context, scope, depth)

    name = known_name(node)
    if name is not None:
        try:
            return _named(node, name, context, scope, depth)
        except UnknownValue:
            if not isinstance(node, (ast.Call, ast.Subscript)):
                raise
    match node:
        case ast.Constant(value=str() as value) if value.lstrip("-").isdecimal() and len(value) < 20:
            return int(value)  # int(os.environ.get("RANK", "0")) and its like
        case ast.Constant(value=bool() | int() | str() | None as value):
            return value
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not of(operand)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _computed(lambda a, _b: -a, of(operand), 0)
        case ast.BoolOp(op=op, values=values):
            return _all_or_any(values, isinstance(op, ast.And), context, scope, depth)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return of(body) if of(test) else of(orelse)
        case ast.NamedExpr(value=inner):
            return of(inner)
        case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(op) in COMPARE for op in ops):
            values = [of(item) for item in (left, *rights)]
            return all(_computed(COMPARE[type(op)], a, b) for op, a, b in zip(ops, values, values[1:], strict=False))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            if (rank := scope.rank(node)) and rank.kind != "group":
                return _number(rank.kind, context)
            return _computed(ARITHMETIC[type(op)], of(left), of(right))
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return [of(item) for item in items]
        case ast.Dict(keys=keys, values=values) if all(keys):
            return [(of(key), of(value)) for key, value in zip(keys, values, strict=True) if key]
        case ast.Subscript(value=inner, slice=index):
            return _item(of(inner), of(index))
        case ast.Call(func=func, args=args, keywords=[]):
            return _called(func, args, of)
    raise UnknownValue


def _called(func: ast.expr, args: list[ast.expr], of: Callable[[ast.expr], Any]) -> Any:
    """Return what a few harmless functions return."""
    match func, args:
        case ast.Name(id="int" | "bool" | "str" | "set" | "frozenset" | "list" | "tuple" as name), [inner]:
            return bool(of(inner)) if name == "bool" else of(inner)
        case ast.Name(id="len"), [inner]:
            return _computed(lambda a, _b: len(a), of(inner), 0)
        case ast.Name(id="range"), [_, *_] if len(args) <= 3:
            return _computed(lambda a, _b: range(*a), [of(item) for item in args], 0)
        case ast.Name(id="min" | "max" as name), [_, *_]:
            return _computed(lambda a, _b: (min if name == "min" else max)(a), [of(item) for item in args], 0)
        case ast.Attribute(value=inner, attr="get"), [key, *rest]:
            try:
                return _item(of(inner), of(key))
            except KeyError:
                return of(rest[0]) if rest else None
        case ast.Attribute(value=inner, attr="lower" | "strip" | "upper"), []:
            return of(inner)
    raise UnknownValue


def _item(container: Any, index: Any) -> Any:
    """Return one item of a list, or of a dictionary (kept as pairs)."""
    if isinstance(container, list) and container and all(isinstance(each, tuple) for each in container):
        for key, value in container:
            if key == index:
                return value
        raise KeyError(index)
    return _computed(lambda a, b: a[b], container, index)


def _computed(operation: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    for value in (one, other):
        if isinstance(value, int) and abs(value) > LARGEST:
            raise UnknownValue
    try:
        return operation(one, other)
    except (TypeError, ValueError, ZeroDivisionError, IndexError, OverflowError, MemoryError):
        raise UnknownValue from None


def _named(node: ast.expr, name: str, context: RankContext, scope: RankScope, depth: int) -> Any:
    """Return the value of something known by its name: by its definition if that can be read, else by the name."""
    if rank := scope.rank(node):
        return _number(rank.kind, context)
    known = scope.definition(node)
    if known:
        try:
            return _value(known[0], context, known[1], depth - 1)
        except (UnknownValue, KeyError):
            if depends_on_rank(known[0], known[1]):
                raise UnknownValue from None
    called = isinstance(node, ast.Call)
    if first := _first_process(node, name):
        return _number(first, context) == 0
    if is_last(name):
        return context.rank == context.world_size - 1
    if (size := world_size(name)) and not (called and _has_arguments(node, name)):
        return _known(context.local_world_size if size == "local" else context.world_size)
    if is_distributed_flag(name):
        return True
    raise UnknownValue


def _first_process(node: ast.expr, name: str) -> str | None:
    first = first_process(name, isinstance(node, ast.Call))
    if first == "global" and isinstance(node, ast.Call) and name == "is_master_ordinal":
        # torch_xla: is_master_ordinal(local=True)
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        return "global" if any(isinstance(each, ast.Constant) and each.value is False for each in given) else "local"
    return first


def _has_arguments(call: ast.AST, name: str) -> bool:
    """Return whether a call passes arguments (a group), apart from the name of the variable it reads."""
    return isinstance(call, ast.Call) and bool(call.args or call.keywords) and not name.isupper()


def _number(kind: str, context: RankContext) -> int:
    """Return the rank of one kind in ``context``."""
    match kind:
        case "global":
            return context.rank
        case "local":
            return _known(context.local_rank)
        case "node":
            return context.rank // _known(context.local_world_size)
    raise UnknownValue


def _known(number: int | None) -> int:
    if number is None:
        raise UnknownValue
    return number


def _all_or_any(values: list[ast.expr], every: bool, context: RankContext, scope: RankScope, depth: int) -> bool:
    unknown = False
    for value in values:
        try:
            if bool(_value(value, context, scope, depth)) != every:
                return not every
        except UnknownValue:
            unknown = True
    if unknown:
        raise UnknownValue
    return every
