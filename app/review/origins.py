"""The expressions that a value may come from at its place in the text."""

import ast

from ..training_script.reaching_values import values_at
from .rule_context import Script


def origins_at(script: Script, node: ast.expr) -> list[ast.AST]:
    """Return the expressions that a value may finally stand for where it is read, a name with what it holds there.

    Nothing is known of a name in another file.
    """
    if isinstance(node, ast.Name):
        if node not in script.source.parents:
            return []
        return [
            each
            for each in values_at(script.names, node, script.source.statement_of(node))
            if isinstance(each, ast.AST)
        ]
    return script.names.origins(node)
