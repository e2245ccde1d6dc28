"""Losses that compare the samples of a batch with each other: each rank would compare those that it has only."""

import ast
from collections.abc import Iterator

from ...training_script.syntax import FUNCTIONS, dotted_name, last_name
from .facts import TrainingFacts
from .imported_code import ImportedCode
from .losses import creation, loss_sources
from .types import Refusal

PRODUCTS = {"matmul", "mm", "einsum"}
DISTANCES = {"cdist", "pdist"}
WHY = "the loss compares the samples of a batch with each other, and each rank has a part of them: gather them by hand"


def check_coupling(facts: TrainingFacts) -> None:
    """Refuse a loss in which samples of a batch meet: products of samples by samples, or labels that number them.

    Raises:
        Refusal: With the line.
    """
    for node in _nodes_of_loss(facts):
        if _couples(node):
            raise Refusal(getattr(node, "lineno", 1), WHY)
    imported = ImportedCode(facts)
    for source in loss_sources(facts):
        for each in imported.used_by((creation(facts, source) or source).func):
            if coupled := next((node for node in ast.walk(each.node) if _couples(node)), None):
                raise Refusal(source.lineno, f"{WHY} ({each.place(coupled)})")


def _couples(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            return _is_transposed(left) != _is_transposed(right) and not _is_weight(left) and not _is_weight(right)
        case ast.Call(args=[left, right, *_]) if last_name(node.func) in PRODUCTS:
            return _is_transposed(right) and not _is_weight(left) and not _is_weight(right)
        case ast.Call() if last_name(node.func) in DISTANCES:
            return True
        case ast.Call(args=[left, right, *_]) if last_name(node.func) == "cosine_similarity":
            return any(_adds_dimension(each) for each in (left, right))
        case ast.Call(args=[count, *_]) if last_name(node.func) == "arange":
            return _is_length(count)
    return False


def _is_transposed(expr: ast.expr) -> bool:
    """Return whether an expression is a whole matrix transposed: ``x.T``, ``x.t()``."""
    match expr:
        case ast.Attribute(attr="T"):
            return True
        case ast.Call(func=ast.Attribute(attr="t"), args=[]):
            return True
    return False


def _is_weight(expr: ast.expr) -> bool:
    """Return whether an operand is a weight: an attribute of ``self`` or of a module, transposed or not."""
    while isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute):
        expr = expr.func.value
    if isinstance(expr, ast.Attribute) and expr.attr == "T":
        expr = expr.value
    return isinstance(expr, ast.Attribute) and bool(dotted_name(expr))


def _adds_dimension(expr: ast.expr) -> bool:
    return any(isinstance(each, ast.Call) and last_name(each.func) == "unsqueeze" for each in ast.walk(expr))


def _is_length(expr: ast.expr) -> bool:
    match expr:
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name()]):
            return True
        case ast.Call(func=ast.Attribute(attr="size"), args=[ast.Constant(value=0)]):
            return True
        case ast.Subscript(value=ast.Attribute(attr="shape"), slice=ast.Constant(value=0)):
            return True
    return False


def _nodes_of_loss(facts: TrainingFacts) -> Iterator[ast.AST]:
    """Yield the nodes of the training step, of the functions that it calls, and of the modules of model and loss."""
    pending: list[ast.AST] = [facts.batch_loop, *facts.training_functions]
    modules = [facts.names.class_of(made) for made in (*facts.model_roots, *_loss_modules(facts))]
    pending += [each for each in modules if each is not None]
    seen: set[ast.AST] = set()
    while pending:
        part = pending.pop(0)
        if part in seen:
            continue
        seen.add(part)
        for node in ast.walk(part):
            yield node
            function = facts.names.function(node) if isinstance(node, ast.Call) else None
            if isinstance(function, FUNCTIONS):
                pending.append(function)


def _loss_modules(facts: TrainingFacts) -> Iterator[ast.AST]:
    for source in loss_sources(facts):
        if (made := creation(facts, source)) is not None:
            yield made
