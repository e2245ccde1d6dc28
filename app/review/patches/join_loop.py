"""The patch for ranks with batches of different number: the model's own context for uneven inputs."""

import ast

from ...training_script.edits import Edit
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key
from ...training_script.model.library_calls import BACKWARD, FORWARD
from ...training_script.model.noted_calls import WRAPPED_FORWARD
from ...training_script.model.reach import Reach
from ...training_script.syntax import dotted_name
from ...training_script.torch_classes import DDP_CLASSES
from ..rule_context import Patch, Script, no_patch
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
    header = source.insert_line(loop.lineno, f"with {model}.join():", source.indent(loop.lineno))
    first, *rest = source.indented(loop)
    return Patch(
        id=FIX,
        safety="unsafe",
        why_unsafe="a rank whose data have ended counts with gradients of zero until those of the others have",
        edits=[Edit(first.start, first.end, header.text + first.text), *rest],
    )


def _only_model(script: Script, loop: ast.For) -> str:
    """Return the code of the model that each forward pass in a loop calls, if that surely is one in DDP."""
    found = [
        (fact, run_wraps)
        for run in script.runs
        for run_wraps in [{fact.result.key for _, fact in run.of(*DDP_CLASSES)}]
        for reach, fact in run.of(WRAPPED_FORWARD)
        if _is_in(script, loop, reach)
    ]
    codes = {_model(script, loop, fact, wraps) for fact, wraps in found}
    return codes.pop() if len(codes) == 1 else ""


def _is_in(script: Script, loop: ast.For, reach: Reach) -> bool:
    lines = range(loop.lineno, (loop.end_lineno or loop.lineno) + 1)
    return any(site.path == script.source.path and site.line in lines for site in (*reach.calls, reach.fact.site))


def _model(script: Script, loop: ast.For, fact: Noted, wraps: set[Key]) -> str:
    """Return the code of the model that a forward pass calls, if it is named alike at the loop."""
    function = fact.node.func
    here = fact.node in script.source.parents and dotted_name(function)
    around = script.names.enclosing_function(loop)
    if (
        not here
        or script.names.enclosing_function(fact.node) is not around
        or script.evaluated.value(function) not in wraps
    ):
        return ""
    bound = {node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    return "" if here.partition(".")[0] in bound else here
