"""DW415: handles of calls that only began, which a program keeps and never waits for."""

import ast
import re

from ...training_script.nodes import nodes_below
from ...training_script.syntax import dotted_name, last_name
from ..rule_context import Script

# What waits for the end of a call, or may do so for a handle that it gets.
WAITS = re.compile(r"wait|synchronize|is_completed|get_future|\.(?:result|then|value|join)\(|getattr|_handles?\(")
FILLS = {"append", "extend", "clear"}
OF_LISTS = {"len", "print", "append", "extend", "clear", "pop", "add"}  # calls that wait for nothing


def is_left(script: Script, call: ast.Call, whole: bool) -> bool:
    """Return whether the handle that a call returns is kept under a name where nothing waits for it.

    ``whole``: the program starts in this file, so that no other one uses its objects.
    """
    kept = _kept(script, call)
    if not kept or ("." in kept and not whole):
        return False
    if "." not in kept and not _is_read(script, call, kept):
        return True
    return not script.mentions(WAITS) and not any(
        _is_handed_on(script, node, kept) for node in nodes_below(script.source.tree)
    )


def _is_read(script: Script, call: ast.Call, kept: str) -> bool:
    """Return whether the function of a call reads a name for more than to fill or to empty its list, or shares it."""
    around = script.names.enclosing_function(call) or script.source.tree
    for node in nodes_below(around):
        if isinstance(node, ast.Global | ast.Nonlocal) and kept in node.names:
            return True
        if isinstance(node, ast.Name) and node.id == kept and isinstance(node.ctx, ast.Load):
            user = script.source.parents.get(node)
            if not (isinstance(user, ast.Attribute) and user.attr in FILLS):
                return True
    return False


def _kept(script: Script, call: ast.Call) -> str:
    """Return the name or attribute that holds a handle, or the list of it, "" if it is held by neither."""
    made: ast.AST = call
    while isinstance(parent := script.source.parents.get(made), ast.List | ast.Tuple | ast.ListComp):
        made = parent
    match parent:
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            target = target.value if isinstance(target, ast.Subscript) else target
            return dotted_name(target) if isinstance(target, ast.Name | ast.Attribute) else ""
        case ast.Call(func=ast.Attribute(value=held, attr="append" | "extend" | "add")):
            return dotted_name(held)
        case _:
            return ""


def _is_handed_on(script: Script, node: ast.AST, kept: str) -> bool:
    """Return whether a use of a name gives the handle to something else: a caller, a function, another name."""
    if (
        not isinstance(node, ast.Name | ast.Attribute)
        or dotted_name(node) != kept
        or not isinstance(node.ctx, ast.Load)
    ):
        return False
    user = script.source.parents.get(node)
    if isinstance(user, ast.Subscript) and isinstance(user.ctx, ast.Store):
        return False
    while isinstance(user, ast.Tuple | ast.List | ast.Dict | ast.keyword | ast.Starred | ast.Subscript):
        user = script.source.parents.get(user)
    match user:
        case ast.Call():
            return last_name(user.func) not in OF_LISTS
        case ast.Return() | ast.Yield() | ast.Assign() | ast.AnnAssign() | ast.For() | ast.comprehension():
            return True
        case _:
            return False
