"""Recognise the expressions of a script that are this process's rank, and of which kind.

``read_rank`` holds the rules. It asks a ``RankScope`` for the meaning of names: ``FrameScope`` answers for one stack
frame, with the arguments that its caller passed.
"""

import ast
from typing import Any, NamedTuple, Protocol

from ..launchers.rank_variables import RANK_SCOPES
from .rank_names import DEVICE_COUNT, NOT_OWN_RANK, RankKind, getter_kind, rank_kind
from .syntax import call_argument, dotted_name, last_name


class RankValue(NamedTuple):
    """The rank that an expression is.

    ``sure``: the script shows where it comes from; otherwise only its name suggests it. ``variable`` is the environment
    variable it is read from, if any.
    """

    kind: RankKind
    sure: bool
    variable: str = ""


MOST_STEPS = 2000  # of one question: names that are defined by each other are tried in every order
MOST_DEPTH = 60  # names that are defined by further names
IN_PROGRESS = RankValue("group", False, "in progress")  # a name that is defined by itself (rank = int(rank))


class RankContext(NamedTuple):
    """The rank for which a condition is evaluated."""

    rank: int
    local_rank: int | None
    world_size: int
    local_world_size: int | None = None


class RankScope(Protocol):
    """The meaning of the names in a part of a script."""

    known_dependence: dict[tuple[ast.AST, int], bool]
    known_values: dict[tuple[ast.AST, "RankContext", int], Any]

    def rank(self, expr: ast.AST) -> RankValue | None:
        """Return the rank that ``expr`` is, or None."""
        ...

    def named_rank(self, expr: ast.Name | ast.Attribute) -> RankValue | None:
        """Return the rank that a name or attribute is bound to, or None."""
        ...

    def qualified(self, expr: ast.expr) -> str:
        """Return the full dotted name of ``expr`` by the imports, or an empty string."""
        ...

    def definition(self, expr: ast.AST) -> "tuple[ast.expr, RankScope] | None":
        """Return the one expression that ``expr`` refers to, with the scope to read it in, or None."""
        ...

    def definitions(self, expr: ast.AST) -> "list[tuple[ast.expr, RankScope]]":
        """Return every expression that ``expr`` may stand for."""
        ...


def read_rank(expr: ast.AST, scope: RankScope) -> RankValue | None:
    """Return the rank that ``expr`` is by its form, or None."""
    match expr:
        case ast.Call(func=ast.Name(id="int" | "str"), args=[inner]) | ast.NamedExpr(value=inner):
            return scope.rank(inner)
        case ast.Call():
            return _called(expr, scope)
        case ast.Subscript(value=value, slice=ast.Constant(value=str(name))):
            return _variable_or_key(name, value)
        case ast.BinOp(left=left, op=ast.Mod() | ast.FloorDiv() as op, right=right) if _is_device_count(right, scope):
            inner = scope.rank(left)
            if inner and inner.kind in ("global", "local"):
                return RankValue("local" if isinstance(op, ast.Mod) else "node", True)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            # node * gpus_per_node + local index, the way scripts that spawn count through nodes
            for product, other in ((left, right), (right, left)):
                inner = scope.rank(other)
                is_product = isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult)
                if is_product and inner and inner.kind == "local":
                    return RankValue("global", inner.sure)
        case ast.IfExp(body=body, orelse=orelse):
            return agreed_rank([scope.rank(e) for e in (body, orelse) if not is_constant_default(e)])
        case ast.BoolOp(op=ast.Or(), values=values):
            return agreed_rank([scope.rank(e) for e in values if not is_constant_default(e)])
        case ast.Name() | ast.Attribute():
            return scope.named_rank(expr)
        case ast.arg(arg=name):
            return rank_by_name(name)
    return None


def _called(call: ast.Call, scope: RankScope) -> RankValue | None:
    full = scope.qualified(call.func)
    owner, _, last = dotted_name(call.func).rpartition(".")
    if isinstance(call.func, ast.Attribute):
        last = call.func.attr
    match call:
        case ast.Call(
            func=ast.Attribute(attr="get" | "getenv") | ast.Name(id="getenv"), args=[ast.Constant(value=str(key)), *_]
        ):
            return _variable_or_key(key, call.func)
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(key)), *_]):
            return rank_by_name(key)
    if full == "torch.distributed.get_node_local_rank":
        return RankValue("local", True)
    mesh = _world_mesh(call.func.value, scope) if isinstance(call.func, ast.Attribute) else None
    if mesh and (last == "get_rank" or (last == "get_local_rank" and len(mesh.elts) == 1)):
        return RankValue("global", True)
    if full == "torch.distributed.get_rank" or (last == "get_rank" and not full and not scope.definitions(call)):
        group = call_argument(call, "group", 0)
        of_world = group is None or (isinstance(group, ast.Constant) and group.value is None)
        return RankValue("group" if not of_world or _is_group(owner) else "global", bool(full))
    if full.startswith("horovod.") and last in ("rank", "local_rank"):
        return RankValue("local" if last == "local_rank" else "global", True)
    if returned := scope.definitions(call):
        return agreed_rank([inner.rank(value) for value, inner in returned if not is_constant_default(value)])
    kind = None if call.args or call.keywords else getter_kind(last)
    return RankValue("group" if _is_group(owner) else kind, False) if kind else None


