"""Names that are bound differently on different ranks: from the rank, or under a condition on it."""

import ast

from ..training_script.syntax import FUNCTIONS
from .rule_context import Script


def differs_by_rank(script: Script, node: ast.expr) -> bool:
    """Return whether a name or attribute was bound under a condition on the rank, or from the rank."""
    return any(
        is_under_rank_condition(script, binding.at)
        or (binding.value is not None and script.depends_on_rank(binding.value))
        for binding in script.names.bindings(node)
    )


def is_under_rank_condition(script: Script, node: ast.AST) -> bool:
    """Return whether ``node`` is in a branch of an ``if`` that depends on the rank."""
    child, parent = node, script.source.parents.get(node)
    while parent is not None and not isinstance(parent, FUNCTIONS):
        if isinstance(parent, ast.If) and child is not parent.test and script.depends_on_rank(parent.test):
            return True
        child, parent = parent, script.source.parents.get(parent)
    return False
