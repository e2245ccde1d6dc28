"""The objects behind the names of a training script: which call made a model, an optimizer or a loader."""

import ast
from collections.abc import Callable

from ...training_script.name_resolution import Names
from ...training_script.syntax import last_name

WRAPPERS = {"DataParallel", "DistributedDataParallel", "DDP", "compile", "convert_sync_batchnorm"}
SAME_OBJECT = {"to", "cuda", "cpu", "train", "eval", "half", "float", "bfloat16", "double", "requires_grad_", "module"}
AROUND_LOADER = {"enumerate", "tqdm", "iter", "zip", "islice", "cycle", "next", "track"}
MOST_STEPS = 50


def roots(names: Names, expr: ast.expr) -> set[ast.AST]:
    """Return the calls and parameters that made the object of ``expr``; wrappers and moves do not make another."""
    return _roots(names, expr, _inner_model)


def loader_roots(names: Names, expr: ast.expr) -> set[ast.AST]:
    """Return the calls that made the loader that an iteration over ``expr`` reads."""
    return _roots(names, expr, _inner_loader)


def _roots(names: Names, expr: ast.expr, inner: Callable[[ast.AST], ast.expr | None]) -> set[ast.AST]:
    found: set[ast.AST] = set()
    seen: set[ast.AST] = set()
    pending: list[ast.expr] = [expr]
    while pending and len(seen) < MOST_STEPS:
        at = pending.pop()
        if at in seen:
            continue
        seen.add(at)
        for leaf in names.origins(at):
            pending += _in_instance(names, leaf)
            below = inner(leaf)
            if below is not None:
                pending.append(below)
            else:
                found.add(leaf)
    return found


def _in_instance(names: Names, leaf: ast.AST) -> list[ast.expr]:
    """Return what the methods of a class bind to ``self.model``, for ``trainer.model`` of an object of the class."""
    if not (isinstance(leaf, ast.Attribute) and isinstance(leaf.value, ast.Name)):
        return []
    owners = (names.class_of(made) for made in names.origins(leaf.value))
    bindings = (each for owner in owners if owner for each in names.attributes.get((owner, f"self.{leaf.attr}"), []))
    return [binding.value for binding in bindings if binding.value is not None]


def _inner_model(leaf: ast.AST) -> ast.expr | None:
    match leaf:
        case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in SAME_OBJECT:
            return value
        case ast.Call(args=[first, *_]) if last_name(leaf.func) in WRAPPERS:
            return first
        case ast.Attribute(value=value, attr="module"):
            return value
    return None


def _inner_loader(leaf: ast.AST) -> ast.expr | None:
    match leaf:
        case ast.Call(args=[first, *_]) if last_name(leaf.func) in AROUND_LOADER:
            return first
    return None


def without_iterators(expr: ast.expr) -> ast.expr:
    """Return ``loader`` of ``enumerate(tqdm(loader))``."""
    while (inner := _inner_loader(expr)) is not None:
        expr = inner
    return expr
