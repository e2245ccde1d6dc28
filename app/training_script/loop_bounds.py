"""The number of iterations of a loop: conditions that determine it (``40 if rank == 1 else 50``), and data."""

import ast
from collections.abc import Iterator

from .control_flow import break_conditions, early_exit_conditions
from .frame_scope import FrameScope
from .line_queries import Loop
from .syntax import called_function_name

DEPTH = 6
COUNTERS = {"range", "count", "repeat", "trange"}
WRAPPERS = {"tqdm", "enumerate", "islice", "zip", "reversed", "list", "tuple"}
OF_THE_MODEL = {"parameters", "named_parameters", "buffers", "named_buffers", "modules", "named_modules", "children"}
FETCHES = {"next", "get", "read", "recv"}


def loop_bound_conditions(loop: Loop, scope: FrameScope) -> Iterator[tuple[ast.IfExp, FrameScope]]:
    """Yield the conditional expressions behind the iterable of a loop and behind the numbers that end it."""
    if isinstance(loop, (ast.For, ast.AsyncFor)):
        yield from _behind(loop.iter, scope, DEPTH)
    if isinstance(loop, ast.While):
        yield from _behind(loop.test, scope, DEPTH)
    for guard in early_exit_conditions(loop, scope):
        if isinstance(guard.test, ast.Compare):
            yield from _behind(guard.test, guard.scope, DEPTH)


def iterates_over_data(loop: Loop, scope: FrameScope) -> bool:
    """Return whether data ends a loop: it visits the items of something, or counts as many as something has.

    A loop over plain numbers, over the parts of a model or until a condition holds does not, unless it fetches items.
    """
    if isinstance(loop, (ast.For, ast.AsyncFor)):
        return _is_data(loop.iter, scope, DEPTH)
    calls = {called_function_name(node) for node in ast.walk(loop) if isinstance(node, ast.Call)}
    return bool(FETCHES & calls) or _counts_items(getattr(loop, "test", loop), scope, DEPTH)


def runs_alike_on_all_ranks(loop: Loop, scope: FrameScope) -> bool:
    """Return whether a loop counts plain numbers up to the same end on every rank, so that only an error leaves it."""
    if not isinstance(loop, ast.For) or break_conditions(loop) or _is_data(loop.iter, scope, DEPTH):
        return False
    return not scope.depends_on_rank(loop.iter) and next(_behind(loop.iter, scope, DEPTH), None) is None


def _is_data(iterated: ast.expr, scope: FrameScope, depth: int) -> bool:
    match iterated:
        case ast.Call(args=[*_, _]) if called_function_name(iterated) in WRAPPERS:
            return any(_is_data(arg, scope, depth) for arg in iterated.args if not isinstance(arg, ast.Constant))
        case ast.Call() if (name := called_function_name(iterated)) in COUNTERS | OF_THE_MODEL:
            return name in COUNTERS and any(_counts_items(arg, scope, depth) for arg in iterated.args)
        case ast.Name() | ast.Attribute() if depth and (known := scope.definition(iterated)):
            return _is_data(*known, depth - 1)
    return True


def _counts_items(number: ast.AST, scope: FrameScope, depth: int) -> bool:
    """Return whether a number is computed from the length of something."""
    for node in ast.walk(number):
        if isinstance(node, ast.Call) and called_function_name(node) == "len":
            return True
        known = scope.definition(node) if depth and isinstance(node, (ast.Name, ast.Attribute)) else None
        if known and known[0] is not number and _counts_items(*known, depth - 1):
            return True
    return False


def _behind(node: ast.expr, scope: FrameScope, depth: int) -> Iterator[tuple[ast.IfExp, FrameScope]]:
    if depth == 0:
        return
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            if not (_wraps(body, orelse) or _wraps(orelse, body)):
                yield node, scope
            parts = [body, orelse]
        case ast.Name(id=name):
            if known := scope.lookup(name):
                yield from _behind(*known, depth - 1)
            return
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            if known := scope.attribute(name):
                yield from _behind(*known, depth - 1)
            return
        case ast.Call(args=args):
            parts = args
        case _:
            parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
    for part in parts:
        yield from _behind(part, scope, depth)


def _wraps(one: ast.expr, other: ast.expr) -> bool:
    """Return whether ``one`` wraps ``other`` (``tqdm(other)``): the number of iterations is the same."""
    return isinstance(one, ast.Call) and any(ast.dump(arg) == ast.dump(other) for arg in one.args)
