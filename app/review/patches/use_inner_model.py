"""The patch that lets one rank evaluate with the model inside DDP, whose forward pass does not communicate."""

import ast
from collections.abc import Iterator

from ...training_script.model.divergence import Divergence
from ...training_script.model.library_calls import BACKWARD, FORWARD
from ...training_script.reaching_values import Absent, values_at
from ...training_script.torch_classes import DDP_CLASSES
from ..rule_context import Patch, Script, no_patch

INNER = "use-inner-model"


def use_inner_model(script: Script, found: Divergence, guard: ast.stmt) -> Patch:
    """Return the patch for the forward pass of DDP that ``guard`` lets only some ranks reach."""
    if found.first.kind == BACKWARD:
        return no_patch(INNER, "its gradients need every rank: call it on all of them")
    calls = {_site(script, node): node for node in ast.walk(guard) if isinstance(node, ast.Call)}
    sites = [*found.calls, found.first.site]
    first = next((number for number, site in enumerate(sites) if site[:3] in calls), None)
    if found.first.kind != FORWARD or first is None:
        return no_patch(INNER, "call it on every rank: the whole model is on none of them")
    call, functions = calls[sites[first][:3]], len(sites) - first - 1
    entered = script.names.function(call) if functions else None
    if functions > 1 or (functions and entered is None):
        return no_patch(INNER, "the model is called in another function: pass it `.module` of the wrapped model")
    bodies: list[ast.AST] = [guard, entered] if entered else [guard]
    if any(_reads(body, "backward") for body in bodies):
        return no_patch(INNER, "its gradients need every rank: call it on all of them")
    if entered and _reads(entered, "module"):
        return no_patch(INNER, "the function reads `.module` itself: call that, not the wrapped model")
    models = [*call.args, *(each.value for each in call.keywords)] if entered else [call.func]
    edits = [
        script.source.replace(model, code)
        for model in models
        if isinstance(model, ast.Name | ast.Attribute) and (code := inner_model(script, model))
    ]
    if len(edits) != 1:
        return no_patch(INNER, "call `.module` of the wrapped model there, or call it on every rank")
    return Patch(
        id=INNER,
        safety="unsafe",
        why_unsafe="the forward pass is that of one rank then: it does not take part in what DDP does",
        edits=edits,
    )


def _site(script: Script, call: ast.Call) -> tuple[str, int, int]:
    """Return the place of a call as the model of the program names it."""
    return script.source.path, call.lineno, call.col_offset + 1


def inner_model(script: Script, model: ast.Name | ast.Attribute) -> str:
    """Return the code for the model inside a wrapper, "" if ``model`` is not surely wrapped or not wrapped."""
    values = values_at(script.names, model, script.source.statement_of(model))
    wrappers = list(_wrappers(script, values))
    code = script.source.code(model)
    if not wrappers or any(isinstance(value, Absent) for value in values):
        return ""
    if len(wrappers) == len(values):
        return f"{code}.module"
    return f'getattr({code}, "module", {code})'


def _wrappers(script: Script, values: frozenset[ast.AST | Absent]) -> Iterator[ast.Call]:
    for value in values:
        if isinstance(value, ast.Call) and script.names.qualified(value.func) in DDP_CLASSES:
            yield value


def _reads(body: ast.AST, name: str) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == name for node in ast.walk(body))
