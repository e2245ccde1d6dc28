"""DW118: ranks and numbers of ranks that a program asks for when a module is read, before there is a process group."""

import ast
from functools import partial

from ...training_script.nodes import nodes_below, nodes_of_kinds
from ...training_script.syntax import FUNCTIONS, Function, last_name, nodes_of_body
from ..patches.ask_in_function import BY_HAND, FIX, ask_in_function
from ..rule_context import Script, Violation, no_patch
from ..violations import violation_at_node
from . import calls_at_import

ASKS, GROUP = ("get_world_size", "get_rank"), "is_initialized"


def check(script: Script) -> list[Violation]:
    """Return what is asked for when a file is read, by functions that answer without a group, and by others."""
    return [*_answered(script), *calls_at_import.check(script)]


def _answered(script: Script) -> list[Violation]:
    """Return the defaults of arguments, and the names of a module, that have what is true without a process group."""
    if not script.mentions(GROUP):
        return []
    body = script.source.tree.body
    found: list[Violation] = []
    begun = next((stmt.lineno for stmt in body if _may_make_group(stmt)), None)
    for node in nodes_of_kinds(script.source.tree, *FUNCTIONS, ast.Assign):
        if isinstance(node, FUNCTIONS) and script.names.enclosing_function(node) is None:
            given = [each for each in (*node.args.defaults, *node.args.kw_defaults) if each is not None]
            where = f"this default of {node.name} is computed once, when the function is defined"
        elif isinstance(node, ast.Assign) and script.source.parents.get(node) is script.source.tree:
            given, where = [node.value], "this is computed once, when the module is read"
        else:
            continue
        for value in given if begun is None or node.lineno < begun else ():
            asked = _asked(script, value)
            if asked is not None and (isinstance(node, FUNCTIONS) or _is_read_in_function(script, node)):
                message = (
                    f"{where}: there is no process group then, and `{asked.name}` returns what it does without one"
                )
                is_default = isinstance(node, FUNCTIONS)
                patch = partial(ask_in_function, script, node, value) if is_default else partial(no_patch, FIX, BY_HAND)
                found.append(violation_at_node(value, message, 0.85, patch=patch))
    return found


def _may_make_group(stmt: ast.stmt) -> bool:
    """Return whether a statement of a module may make a process group."""
    calls = (node for node in nodes_of_body(stmt) if isinstance(node, ast.Call))
    match stmt:
        case ast.Expr(value=ast.Call(func=ast.Name())):
            return True
        case _:
            pass
    return not isinstance(stmt, (*FUNCTIONS, ast.ClassDef)) and any(
        "init" in last_name(each.func) or "setup" in last_name(each.func) for each in calls
    )


def _is_read_in_function(script: Script, stmt: ast.Assign) -> bool:
    names = {each.id for each in stmt.targets if isinstance(each, ast.Name)}
    return any(
        isinstance(node, ast.Name)
        and node.id in names
        and isinstance(node.ctx, ast.Load)
        and script.names.enclosing_function(node) is not None
        for node in nodes_below(script.source.tree)
    )


def _asked(script: Script, value: ast.expr) -> Function | None:
    """Return the function that a value is asked of, if it answers with a constant as long as there is no group."""
    for call in (node for node in ast.walk(value) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        for bound in script.names.bindings(call.func):
            if isinstance(bound.at, FUNCTIONS) and _depends_on_group(script, bound.at):
                return bound.at
    return None


def _depends_on_group(script: Script, function: Function) -> bool:
    called = {last_name(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
    returned = script.names.returned_values(function)
    constant = any(
        isinstance(side, ast.Constant) and type(side.value) is int
        for each in returned
        for side in ((each.body, each.orelse) if isinstance(each, ast.IfExp) else (each,))
    )
    return GROUP in called and bool(called & {*ASKS}) and constant
