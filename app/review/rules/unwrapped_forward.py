"""DW207: training steps whose forward pass goes past the wrapper of the model."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from ...training_script.edits import Edit
from ...training_script.model.definitions import gives_loss_to_trainer
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key
from ...training_script.model.noted_calls import PAST_WRAPPER, WRAPPED_FORWARD
from ...training_script.model.reach import Reach, Run, argument, together
from ...training_script.model.values import Value
from ...training_script.syntax import dotted_name
from ...training_script.torch_classes import DDP_CLASSES, is_optimizer
from ..handed_values import places_on_way
from ..patches.average_gradients import average_gradients
from ..rule_context import Patch, Script, Violation
from ..violations import violation_at

REDUCED = {"graph", "reduced"}
# Gradients that the script reduces itself; ``sync_gradients`` of Accelerate only tells when it does so.
BY_HAND = re.compile(
    r"(?:reduce|average|sync(?!_gradients\b))\w*[(_.]?\w*grad|grad\w*[._](?:all_?reduce|sync)|reduce\w*\([^)\n]*\.grad",
    re.I,
)
REDUCTIONS = ("torch.distributed.all_reduce", "torch.distributed.reduce")
FIX = "call-wrapper"
TAKEN = "the inner model is taken here"
MESSAGE = (
    "the loss comes from a forward pass past the wrapper: the gradients of this step are not reduced over the ranks"
)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the forward passes of inner models whose loss is all that the gradients are computed from."""
    forwards = [(reach, fact) for reach, fact in run.of(PAST_WRAPPER) if not _is_of_self(fact)]
    if not forwards or script.mentions(BY_HAND) or any(_is_by_hand(fact) for _, fact in run.of(*REDUCTIONS)):
        return
    found: dict[int, tuple[Reach, Noted, Noted | None]] = {}
    last: list[tuple[Reach, Noted]] = []
    for reach, fact in run.of(PAST_WRAPPER, ".backward"):
        if fact.name == PAST_WRAPPER:
            last += [] if _is_of_self(fact) else [(reach, fact)]
            continue
        losses = [fact.owner, argument(fact, 0, "loss")]
        if any(loss and _is_unreduced(loss) for loss in losses) and not (
            _is_for_comparison(run, reach) or _is_emptied(run, reach)
        ):
            latest = [each for each in last if together(each[0], reach)][-1:]
            found |= {id(each): (each, inner, fact) for each, inner in latest}
    if run.function and gives_loss_to_trainer(run.function) and any(_is_unreduced(each) for each in run.returned):
        found |= {id(each): (each, fact, None) for each, fact in forwards if "unreduced" in fact.result.facts}
    found |= {id(reach): (reach, fact, None) for reach, fact in _of_stepped(script, run) if id(reach) not in found}
    for reach, fact, backward in found.values():
        patch = partial(_patch, script, run, fact.node, backward) if script.is_here(reach) else None
        related = places_on_way(script, reach, _model(fact.node.func), TAKEN)
        yield from violation_at(script, reach, MESSAGE, 0.7, patch=patch, related=related)


def _is_by_hand(reduction: Noted) -> bool:
    """Return whether a program reduces gradients itself."""
    given = argument(reduction, 0, "tensor")
    return given is not None and "gradient" in given.facts


def _is_for_comparison(run: Run, backward: Reach) -> bool:
    """Return whether no optimizer steps behind a backward pass, and another one goes through the wrapper."""
    wrapped = any(fact.owner and fact.owner.facts & REDUCED for _, fact in run.of(".backward"))
    after = run.reached[run.reached.index(backward) + 1 :]
    around = {each.site for each in backward.loops}
    steps = [reach for reach, _ in run.of(".step")]
    may_step = any(step in after or around & {each.site for each in step.loops} for step in steps)
    return wrapped and run.function is None and not may_step


