"""Handlers of signals: a signal reaches ranks at different moments, or only one of them."""

import ast

from ..nodes import nodes_below
from ..syntax import last_name


def names_set_by_signals(tree: ast.Module) -> frozenset[str]:
    """Return the global names and the attributes that the handlers given to ``signal.signal`` set."""
    nodes = nodes_below(tree)
    handlers = {
        last_name(node.args[1])
        for node in nodes
        if isinstance(node, ast.Call) and last_name(node.func) == "signal" and len(node.args) == 2
    }
    if not handlers:
        return frozenset()
    found = set[str]()
    for function in nodes:
        if isinstance(function, ast.FunctionDef) and function.name in handlers:
            inner = nodes_below(function)
            own = {name for node in inner if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
            found |= {node.id for node in inner if isinstance(node, ast.Name) and _is_set(node) and node.id in own}
            found |= {node.attr for node in inner if isinstance(node, ast.Attribute) and _is_set(node)}
    return frozenset(found)


def _is_set(node: ast.Name | ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store)
