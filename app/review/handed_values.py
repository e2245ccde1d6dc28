"""The way of a value to where it is used: the calls that hand it on, and where it is made."""

import ast

from ..training_script.model.reach import Reach
from ..training_script.nodes import node_at
from ..training_script.scopes import Binding
from ..training_script.syntax import match_arguments
from .rule_context import Script
from .types import RelatedPlace

HANDED_ON, MADE = "handed on here", "made here"
MOST_STEPS = 8


def places_on_way(script: Script, reach: Reach, used: ast.expr | None, made: str = MADE) -> list[RelatedPlace]:
    """Return the calls that have given an expression at a fact its value, innermost first, and its origin.

    Nothing without an expression, or if the fact is in another file.
    """
    if used is None or not script.is_here(reach):
        return []
    found: list[RelatedPlace] = []
    calls, value = list(reach.calls), used
    for _ in range(MOST_STEPS):
        bindings = script.names.bindings(value)
        if len(bindings) != 1 or (bindings[0].kind == "assign" and bindings[0].place is not None):
            break
        (binding,) = bindings
        if binding.kind == "assign" and binding.value is not None:
            value = binding.value
        elif binding.kind == "param" and calls:
            site = calls.pop()
            found.append(RelatedPlace(path=site.path, line=site.line, message=HANDED_ON))
            call = node_at(script.source.tree, site.line, site.column, ast.Call)
            given = _given(script, binding, call) if call and site.path == script.source.path else None
            if given is None:
                return found
            value = given
        else:
            return found
    known = {used.lineno, *(each.line for each in found)}
    return (
        found
        if value.lineno in known
        else [*found, RelatedPlace(path=script.source.path, line=value.lineno, message=made)]
    )


def _given(script: Script, binding: Binding, call: ast.Call) -> ast.expr | None:
    """Return the argument of a call that a parameter gets."""
    parameter, function = binding.at, script.names.enclosing_function(binding.at)
    if not isinstance(parameter, ast.arg) or function is None:
        return None
    return match_arguments(script.names.passed_parameters(function), call.args, call.keywords).get(parameter.arg)
