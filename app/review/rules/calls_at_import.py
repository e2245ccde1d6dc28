"""DW118: calls that need the process group, made when a module is read."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from ...training_script.collectives import GROUP_PLACE
from ...training_script.model.noted_calls import INIT, OF_GROUP
from ...training_script.model.parsed_modules import PARSED_MODULES
from ...training_script.model.users import users
from ...training_script.nodes import nodes_of_kinds
from ...training_script.project_imports import read_module
from ...training_script.syntax import FUNCTIONS, nodes_of_body
from ..rule_context import Script, Violation
from ..violations import violation_at_node

NEEDS = {*OF_GROUP, *(f"torch.distributed.{name}" for name in GROUP_PLACE)}
MAKES = re.compile(r"\binit_process_group\(|\binit_distributed\(")
AROUND = (*FUNCTIONS, ast.If, ast.Try, ast.For, ast.While, ast.With)
ASKS = re.compile(r"\bis_initialized\b|\bis_available\b")


def check(script: Script) -> Iterator[Violation]:
    """Yield the calls that run when the file is read, where functions make the process group later."""
    if not any(script.mentions(name.removeprefix("torch.distributed.")) for name in OF_GROUP):
        return
    for value in _read_with_module(script):
        for call in _calls(script, value):
            if _is_made_later(script, call):
                yield violation_at_node(
                    call,
                    "this runs when the file is read, before any function can have made the process group: it raises "
                    "a ValueError",
                    0.85,
                )
                return


def _read_with_module(script: Script) -> Iterator[ast.expr]:
    """Yield the expressions that a module evaluates when it is read: what names hold, and defaults of arguments."""
    for node in nodes_of_kinds(script.source.tree, *FUNCTIONS, ast.Assign, ast.AnnAssign):
        if not _runs_with_module(script, node):
            continue
        if isinstance(node, FUNCTIONS):
            yield from (each for each in (*node.args.defaults, *node.args.kw_defaults) if each is not None)
        elif isinstance(node.value, ast.expr):
            yield node.value


def _runs_with_module(script: Script, node: ast.AST) -> bool:
    """Return whether a statement is in no function, and no condition or ``try`` statement is around it."""
    parents = script.source.parents
    at = parents.get(node)
    while at is not None and type(at) is not ast.Module:
        if isinstance(at, AROUND):
            return False
        at = parents.get(at)
    return True


def _calls(script: Script, value: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls in an expression that surely need the group, or make an object whose constructor has one."""
    if ASKS.search(script.source.code(value)):
        return
    for call in (node for node in (value, *nodes_of_body(value)) if isinstance(node, ast.Call)):
        if script.names.qualified(call.func) in NEEDS:
            yield call
        elif isinstance(call.func, ast.Name):
            made = [bound.at for bound in script.names.bindings(call.func)]
            body = _constructor(made[0]) if len(made) == 1 else None
            if body is not None and _needs_group(script, body):
                yield call


def _constructor(made: object) -> "ast.FunctionDef | None":
    body = made.body if isinstance(made, ast.ClassDef) else []
    return next((each for each in body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)


def _needs_group(script: Script, function: ast.FunctionDef) -> bool:
    """Return whether a function calls what needs the group, and neither makes one nor asks for it."""
    text = script.source.code(function)
    if ASKS.search(text) or MAKES.search(text) or "try:" in text:
        return False
    statements = [stmt for stmt in function.body if isinstance(stmt, ast.Assign | ast.AnnAssign | ast.Expr)]
    calls = (node for stmt in statements for node in nodes_of_body(stmt) if isinstance(node, ast.Call))
    return any(script.names.qualified(each.func) in NEEDS for each in calls)


def _is_made_later(script: Script, call: ast.Call) -> bool:
    """Return whether functions make the group, of this file or of a script that imports it at its top."""
    path, tree = Path(script.source.path), script.source.tree
    if _is_started(script, call.lineno):
        return False
    calls = nodes_of_kinds(tree, ast.Call) if script.mentions(INIT.rpartition(".")[2]) else []
    makes = (node for node in calls if script.names.qualified(node.func) == INIT)
    if any(script.names.enclosing_function(node) is not None for node in makes):
        return True
    return path.is_absolute() and any(_imports_before_group(user, path.stem) for user in users(path))


def _is_started(script: Script, line: int) -> bool:
    """Return whether a statement of the module may make the group before a line."""
    return any(
        isinstance(node, ast.Call)
        for stmt in script.source.tree.body
        if stmt.lineno < line and isinstance(stmt, ast.Expr | ast.If | ast.Try | ast.With)
        for node in nodes_of_body(stmt)
    )


def _imports_before_group(user: Path, name: str) -> bool:
    """Return whether a script imports a module at its top, and makes the process group in a function or behind it."""
    parsed = PARSED_MODULES.get(user)
    if parsed is None:
        return False
    imported = False
    for stmt in parsed.tree.body:
        match stmt:
            case ast.Import(names=names):
                imported = imported or any(each.name.rpartition(".")[2] == name for each in names)
            case ast.ImportFrom(module=module, names=names):
                imported = imported or (module or "").rpartition(".")[2] == name or name in {n.name for n in names}
            case _ if not imported and not isinstance(stmt, (*FUNCTIONS, ast.ClassDef, ast.Assign)):
                if any(isinstance(node, ast.Call) for node in nodes_of_body(stmt)):
                    return False  # it may make the group
            case _:
                pass
    return imported and bool(MAKES.search(read_module(user) or ""))
