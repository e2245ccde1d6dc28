"""Helpers for Python syntax trees."""

import ast
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from .nodes import child_nodes

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
BODIES_OF_OTHERS = (*FUNCTIONS, ast.Lambda)  # nodes whose inside runs where they are called
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def parameters(function: Function) -> list[str]:
    """Return the names of the positional parameters, then the keyword-only ones."""
    spec = function.args
    return [argument.arg for argument in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]


def match_arguments(names: list[str], args: list[ast.expr], keywords: list[ast.keyword]) -> dict[str, ast.expr]:
    """Return the expression that each parameter gets; nothing behind a starred argument."""
    values: dict[str, ast.expr] = {}
    for name, value in zip(names, args, strict=False):
        if isinstance(value, ast.Starred):
            break
        values[name] = value
    return values | {keyword.arg: keyword.value for keyword in keywords if keyword.arg}


def last_name(node: ast.expr) -> str:
    """Return the last part of a dotted name, of a call the name of its function; "" if there is none."""
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def called_function_name(call: ast.Call) -> str:
    """Return the name by which a function is called, without what precedes its last dot."""
    return last_name(call.func)


def contains_line(node: ast.stmt | ast.expr, line: int) -> bool:
    """Return whether a statement or expression spans a line."""
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def is_gradient_attribute(node: ast.expr) -> bool:
    """Return whether an expression is the gradient of a tensor, or its data."""
    return dotted_name(node).endswith((".grad", ".grad.data"))


def scaled_in_place(node: ast.AST, operator: type[ast.Mult] | type[ast.Div]) -> tuple[ast.expr, ast.expr] | None:
    """Return the tensor that a statement or a call multiplies or divides in place, and the number; None for others."""
    method = "mul_" if operator is ast.Mult else "div_"
    match node:
        case ast.Call(func=ast.Attribute(value=held, attr=attr), args=[number]) if attr == method:
            return held, number
        case ast.AugAssign(target=held, op=op, value=number) if isinstance(op, operator):
            return held, number
        case _:
            return None


def as_expression(body: Sequence[ast.stmt]) -> ast.expr | None:
    """Return what a function body returns as a choice between expressions, or None if that is not possible."""
    for index, statement in enumerate(body):
        match statement:
            case ast.Return(value=ast.expr() as value):
                return value
            case ast.If(test=test, body=inner, orelse=orelse):
                rest = body[index + 1 :]
                yes, no = as_expression([*inner, *rest]), as_expression([*orelse, *rest])
                return ast.IfExp(test=test, body=yes, orelse=no) if yes and no else None
            case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Assign() | ast.AnnAssign():
                continue
            case _:
                return None
    return None


def is_main_block(node: ast.AST) -> TypeGuard[ast.If]:
    """Return whether a statement is the ``if __name__ == "__main__"`` of a script."""
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def dotted_name(expr: ast.AST) -> str:
    """Return ``a.b.c`` of an attribute chain on a name, else ""."""
    attributes: list[str] = []
    while isinstance(expr, ast.Attribute):
        attributes.insert(0, expr.attr)
        expr = expr.value
    return ".".join([expr.id, *attributes]) if isinstance(expr, ast.Name) else ""


def nodes_of_body(node: ast.AST) -> Iterator[ast.AST]:
    """Yield every node below ``node`` that runs as part of it; bodies of functions and lambdas defined in it do not."""
    pending = child_nodes(node)[::-1]
    while pending:
        child = pending.pop()
        yield child
        if not isinstance(child, BODIES_OF_OTHERS):
            pending += child_nodes(child)[::-1]


def is_generator(function: Function) -> bool:
    """Return whether the function is a generator function."""
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in nodes_of_body(function))


def call_argument(call: ast.Call, name: str, place: int | None = None) -> ast.expr | None:
    """Return the argument given by keyword or at a positional place, or None."""
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


def unpacked_at_once(stmt: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """Return the targets of ``a, b = x, y`` with their values; none for other assignments."""
    match stmt:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(targets) == len(values):
            starred = any(isinstance(each, ast.Starred) for each in (*targets, *values))
            return [] if starred else list(zip(targets, values, strict=True))
        case _:
            return []
