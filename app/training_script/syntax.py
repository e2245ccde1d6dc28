"""Small questions about Python syntax that many rules ask."""

import ast
from collections.abc import Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def parameters(function: Function) -> list[str]:
    """The names of the positional parameters, then the keyword-only ones."""
    spec = function.args
    return [argument.arg for argument in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]


def match_arguments(names: list[str], args: list[ast.expr], keywords: list[ast.keyword]) -> dict[str, ast.expr]:
    """Which expression each parameter gets; nothing behind a starred argument."""
    values: dict[str, ast.expr] = {}
    for name, value in zip(names, args, strict=False):
        if isinstance(value, ast.Starred):
            break
        values[name] = value
    return values | {keyword.arg: keyword.value for keyword in keywords if keyword.arg}


def dotted_name(expr: ast.AST) -> str:
    """``a.b.c`` of an attribute chain on a name, else ""."""
    attributes: list[str] = []
    while isinstance(expr, ast.Attribute):
        attributes.insert(0, expr.attr)
        expr = expr.value
    return ".".join([expr.id, *attributes]) if isinstance(expr, ast.Name) else ""


def nodes_of_body(node: ast.AST) -> Iterator[ast.AST]:
    """Everything below ``node`` that runs as part of it: not the bodies of functions and lambdas defined in it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (*FUNCTIONS, ast.Lambda)):
            yield from nodes_of_body(child)


def is_generator(function: Function) -> bool:
    """Whether calling the function only makes a generator."""
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in nodes_of_body(function))


def call_argument(call: ast.Call, name: str, place: int | None = None) -> ast.expr | None:
    """The argument given by keyword, or at a place among the positional ones."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if (
        place is not None
        and place < len(call.args)
        and not any(isinstance(a, ast.Starred) for a in call.args[: place + 1])
    ):
        return call.args[place]
    return None
