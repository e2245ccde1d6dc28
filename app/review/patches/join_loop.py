"""The patch for ranks with batches of different number: the model's own context for uneven inputs."""

import ast

from ...training_script.model.function_steps import Noted
from ...training_script.model.library_calls import BACKWARD, FORWARD
from ...training_script.model.noted_calls import WRAPPED_FORWARD
from ...training_script.model.reach import Reach
from ...training_script.syntax import dotted_name
from ...training_script.torch_classes import DDP_CLASSES
from ..rule_context import Patch, Script, no_patch
from .torch_names import is_made_by
from .work_under_condition import events_in

FIX = "join-uneven-inputs"


def join_loop(script: Script, loop: ast.For, why: str) -> Patch:
    """Return the patch that runs a loop in ``model.join()``, if only one model in DDP communicates there.

    ``why``: the reason to give where that is not so.
    """
    source = script.source
    kinds = {event.kind for event in events_in(script, loop)}
    model = _only_model(script, loop)
    others = {kind for kind in kinds if kind != FORWARD and not kind.startswith(BACKWARD)}
    if not model or others or not source.alone(loop) or "SyncBatchNorm" in source.text:
        return no_patch(FIX, why)
    return Patch(
        id=FIX,
        safety="unsafe",
        why_unsafe="a rank whose data have ended counts with gradients of zero until those of the others have",
        edits=source.put_below(loop, f"with {model}.join():"),
    )


def _only_model(script: Script, loop: ast.For) -> str:
    """Return the code of the model that each forward pass in a loop calls, if that surely is one in DDP."""
    forwards = script.noted(WRAPPED_FORWARD)
    codes = {_model(script, loop, fact) for reach, fact in forwards if _is_in(script, loop, reach)}
    return codes.pop() if len(codes) == 1 else ""


def _is_in(script: Script, loop: ast.For, reach: Reach) -> bool:
    lines = range(loop.lineno, (loop.end_lineno or loop.lineno) + 1)
    return any(site.path == script.source.path and site.line in lines for site in (*reach.calls, reach.fact.site))


def _model(script: Script, loop: ast.For, fact: Noted) -> str:
    """Return the code of the model that a forward pass calls, if it is named alike at the loop."""
    function = fact.node.func
    here = dotted_name(function) if fact.node in script.source.parents else ""
    is_local = script.names.enclosing_function(fact.node) is script.names.enclosing_function(loop)
    if not here or not is_local or not is_made_by(script, function, DDP_CLASSES):
        return ""
    bound = {node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    return "" if here.partition(".")[0] in bound else here
