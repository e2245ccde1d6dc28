"""DW221: gradients that are clipped while the scaler still multiplies them."""

from collections.abc import Iterator

from ...training_script.model.items import Noted
from ...training_script.model.reach import Reach, Run, together
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import violation_at

SCALERS = ("torch.cuda.amp.GradScaler", "torch.cuda.amp.grad_scaler.GradScaler", "torch.amp.GradScaler")
CLIPS = (
    *("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad.clip_grad_norm_"),
    *("torch.nn.utils.clip_grad_value_", "torch.nn.utils.clip_grad.clip_grad_value_"),
)
FIX = "unscale-before-clip"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the clipping of gradients between the backward pass and the step of a scaler, without unscale_."""
    scalers = {fact.result.key for _, fact in run.of(*SCALERS) if "enabled" not in fact.named and not fact.values}
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
                patch=(lambda fact=fact, step=after[0]: _unscale(script, fact, step))
                if script.is_here(reach)
                else None,
            )


def _in_one_round(first: Reach, second: Reach) -> bool:
    return bool(first.loops) and first.loops == second.loops and together(first, second)


def _unscale(script: Script, clip: Noted, step: Noted) -> Patch:
    source = script.source
    stmt = source.parents[clip.node]
    while not hasattr(stmt, "body") and not hasattr(source.parents[stmt], "body"):
        stmt = source.parents[stmt]
    same = script.names.enclosing_function(clip.node) is script.names.enclosing_function(step.node)
    if not same or not hasattr(stmt, "lineno") or not source.alone(stmt):  # type: ignore[arg-type]
        return no_patch(FIX, "call scaler.unscale_(optimizer) before the gradients are clipped")
    scaler, optimizer = source.code(step.node.func.value), source.code(step.node.args[0])  # type: ignore[attr-defined]
    line = clip.node.lineno if stmt.lineno == clip.node.lineno else stmt.lineno  # type: ignore[attr-defined]
    return Patch(
        id=FIX,
        safety="safe",
        edits=[source.insert_line(line, f"{scaler}.unscale_({optimizer})", source.indent(line))],
    )
