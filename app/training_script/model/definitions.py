"""Decorators, class and body of a function, as its definition shows them."""

import ast

from ..rank_names import one_rank_decorator
from ..syntax import last_name
from .values import FunctionRef

HARMLESS_DECORATORS = {
    *("staticmethod", "classmethod", "property", "cached_property", "abstractmethod", "override", "contextmanager"),
    *("no_grad", "inference_mode", "enable_grad", "autocast", "compile", "jit", "script", "record", "dataclass"),
    *("main", "command", "option", "argument", "lru_cache", "cache", "wraps", "hydra_main", "parse", "overload"),
}


def is_harmless(decorator: ast.expr) -> bool:
    """Return whether every rank calls the function that a decorator wraps."""
    return last_name(decorator) in HARMLESS_DECORATORS or bool(one_rank_decorator(last_name(decorator)))


def gives_loss_to_trainer(function: FunctionRef) -> bool:
    """Return whether a Trainer calls a method with the model that it has wrapped, and takes the loss from it."""
    owner, node = function.owner, function.node
    of_trainer = owner and any(last_name(base).endswith("Trainer") for base in owner.node.bases)
    return bool(of_trainer) and getattr(node, "name", "") == "compute_loss"


def is_abstract(node: "ast.FunctionDef | ast.AsyncFunctionDef") -> bool:
    """Return whether a method has no body: a class that is not known defines what it does."""
    if node.decorator_list and any(last_name(each) == "abstractmethod" for each in node.decorator_list):
        return True
    last = node.body[-1]
    if not isinstance(last, (ast.Pass, ast.Expr)):
        return False
    return all(
        isinstance(each, ast.Pass) or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        for each in node.body
    )


def is_static(node: "ast.FunctionDef | ast.AsyncFunctionDef") -> bool:
    decorators = node.decorator_list
    return bool(decorators) and any(last_name(each) == "staticmethod" for each in decorators)
