"""What a condition in a training script says for a given rank, read from the text: nothing is executed.

Three values: True, False, or unknown (``Unknown`` raised), for a condition may rest on more than the rank.
"""

import ast
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from .definitions import FrameScope

# Names people give to the global or local rank. A rank in another group (tp_rank) depends on the rank, value unknown.
RANK_NAME = re.compile(
    r"^((global|world|ddp|dist|my|proc|process|cur|current|local|worker)_?)?(rank|process_index)$"
    r"|^(ompi_comm_world|mv2_comm_world|pmi)_(local_)?rank$|^slurm_(proc|local)id$"
)
OTHER_RANK_NAME = re.compile(r"(^|_)rank$|^group_rank|_rank_in_")
LAST_RANK_NAME = re.compile(r"^_?(is_|am_|on_)?last(_rank|_process)$")
RANK_CALL = re.compile(r"^(get_)?((global|world|local|node_local)_)?rank$")
FIRST_RANK_NAME = re.compile(
    r"^_?(is_|am_|i_am_|on_)?(world_|local_|global_|dist_)?"
    r"(main|master|primary|chief|zero|main_?process|master_?process|process_zero|main_rank|rank_?(zero|0)|first_rank|rank0_only"
    r"|global_zero|local_zero|master_ordinal|main_worker|master_worker|coordinator|leader)$"
)
WORLD_SIZE_NAME = re.compile(r"^(get_)?(world_size|num_processes|n_?ranks|num_ranks|nprocs|ddp_world_size)$")
PLAIN = ("int", "bool", "str", "len", "min", "max", "range", "set", "frozenset", "list", "tuple")
LARGEST = 1 << 40  # no number in a rank test is larger; a hostile one would take for ever
ALWAYS_IN_A_JOB = ("is_initialized", "is_available", "is_torchelastic_launched", "is_dist_avail_and_initialized")
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
    """The value cannot be told from the text."""


class RankContext(NamedTuple):
    """The rank a condition is read for."""

    rank: int
    local_rank: int | None
    world_size: int


def evaluate_condition(test: ast.expr, who: RankContext, scope: FrameScope) -> bool | None:
    """What ``test`` is on that rank; None where it cannot be told."""
    try:
        return bool(_value(test, who, scope, DEPTH))
    except (UnknownValue, KeyError, RecursionError):
        return None


def depends_on_rank(test: ast.expr, scope: FrameScope, depth: int = DEPTH) -> bool:
    """Whether anything in ``test`` is a rank, or stands for one. Of what is passed to an unknown function only a rank
    itself counts, not what was computed with one."""
    if depth == 0:
        return False
    name = _name(test)
    if name and (
        _is_rank(test, name)
        or any(pattern.search(name.lower()) for pattern in (FIRST_RANK_NAME, LAST_RANK_NAME, OTHER_RANK_NAME))
    ):
        return True
    known = _follow(test, scope)
    if known and depends_on_rank(known[0], known[1], depth - 1):
        return True
    passed_on = isinstance(test, ast.Call) and name is not None
    return any(depends_on_rank(part, scope, 1 if passed_on else depth) for part in _parts(test))


def _parts(node: ast.expr) -> list[ast.expr]:
    found = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
    return found + [keyword.value for keyword in getattr(node, "keywords", [])]


def evaluate_integer(node: ast.expr, who: RankContext, scope: FrameScope) -> int | None:
    """The whole number an expression is on that rank (a peer, a source); None where it cannot be told."""
    try:
        value = _value(node, who, scope, DEPTH)
    except (UnknownValue, KeyError, RecursionError):
        return None
    return value if isinstance(value, int) else None


def _value(node: ast.expr, who: RankContext, scope: FrameScope, depth: int) -> Any:
    """The value of an expression of numbers, texts and containers of them."""
    if depth == 0:
        raise UnknownValue

    def of(inner: ast.expr) -> Any:
        return _value(inner, who, scope, depth)

    name = _name(node)
    if name is not None:
        try:
            return _named(node, name, who, scope, depth)
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
            return _all_or_any(values, isinstance(op, ast.And), who, scope, depth)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return of(body) if of(test) else of(orelse)
        case ast.NamedExpr(value=inner):
            return of(inner)
        case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(op) in COMPARE for op in ops):
            values = [of(item) for item in (left, *rights)]
            return all(_computed(COMPARE[type(op)], a, b) for op, a, b in zip(ops, values, values[1:], strict=False))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
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
    """What a few harmless functions return."""
    match func, args:
        case ast.Name(id="int" | "bool" | "str" | "set" | "frozenset" | "list" | "tuple"), [inner]:
            return of(inner)
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
    """One item of a list, or of a dictionary (kept as pairs)."""
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


def _named(node: ast.expr, name: str, who: RankContext, scope: FrameScope, depth: int) -> Any:
    lower = name.lower()
    if _is_rank(node, name):
        return _known(who.local_rank if "local" in lower else who.rank)
    known = _follow(node, scope)
    if known:
        return _value(known[0], who, known[1], depth - 1)
    if FIRST_RANK_NAME.match(lower):
        return _known(who.local_rank if "local" in lower else who.rank) == 0
    if LAST_RANK_NAME.match(lower):
        return who.rank == who.world_size - 1
    if WORLD_SIZE_NAME.match(lower):
        return who.world_size
    if isinstance(node, ast.Call) and name in ALWAYS_IN_A_JOB:
        return True
    raise UnknownValue


def _known(rank: int | None) -> int:
    if rank is None:
        raise UnknownValue
    return rank


def _all_or_any(values: list[ast.expr], every: bool, who: RankContext, scope: FrameScope, depth: int) -> bool:
    unknown = False
    for value in values:
        try:
            if bool(_value(value, who, scope, depth)) != every:
                return not every
        except UnknownValue:
            unknown = True
    if unknown:
        raise UnknownValue
    return every


def _is_rank(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Call):
        # get_rank(group) is a rank within the group, another number.
        environment = name.isupper() or "environ" in ast.dump(node.func) or "getenv" in ast.dump(node.func)
        return bool(
            RANK_NAME.match(name.lower()) if environment else RANK_CALL.match(name) and not (node.args or node.keywords)
        )
    return bool(RANK_NAME.match(name.lower()))


def _name(node: ast.AST) -> str | None:
    """The name by which people know this: a variable, an attribute, an environment variable, a function called."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str() as name)):
            return name
        case ast.Call(func=ast.Attribute(attr="get" | "getenv"), args=[ast.Constant(value=str() as name), *_]):
            return name
        case ast.Call(func=ast.Name(id=name)) if name in PLAIN:
            return None
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name
    return None


def _follow(node: ast.AST, scope: FrameScope) -> tuple[ast.expr, FrameScope] | None:
    match node:
        case ast.Name(id=name):
            return scope.lookup(name)
        case ast.Attribute(value=ast.Name(id="self"), attr=attr):
            return scope.attribute(attr)
        case ast.Call():
            return scope.helper(node)
    return None