def _is_emptied(run: Run, backward: Reach) -> bool:
    """Return whether gradients are set to zero behind a backward pass before any optimizer steps."""
    after = run.reached[run.reached.index(backward) + 1 :]
    names = (each.fact.name for each in after if isinstance(each.fact, Noted))
    return next((name for name in names if name in (".step", ".zero_grad")), "") == ".zero_grad"


def _of_stepped(script: Script, run: Run) -> Iterator[tuple[Reach, Noted]]:
    """Yield the forward passes past a wrapper through another model in DDP, before a step of the first one alone.

    The loss is that of a model with a wrapper; the gradients of the model in front of it are not reduced.
    """
    models = {fact.result.key: fact.owner.key for _, fact in run.of(".parameters") if fact.owner}
    trained = {
        fact.result.key: models[given.key]
        for each in run.reached
        if is_optimizer(each.name) and isinstance(fact := each.fact, Noted)
        if (given := argument(fact, 0, "params")) and given.key in models
    }
    past: list[tuple[Reach, Noted, Key]] = []
    wrapped, pending, passes = set[Key](), list[tuple[Reach, Noted, Key]](), False
    for reach, fact in run.of(PAST_WRAPPER, WRAPPED_FORWARD, ".backward", ".step"):
        called = script.evaluated.value(fact.node.func) if script.is_here(reach) else None
        if fact.name == PAST_WRAPPER and called and "unreduced" in fact.result.facts:
            past += [(reach, fact, called.args[0])] if called.op == "attribute" else []
        elif fact.name == WRAPPED_FORWARD and called:
            wrapped.add(called)
            passes = passes or any("unreduced" in value.facts for value in fact.values)
        elif fact.name == ".backward":
            pending = [each for each in past if each[2] not in wrapped] if passes else []
            past, wrapped, passes = [], set(), False
        elif fact.name == ".step" and fact.owner:
            model = trained.get(fact.owner.key)
            yield from ((at, inner) for at, inner, wrapper in pending if wrapper is model and at.several)


def _is_of_self(call: Noted) -> bool:
    """Return whether a model calls a method of its own: past the wrapper is the call that has led there, if any."""
    match call.node.func:
        case ast.Attribute(value=ast.Name(id="self")):
            return call.owner is not None
        case _:
            return False


def _model(func: ast.expr) -> ast.expr:
    """Return the model whose forward pass, or other method, is called."""
    return func.value if isinstance(func, ast.Attribute) and func.attr != "module" else func


def _patch(script: Script, run: Run, call: ast.Call, backward: Noted | None) -> Patch:
    source, func = script.source, call.func
    if wrapper := _wrapper(script, run, func):
        edits = [source.replace(func, wrapper)]
        return Patch(id=FIX, safety="unsafe", why_unsafe="the forward pass then needs every rank", edits=edits)
    if not isinstance(func, ast.Attribute) or func.attr != "module":
        return average_gradients(script, func, backward.node if backward else None)
    edits = [Edit(source.end(func.value), source.end(func), "")]
    return Patch(id=FIX, safety="unsafe", why_unsafe="the outputs are those of forward, on every rank", edits=edits)


def _wrapper(script: Script, run: Run, called: ast.expr) -> str:
    """Return the attribute of the same object that holds DDP around the model that is called, or ""."""
    names, model = script.names, script.evaluated.value(called)
    for reach, fact in run.of(*DDP_CLASSES):
        given = argument(fact, 0, "module")
        stmt = script.source.statement_of(fact.node) if script.is_here(reach) else None
        if given is None or given.key is not model or not isinstance(stmt, ast.Assign) or stmt.value is not fact.node:
            continue
        target, owner = dotted_name(stmt.targets[0]), names.enclosing_class(names.scope_of[called])
        same = owner is not None and names.enclosing_class(names.scope_of[fact.node]) is owner
        if same and len(stmt.targets) == 1 and target.startswith("self.") and dotted_name(called).startswith("self."):
            return target
    return ""


def _is_unreduced(loss: Value) -> bool:
    return "unreduced" in loss.facts and not loss.facts & REDUCED