def _variable_or_key(name: str, container: ast.expr) -> RankValue | None:
    """Return the rank in ``os.environ["RANK"]``, ``os.getenv("RANK")`` or ``cfg["rank"]``."""
    if name in RANK_SCOPES:
        text = dotted_name(container).removesuffix(".get")
        from_environment = text.endswith(("environ", "getenv"))
        return RankValue(RANK_SCOPES[name], from_environment, name if from_environment else "")
    return rank_by_name(name)


def _world_mesh(expr: ast.expr, scope: RankScope) -> ast.Tuple | None:
    """Return the shape of the mesh that ``expr`` is, if ``init_device_mesh`` made it, or None.

    Such a mesh covers all ranks: ``get_rank`` is the global rank, and so is ``get_local_rank`` in one dimension (torch
    2.13, distributed/device_mesh.py).
    """
    made, _ = scope.definition(expr) or (None, None)
    if not isinstance(made, ast.Call) or last_name(made.func) != "init_device_mesh":
        return None
    shape = call_argument(made, "mesh_shape", 1)
    return shape if isinstance(shape, ast.Tuple) else None


def _is_group(owner: str) -> bool:
    """Return whether the object asked for a rank is a process group or a mesh."""
    last = owner.rpartition(".")[2].lower()
    return last.endswith(("group", "mesh")) or last in ("pg", "mpu", "parallel_state", "ps")


def _is_device_count(expr: ast.expr, scope: RankScope) -> bool:
    """Return whether ``expr`` is the number of GPUs of a node."""
    if DEVICE_COUNT.search(ast.unparse(expr)):
        return True
    known = scope.definitions(expr) if isinstance(expr, (ast.Name, ast.Attribute)) else []
    return any(isinstance(value, ast.Call) and DEVICE_COUNT.search(ast.unparse(value)) for value, _ in known)


def rank_by_name(name: str) -> RankValue | None:
    """Return the rank that a variable of this name holds as far as the name suggests, or None."""
    kind = rank_kind(name)
    return RankValue(kind, False) if kind else None


def rank_of_binding(name: str, value: ast.expr, scope: RankScope) -> RankValue | None:
    """Return the rank of a name bound to ``value``. A call or item that cannot be followed is judged by the name."""
    followed = scope.rank(value)
    if followed:
        return followed
    while True:
        match value:
            case (
                ast.Call(func=ast.Name(id="int"), args=[inner]) | ast.Call(func=ast.Attribute(attr="item", value=inner))
            ):
                value = inner
            case ast.Call(func=func) if NOT_OWN_RANK.fullmatch(last_name(func)):
                return None  # torch.linalg.matrix_rank(x)
            case ast.Call() | ast.Subscript() | ast.Attribute() | ast.Await():
                return rank_by_name(name)
            case _:
                return None


def agreed_rank(found: list[RankValue | None]) -> RankValue | None:
    """Return the one rank that all of ``found`` are, less sure if one of them is; None if they differ."""
    known = [item for item in found if item is not IN_PROGRESS]
    if not known:
        return IN_PROGRESS if found else None
    if not all(known) or len({item.kind for item in known if item}) != 1:
        return None
    return min((item for item in known if item), key=lambda item: item.sure)


def is_constant_default(value: ast.expr) -> bool:
    """Return whether ``value`` is a constant: a default for runs that are not distributed."""
    return isinstance(value, ast.Constant) or (
        isinstance(value, ast.UnaryOp) and isinstance(value.operand, ast.Constant)
    )


class RankCache:
    """The ranks already found in one scope, and the guard against names that are defined by themselves."""

    def __init__(self) -> None:
        self._ranks: dict[ast.AST, RankValue | None] = {}
        self._depth = 0
        self._steps = 0

    def rank(self, expr: ast.AST, scope: RankScope) -> RankValue | None:
        """Return the rank that ``expr`` is in ``scope``; inside a definition by itself, ``IN_PROGRESS``."""
        if expr in self._ranks:
            return self._ranks[expr]
        self._steps = self._steps + 1 if self._depth else 0
        if self._steps > MOST_STEPS or self._depth > MOST_DEPTH:
            return None
        self._ranks[expr] = IN_PROGRESS
        self._depth += 1
        try:
            found = read_rank(expr, scope)
        finally:
            self._depth -= 1
            del self._ranks[expr]
        if found is not IN_PROGRESS or not self._depth:
            found = None if found is IN_PROGRESS else found
            self._ranks[expr] = found
        return found


def settled_rank(found: RankValue | None, name: str) -> RankValue | None:
    """Return ``found``, or what the name suggests if it is defined by nothing but itself."""
    return rank_by_name(name) if found is IN_PROGRESS else found
