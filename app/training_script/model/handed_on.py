"""Functions that hand on all that they are called with to another one, as decorators and thin wrappers do."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from ..nodes import as_written, walk
from ..syntax import FUNCTIONS, last_name

OF_CLASSES = ("staticmethod", "classmethod")
NOTES = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign)  # statements that leave no function


class HandedOn(NamedTuple):
    """The one call by which a function hands on. ``tests``: what keeps it from that; ``others``: its other calls.

    ``parameter``: the place of the parameter that is called, None if it is something else.
    """

    call: ast.Call
    tests: list[ast.expr]
    others: list[ast.Call]
    parameter: int | None


def hands_on(call: ast.Call, function: ast.AST) -> bool:
    """Return whether a call passes on every argument of the function around it, any number of them, and nothing else.

    The object of a method may be left out, and a function that is called.
    """
    if not isinstance(function, FUNCTIONS):
        return False
    spec, call = function.args, as_written(call)
    if not spec.vararg or spec.kwonlyargs:
        return False
    named = _placed(spec)
    *placed, last = [*call.args] or [call.func]
    if not isinstance(last, ast.Starred) or not _is_name(last.value, spec.vararg.arg):
        return False
    passed = [each.id if isinstance(each, ast.Name) else "" for each in placed]
    rest = [each.arg is None and _is_name(each.value, spec.kwarg.arg if spec.kwarg else "") for each in call.keywords]
    calls_own = not passed and isinstance(call.func, ast.Name) and call.func.id in named
    return (calls_own or passed in (named, named[1:])) and rest == [True] * bool(spec.kwarg)


def call_handed_on(function: ast.AST) -> HandedOn | None:
    """Return the call of a function by which it hands on to another one, if it does nothing else of weight."""
    if not isinstance(function, FUNCTIONS) or not function.args.vararg:
        return None
    if any(last_name(each) not in OF_CLASSES for each in function.decorator_list):
        return None
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    tests: list[ast.expr] = []
    calls: list[ast.Call] = []
    result = ""
    for stmt in body or [ast.Pass()]:
        if isinstance(stmt, ast.If) and _only_returns(stmt) and not result:
            tests.append(stmt.test)
        elif isinstance(stmt, NOTES) or (isinstance(stmt, ast.Return) and stmt is body[-1]):
            calls += _calls(stmt)
            if isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Call) and hands_on(stmt.value, function):
                result = stmt.targets[0].id if isinstance(stmt.targets[0], ast.Name) else ""
        else:
            return None
    own = [each for each in calls if hands_on(each, function)]
    if len(own) != 1 or not _gives(body[-1], own[0], result):
        return None
    called, placed = own[0].func, _placed(function.args)
    parameter = placed.index(called.id) if isinstance(called, ast.Name) and called.id in placed else None
    return HandedOn(own[0], tests, [each for each in calls if each is not own[0]], parameter)


def _placed(spec: ast.arguments) -> list[str]:
    return [each.arg for each in (*spec.posonlyargs, *spec.args)]


def _calls(stmt: ast.stmt) -> Iterator[ast.Call]:
    yield from (each for each in walk(stmt) if isinstance(each, ast.Call))


def _gives(last: ast.stmt, call: ast.Call, result: str) -> bool:
    """Return whether the last statement of a function gives what the call has returned."""
    value = last.value if isinstance(last, (ast.Return, ast.Expr)) else None
    return value is call or (isinstance(last, ast.Return) and value is not None and _is_name(value, result))


def _only_returns(stmt: ast.If) -> bool:
    simple = (ast.Constant, ast.Name, type(None))
    returns = all(isinstance(each, ast.Return) and isinstance(each.value, simple) for each in stmt.body)
    return returns and not stmt.orelse


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
