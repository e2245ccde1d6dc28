"""DW488: collectives in functions whose results are cached by arguments that differ between ranks."""

import ast
from collections.abc import Iterator

from ...training_script.collectives import collective_name
from ...training_script.model.keys import DIFFERS
from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below, nodes_of_kinds, walk
from ...training_script.syntax import FUNCTIONS, Function, last_name
from ..epoch_loops import loop_around
from ..rule_context import Script, Violation
from ..types import RelatedPlace

CACHES = {"functools.lru_cache", "functools.cache", "cachetools.cached"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the calls of such functions in loops, with an argument that each rank has of its own."""
    if not run.distributed or run.function is not None or not script.mentions("cache"):
        return
    functions = nodes_of_kinds(script.source.tree, *FUNCTIONS)
    for function in functions:
        made = _collective(script, function, functions) if _is_cached(script, function) else None
        if made is None:
            continue
        call = next((each for each in nodes_below(script.source.tree) if _differs(script, each, function)), None)
        if isinstance(call, ast.Call):
            yield Violation(
                line=call.lineno,
                column_bytes=call.col_offset + 1,
                end_line=call.end_lineno or call.lineno,
                message=f"`{function.name}` keeps its results by its arguments, which differ between ranks: a rank "
                f"that has one leaves out {collective_name(made, script.names)} (line {made.lineno}), and others wait",
                confidence=0.8,
                related=[
                    RelatedPlace(path=script.source.path, line=function.lineno, message="results are kept"),
                    RelatedPlace(path=script.source.path, line=made.lineno, message="the collective"),
                ],
            )


def _is_cached(script: Script, function: Function) -> bool:
    for each in function.decorator_list:
        called = each.func if isinstance(each, ast.Call) else each
        if script.names.qualified(called) in CACHES:
            return True
    return False


def _collective(script: Script, function: Function, functions: list[Function]) -> ast.Call | None:
    """Return the first collective of a function, or of a function of the file that it calls."""
    calls = [node for node in walk(function) if isinstance(node, ast.Call)]
    own = next((each for each in calls if collective_name(each, script.names)), None)
    if own is not None:
        return own
    named = {last_name(each.func) for each in calls}
    inner = (node for each in functions if each.name in named for node in walk(each) if isinstance(node, ast.Call))
    return next((each for each in inner if collective_name(each, script.names)), None)


def _differs(script: Script, node: ast.AST, function: Function) -> bool:
    """Return whether a node is a call of a function, in a loop, with an argument that differs between ranks."""
    if not isinstance(node, ast.Call) or last_name(node.func) != function.name:
        return False
    given = (script.evaluated.value(each) for each in (*node.args, *(word.value for word in node.keywords)))
    if not any(key is not None and key.differs_by & DIFFERS for key in given):
        return False
    around = script.names.enclosing_function(node)
    name = around.name if isinstance(around, FUNCTIONS) else ""
    calls = nodes_of_kinds(script.source.tree, ast.Call)
    return loop_around(script, node) is not None or any(
        last_name(each.func) == name and loop_around(script, each) is not None for each in calls if name
    )
