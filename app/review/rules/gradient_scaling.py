"""DW221: gradients that are clipped while the scaler still multiplies them."""

from collections.abc import Iterator, Sequence

from ...training_script.model.function_steps import Noted
from ...training_script.model.noted_calls import GRAD_SCALERS
from ...training_script.model.reach import Reach, Run, argument, together
from ...training_script.torch_classes import CLIPS
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import violation_at

FIX = "unscale-before-clip"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the clipping of gradients between the backward pass and the step of a scaler, without unscale_."""
    yield from _of_accelerate(script, run)
    scalers = {fact.result.key for _, fact in run.of(*GRAD_SCALERS) if _is_enabled(fact)}
    if any(True for _ in run.of(".unscale_")):
        return
    scaled = [(at, fact) for at, fact in run.of(".scale") if fact.owner and fact.owner.key in scalers]
    steps = [(at, fact) for at, fact in run.of(".step") if fact.owner and fact.owner.key in scalers and fact.values]
    order = {id(each): place for place, each in enumerate(run.reached)}
    for reach, fact in run.of(*CLIPS):
        if not any(_in_one_round(reach, before) for before, _ in scaled):
            continue
        after = [step for at, step in steps if _in_one_round(reach, at) and order[id(reach)] < order[id(at)]]
        if after:
            yield from violation_at(
                script,
                reach,
                "the gradients are still multiplied by the scale of the GradScaler when they are clipped",
                0.85,
                patch=(lambda fact=fact, after=after: _unscale(script, fact, after)) if script.is_here(reach) else None,
            )


def _of_accelerate(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the clipping of gradients that Accelerate has scaled for fp16, by a function that knows nothing of it."""
    precisions = [fact.named.get("mixed_precision") for _, fact in run.of("accelerate.Accelerator")]
    scales = any(each and each.key.is_constant and each.key.value == "fp16" for each in precisions)
    if not scales or script.mentions("unscale_gradients"):
        return
    prepared = {fact.result.key for _, fact in run.of(".parameters") if fact.owner and "prepared" in fact.owner.facts}
    for reach, fact in run.of(*CLIPS):
        if fact.values and fact.values[0].key in prepared and reach.several:
            yield from violation_at(
                script,
                reach,
                "the gradients are still multiplied by the scale of Accelerate for fp16: accelerator.clip_grad_norm_ "
                "undoes it first",
                0.85,
            )


def _is_enabled(scaler: Noted) -> bool:
    given = argument(scaler, GRAD_SCALERS[scaler.name], "enabled")
    return given is None or (given.key.is_constant and given.key.value is True)


def _in_one_round(first: Reach, second: Reach) -> bool:
    return bool(first.loops) and first.loops == second.loops and together(first, second)


def _unscale(script: Script, clip: Noted, steps: Sequence[Noted]) -> Patch:
    source, step = script.source, steps[0]
    stmt = source.parents[clip.node]
    while not hasattr(stmt, "body") and not hasattr(source.parents[stmt], "body"):
        stmt = source.parents[stmt]
    same = script.names.enclosing_function(clip.node) is script.names.enclosing_function(step.node)
    same &= len({each.values[0].key for each in steps}) == 1  # else the optimizer of what is clipped is not known
    if not same or not hasattr(stmt, "lineno") or not source.alone(stmt):  # type: ignore[arg-type]
        return no_patch(FIX, "call scaler.unscale_(optimizer) before the gradients are clipped")
    scaler, optimizer = source.code(step.node.func.value), source.code(step.node.args[0])  # type: ignore[attr-defined]
    line = clip.node.lineno if stmt.lineno == clip.node.lineno else stmt.lineno  # type: ignore[attr-defined]
    return Patch(
        id=FIX,
        safety="safe",
        edits=[source.insert_line(line, f"{scaler}.unscale_({optimizer})", source.indent(line))],
    )
