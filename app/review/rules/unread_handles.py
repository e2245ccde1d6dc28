"""Handles of calls that only began which a function keeps under a name, or in a list, and never reads."""

import ast

from ...training_script.nodes import nodes_below
from ..rule_context import Script

LISTS = (ast.List, ast.Tuple, ast.ListComp)


def is_unread(script: Script, call: ast.Call) -> bool:
    """Return whether nothing reads the local name that holds what a call returns, or the list with it."""
    parents = script.source.parents
    at, parent = call, parents.get(call)
    while isinstance(parent, LISTS) and at is not None:
        at, parent = parent, parents.get(parent)
    match parent:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is at:
            pass
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[given]) if given is at:
            pass
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value) if value is at:
            pass
        case _:
            return False
    around = script.names.enclosing_function(call) or script.source.tree
    outer = [node for node in nodes_below(around) if isinstance(node, ast.Global | ast.Nonlocal)]
    reads = [node for node in nodes_below(around) if isinstance(node, ast.Name) and node.id == name]
    shared = any(name in each.names for each in outer)
    return not shared and not any(isinstance(node.ctx, ast.Load) and not _fills(script, node) for node in reads)


def _fills(script: Script, node: ast.Name) -> bool:
    """Return whether a name is read only to put something into its list, or to empty it."""
    parent = script.source.parents.get(node)
    return isinstance(parent, ast.Attribute) and parent.attr in ("append", "extend", "clear")
