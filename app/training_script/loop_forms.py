"""Loops with ``while`` that go over an iterable or count, as the ``for`` statements that they are."""

import ast
from collections.abc import Sequence

from .nodes import walk
from .syntax import last_name

ENDS = "StopIteration"
TAKES = ("pop", "popleft")  # methods that take an element out of a sequence


def as_for(loop: ast.While) -> ast.For | None:
    """Return a loop as a ``for`` statement of the same rounds, at its place; None if it is no such loop."""
    if isinstance(loop.test, ast.Constant) and loop.test.value is True and not loop.orelse:
        return _from_endless(loop)
    match loop.test:
        # while (x := next(it, None)) is not None
        case ast.Compare(
            left=ast.NamedExpr(
                target=target, value=ast.Call(func=ast.Name(id="next"), args=[over, ast.Constant(value=None)])
            ),
            ops=[ast.IsNot() | ast.NotEq()],
            comparators=[ast.Constant(value=None)],
        ):
            return _for(loop, target, over, loop.body)
        # while items: x = items.pop() / …
        case (
            ast.Name(id=name)
            | ast.Compare(
                left=ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]),
                ops=[ast.Gt() | ast.NotEq()],
                comparators=[ast.Constant(value=0)],
            )
        ):
            return _emptied(loop, name)
        # while n < count: … / n += 1
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Lt()], comparators=[bound]):
            return _counted(loop, name, bound, loop.body)
        case _:
            return None


def _from_endless(loop: ast.While) -> ast.For | None:
    match loop.body:
        # try: x = next(it) / except StopIteration: break
        case [
            ast.Try(
                body=[ast.Assign(targets=[target], value=ast.Call(func=ast.Name(id="next"), args=[over]))],
                handlers=[ast.ExceptHandler(type=ast.expr() as caught, body=[ast.Break()])],
                orelse=inner,
                finalbody=[],
            ),
            *rest,
        ] if last_name(caught) == ENDS:
            return _for(loop, target, over, [*inner, *rest])
        # x = next(it, None) / if x is None: break
        case [
            ast.Assign(
                targets=[ast.Name(id=name) as target],
                value=ast.Call(func=ast.Name(id="next"), args=[over, ast.Constant(value=None)]),
            ),
            ast.If(test=test, body=[ast.Break()], orelse=[]),
            *rest,
        ] if _compares(test, name, ast.Is, ast.Eq):
            return _for(loop, target, over, rest)
        # n += 1 / if n >= count: break
        case [
            ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=ast.Constant(value=1)),
            ast.If(test=ast.Compare(left=ast.Name(id=left), ops=[ast.GtE()], comparators=[bound]), body=[ast.Break()]),
            *rest,
        ] if name == left and not _stores(rest, {name} | _names(bound)):
            first = ast.BinOp(ast.Name(name, ast.Load()), ast.Add(), ast.Constant(1))
            return _for(loop, ast.Name(name, ast.Store()), _range(first, bound), rest)
        # if n >= count: break / … / n += 1
        case [
            ast.If(test=ast.Compare(left=ast.Name(id=name), ops=[ast.GtE()], comparators=[bound]), body=[ast.Break()]),
            *rest,
        ]:
            return _counted(loop, name, bound, rest)
        case _:
            return None


def _emptied(loop: ast.While, name: str) -> ast.For | None:
    """Return a loop that takes one element of a sequence in each round, until none is left."""
    first, *rest = loop.body
    match first:
        case ast.Assign(targets=[target], value=ast.Call(func=ast.Attribute(value=ast.Name(id=held), attr=attr))):
            pass
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=held), attr=attr))):
            target = ast.Name("_", ast.Store())
        case _:
            return None
    if held != name or attr not in TAKES or not rest or any(name in _names(stmt) for stmt in rest):
        return None
    return _for(loop, target, ast.Name(name, ast.Load()), rest)


def _counted(loop: ast.While, name: str, bound: ast.expr, body: list[ast.stmt]) -> ast.For | None:
    """Return a loop until a number, to which a statement of each round adds one."""
    steps = [stmt for stmt in body if _adds_one(stmt, name)]
    if len(steps) != 1 or (steps[0] is not body[0] and (steps[0] is not body[-1] or _goes_on(body))):
        return None
    rest = [stmt for stmt in body if stmt is not steps[0]]
    if not rest or _stores(rest, {name} | _names(bound)):
        return None
    over = _range(ast.Name(name, ast.Load()), bound)
    return _for(loop, ast.Name(name, ast.Store()), over, rest if steps[0] is body[-1] else body)


def _adds_one(stmt: ast.stmt, name: str) -> bool:
    match stmt:
        case ast.AugAssign(target=ast.Name(id=added), op=ast.Add(), value=ast.Constant(value=1)):
            return added == name
        case _:
            return False


def _compares(test: ast.expr, name: str, *ops: type[ast.cmpop]) -> bool:
    match test:
        case ast.Compare(left=ast.Name(id=left), ops=[op], comparators=[ast.Constant(value=None)]):
            return left == name and isinstance(op, ops)
        case _:
            return False


def _goes_on(body: Sequence[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Continue) for stmt in body for node in walk(stmt))


def _stores(body: Sequence[ast.stmt], names: set[str]) -> bool:
    nodes = (node for stmt in body for node in walk(stmt))
    return any(isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and node.id in names for node in nodes)


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in walk(node) if isinstance(each, ast.Name)}


def _range(first: ast.expr, bound: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("range", ast.Load()), [first, bound], [])


def _for(loop: ast.While, target: ast.expr, over: ast.expr, body: list[ast.stmt]) -> ast.For:
    made = ast.copy_location(ast.For(target, over, body, loop.orelse), loop)
    for node in (target, over, *walk(over)):
        if not hasattr(node, "lineno"):
            ast.copy_location(node, loop.test)
    return made
