"""DW268: results of one function that one place reduces over the ranks and another one reports as they are."""

import ast
import re
from typing import NamedTuple

from ...training_script.model.rank_mentions import may_ask_for_ranks
from ...training_script.nodes import nodes_of_kinds, walk
from ...training_script.syntax import FUNCTIONS, Function, called_function_name, dotted_name
from ..rule_context import Script, Violation
from ..side_effects import is_side_effect
from ..types import RelatedPlace
from ..violations import violation_at_node
from .curved_averages import KEEPING

EXCHANGES = re.compile(r"\w*(?:reduce|gather|broadcast|sync_)\w*", re.IGNORECASE)
MEASURES = re.compile(r"loss|acc|metric|score|error|perplexity|ppl|top\d|iou|bleu|f1", re.IGNORECASE)
MOST_OTHERS = 2  # places that report it as it is; where there are more, that is what the script means


class _Result(NamedTuple):
    """The result of a call, with the places in the function around that read it by any of its names."""

    stmt: ast.Assign
    name: str
    uses: list[ast.expr]


def check(script: Script) -> list[Violation]:
    """Return the reports of what a function computes of one rank's data, which elsewhere is that of all ranks."""
    if not script.mentions("reduce") or not script.has_ranks:
        return []
    found: list[Violation] = []
    for function, results in _by_function(script).items():
        reduced = [each for each in results if _reduction(script, each)]
        others = [each for each in results if each not in reduced]
        if not reduced or len(others) > MOST_OTHERS:
            continue
        line = reduced[0].stmt.lineno
        for each in others:
            report = next((use for use in each.uses if _is_reported(script, use)), None)
            if report is None or _asks_for_ranks(script, each.stmt):
                continue
            found.append(
                violation_at_node(
                    report,
                    f"`{each.name}` is what `{function}` computes of this rank's data, and is reported as that of all; "
                    f"line {line} has the ranks reduce it before",
                    0.75,
                    related=[RelatedPlace(path=script.source.path, line=line, message="reduced over the ranks")],
                )
            )
    return found


def _by_function(script: Script) -> dict[str, list[_Result]]:
    """Return the results of the functions of the script that reduce nothing themselves, by their names."""
    named: dict[str, list[tuple[ast.Assign, str]]] = {}
    for node in nodes_of_kinds(script.source.tree, ast.Assign):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if MEASURES.search(name):
                named.setdefault(called_function_name(call), []).append((node, name))
            case _:
                pass
    several = {called: results for called, results in named.items() if len(results) > 1}
    functions = {
        node.name
        for node in (nodes_of_kinds(script.source.tree, *FUNCTIONS) if several else ())
        if node.name in several and not any(isinstance(each, ast.Call) and _exchanges(each) for each in walk(node))
    }
    return {
        called: [_Result(node, name, _uses(script, node, name)) for node, name in results]
        for called, results in several.items()
        if called in functions
    }


def _exchanges(call: ast.Call) -> bool:
    return bool(EXCHANGES.fullmatch(called_function_name(call)))


def _uses(script: Script, stmt: ast.Assign, name: str) -> list[ast.expr]:
    """Return where a function reads a result, also by the names of what it is converted to."""
    around: Function | ast.Module = script.names.enclosing_function(stmt) or script.source.tree
    names, uses = {name}, list[ast.expr]()
    later = [node for node in walk(around) if isinstance(node, ast.Name) and node.lineno > (stmt.end_lineno or 0)]
    order = {each: (script.source.statement_of(each).lineno, isinstance(each.ctx, ast.Store)) for each in later}
    for node in sorted(later, key=lambda each: (*order[each], each.lineno, each.col_offset)):
        if node.id not in names:
            continue
        if isinstance(node.ctx, ast.Store):
            held = script.source.statement_of(node)
            if node.id == name and isinstance(held, ast.Assign) and isinstance(held.value, ast.Call):
                break
            continue
        uses.append(node)
        held = script.source.statement_of(node)
        if isinstance(held, ast.Assign) and isinstance(held.targets[0], ast.Name) and _keeps(held.value, node):
            names.add(held.targets[0].id)
    return uses


def _keeps(value: ast.expr, name: ast.Name) -> bool:
    """Return whether an expression is a copy, a conversion or a mapping of what a name holds."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in KEEPING:
        value = value.func.value
    return (
        value is name
        or (isinstance(value, ast.Call) and name in value.args)
        or (isinstance(value, ast.Dict) and any(name is inner for each in value.values for inner in ast.walk(each)))
    )


def _reduction(script: Script, result: _Result) -> bool:
    """Return whether a result, or a copy of it, is passed to a reduction over the ranks."""
    for use in result.uses:
        call = script.source.parents.get(use)
        while isinstance(call, ast.Attribute | ast.List | ast.Tuple):
            call = script.source.parents.get(call)
        if isinstance(call, ast.Call) and _exchanges(call):
            return True
    return False


def _is_reported(script: Script, use: ast.expr) -> bool:
    at: ast.AST | None = use
    while at is not None and not isinstance(at, ast.stmt):
        if isinstance(at, ast.FormattedValue) or (isinstance(at, ast.Call) and is_side_effect(at)):
            return True
        at = script.source.parents.get(at)
    return False


def _asks_for_ranks(script: Script, stmt: ast.stmt) -> bool:
    """Return whether a condition around a statement may be about ranks: in one process there is nothing to reduce."""
    at: ast.AST | None = stmt
    while at is not None:
        if isinstance(at, ast.If) and (may_ask_for_ranks(at.test) or "initialized" in dotted_name(at.test)):
            return True
        at = script.source.parents.get(at)
    return False
