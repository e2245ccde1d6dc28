"""Conditional expressions that determine the number of iterations of a loop: ``40 if rank == 1 else 50``."""

import ast
from collections.abc import Iterator

from .control_flow import early_exit_conditions
from .frame_scope import FrameScope
from .line_queries import Loop

DEPTH = 6


def loop_bound_conditions(loop: Loop, scope: FrameScope) -> Iterator[tuple[ast.IfExp, FrameScope]]:
    """Yield the conditional expressions behind the iterable of a loop and behind the numbers that end it."""
    if isinstance(loop, (ast.For, ast.AsyncFor)):
        yield from _behind(loop.iter, scope, DEPTH)
    if isinstance(loop, ast.While):
        yield from _behind(loop.test, scope, DEPTH)
    for guard in early_exit_conditions(loop, scope):
        if isinstance(guard.test, ast.Compare):
            yield from _behind(guard.test, guard.scope, DEPTH)


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
