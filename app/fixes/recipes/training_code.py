"""Parts of training scripts that several recipes look for."""

import ast
from collections.abc import Iterable

from ...review.rank_bindings import is_under_rank_condition
from ...review.rule_context import Script
from ...training_script.syntax import FUNCTIONS, dotted_name, is_main_block, nodes_of_body
from ..facts import CaseFacts
from ..types import Place
from ..user_code import UserFile

CONDITIONAL = (ast.If, ast.IfExp, ast.BoolOp, ast.While, ast.Try, ast.ExceptHandler, ast.Match)


def wrapped_models(facts: CaseFacts, wrappers: Iterable[str]) -> set[str]:
    """Return the names that hold a model in one of these wrappers in any of the user's files."""
    names: set[str] = set()
    for file, call in facts.calls(wrappers):
        parent = file.source.parents.get(call)
        while isinstance(parent, ast.IfExp):
            parent = file.source.parents.get(parent)
        if isinstance(parent, ast.Assign):
            names |= {dotted_name(target) for target in parent.targets}
    return names - {""}


def distributed_module(file: UserFile) -> str:
    """Return how a file names ``torch.distributed``, or "" if it imports neither that nor ``torch``."""
    by_meaning = {meaning: name for name, meaning in file.imports.items()}
    torch = by_meaning.get("torch")
    return by_meaning.get("torch.distributed") or (f"{torch}.distributed" if torch else "")


def only_statement(file: UserFile, node: ast.AST) -> ast.stmt | None:
    """Return the statement that holds ``node`` if its lines hold nothing else, or None."""
    stmt = file.source.statement_of(node)
    return stmt if file.source.alone(stmt) else None


def place_of(file: UserFile, node: ast.expr | ast.stmt, label: str = "") -> Place:
    """Return the line of a node as a place."""
    return Place(path=file.path, line=node.lineno, text=file.line(node.lineno), label=label)


def same_call(script: Script, call: ast.Call) -> ast.Call | None:
    """Return the call at the same place in another parse of the text, or None."""
    place = call.lineno, call.col_offset, call.end_col_offset
    calls = (node for node in script.names.scope_of if isinstance(node, ast.Call))
    return next((node for node in calls if (node.lineno, node.col_offset, node.end_col_offset) == place), None)


def runs_on_one_rank(script: Script, node: ast.AST, depth: int = 4) -> bool:
    """Return whether a condition on the rank is around ``node``, or around a call of the function that it is in."""
    return is_under_rank_condition(script, node) or any(
        runs_on_one_rank(script, call, depth - 1) for call in _calls_of_function(script, node, depth)
    )


def always_runs(script: Script, node: ast.AST, depth: int = 4) -> bool:
    """Return whether every rank runs ``node`` equally often, as far as the text shows: no condition is around it."""
    parent = script.source.parents.get(node)
    while parent is not None and not isinstance(parent, FUNCTIONS):
        if isinstance(parent, CONDITIONAL) and not is_main_block(parent):
            return False
        parent = script.source.parents.get(parent)
    function = script.names.enclosing_function(node)
    if function is None:
        return True
    leaves = any(isinstance(each, (ast.Return, ast.Break, ast.Continue)) for each in nodes_of_body(function))
    calls = _calls_of_function(script, node, depth)
    return not leaves and bool(calls) and all(always_runs(script, call, depth - 1) for call in calls)


def _calls_of_function(script: Script, node: ast.AST, depth: int) -> list[ast.Call]:
    function = script.names.enclosing_function(node) if depth else None
    return [call for call, _ in script.names.arguments.get(function, [])] if function else []
