"""Functions that hand on all that they are called with to another one, as decorators and thin wrappers do."""

import ast

from ..syntax import FUNCTIONS, last_name

OF_CLASSES = ("staticmethod", "classmethod")


def hands_on(call: ast.Call, function: ast.AST) -> bool:
    """Return whether a call passes on every argument of the function around it, any number of them, and nothing else.

    The object of a method may be left out.
    """
    if not isinstance(function, FUNCTIONS):
        return False
    spec = function.args
    if not spec.vararg or spec.kwonlyargs:
        return False
    named = [each.arg for each in (*spec.posonlyargs, *spec.args)]
    *placed, last = [*call.args] or [call.func]
    if not isinstance(last, ast.Starred) or not _is_name(last.value, spec.vararg.arg):
        return False
    passed = [each.id if isinstance(each, ast.Name) else "" for each in placed]
    rest = [each.arg is None and _is_name(each.value, spec.kwarg.arg if spec.kwarg else "") for each in call.keywords]
    return passed in (named, named[1:]) and rest == [True] * bool(spec.kwarg)


def call_handed_on(function: ast.AST) -> tuple[ast.Call, list[ast.expr]] | None:
    """Return the one call that a function consists of if it hands on to it; and the tests that keep it from that."""
    if not isinstance(function, FUNCTIONS) or not function.args.vararg:
        return None
    if any(last_name(each) not in OF_CLASSES for each in function.decorator_list):
        return None
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    *guards, last = body or [ast.Pass()]
    tests = [each.test for each in guards if isinstance(each, ast.If) and _only_returns(each)]
    if not isinstance(last, (ast.Return, ast.Expr)) or len(tests) < len(guards):
        return None
    call = last.value
    return (call, tests) if isinstance(call, ast.Call) and hands_on(call, function) else None


def _only_returns(stmt: ast.If) -> bool:
    simple = (ast.Constant, ast.Name, type(None))
    returns = all(isinstance(each, ast.Return) and isinstance(each.value, simple) for each in stmt.body)
    return returns and not stmt.orelse


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
