"""DW499: backward passes and steps that go past Accelerate, Fabric or DeepSpeed, which have wrapped the model."""

import ast
from collections.abc import Iterator
from functools import partial

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import entry, parts
from ...training_script.model.reach import Reach, Run, argument, together
from ...training_script.model.values import Value
from ...training_script.torch_classes import CLIPS, is_optimizer
from ..patches.prepared_values import backward_by_accelerator
from ..rule_context import Script, Violation
from ..violations import violation_at

ACCELERATOR, BACKWARD = "accelerate.Accelerator", "accelerator.backward"
ENGINE = "deepspeed.initialize"
ACCUMULATES = "accumulate"
OF_ACCELERATE = "gradient-scaler-amp"
PARAMETERS = (".parameters", ".named_parameters")
STEPS = "gradient_accumulation_steps"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the calls that a library has to make, on a loss or an optimizer of a model that it has wrapped."""
    if run.distributed:
        yield from _backward(script, run)
        yield from _unprepared(script, run)
        yield from _of_engine(script, run)
        yield from _rare_steps(script, run)
        yield from _clips(script, run)


def _backward(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the backward passes of losses of prepared models that Accelerate does not make."""
    if not any(run.of(".prepare")) or not (_scales(run) or script.mentions(f".{ACCUMULATES}(")):
        return
    by_library = [each for each in run.reached if each.name == BACKWARD]
    for reach, fact in run.of(".backward"):
        if not all(together(each, reach) for each in by_library):
            continue  # it is for a run without Accelerate
        if _is_of(fact.owner, "reduced") and not _is_of(fact.owner, "accelerator") and reach.several:
            yield from violation_at(
                script,
                reach,
                "prepare has wrapped the model of this loss: accelerator.backward divides it by the rounds that "
                "accumulate and scales it for fp16, and this call does neither",
                0.8,
                cause=OF_ACCELERATE,
                patch=partial(backward_by_accelerator, script, fact.node) if script.is_here(reach) else None,
            )


def _scales(run: Run) -> bool:
    """Return whether Accelerate scales losses, or accumulates gradients."""
    for _, fact in run.of(ACCELERATOR):
        precision, steps = fact.named.get("mixed_precision"), fact.named.get(STEPS)
        if precision and precision.key.is_constant and precision.key.value == "fp16":
            return True
        if steps and not (steps.key.is_constant and steps.key.value == 1):
            return True
    return False


def _unprepared(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the steps of optimizers that prepare has not got, where it would decide in which rounds they step."""
    prepares = [fact for _, fact in run.of(".prepare", ".prepare_optimizer") if _is_of(fact.owner, "accelerator")]
    if not prepares or not _scales(run) or any(map(_is_unpacked, prepares)):
        return
    given = {part for fact in prepares for value in fact.values for part in parts(value.key)}
    trained = {
        fact.result.key
        for _, fact in run.of(*PARAMETERS)
        if fact.owner and (fact.owner.key in given or "prepared" in fact.owner.facts)
    }
    made = [each.fact for each in run.reached if isinstance(each.fact, Noted) and is_optimizer(each.name)]
    own = {
        fact.result.key
        for fact in made
        if fact.result.key not in given and any(part in trained for value in fact.values for part in parts(value.key))
    }
    for reach, fact in run.of(".step"):
        if fact.owner and fact.owner.key in own and reach.several:
            yield from violation_at(
                script,
                reach,
                "prepare has not got this optimizer: it steps in each round, also where Accelerate only accumulates, "
                "and does not undo the scale of fp16",
                0.8,
                cause=OF_ACCELERATE,
            )


def _is_unpacked(prepare: Noted) -> bool:
    """Return whether it is not known what prepare gets."""
    return any(isinstance(each, ast.Starred) for each in prepare.node.args) or bool(prepare.node.keywords)


def _is_of(owner: Value | None, role: str) -> bool:
    return owner is not None and role in owner.facts


def _of_engine(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the backward passes and steps that DeepSpeed does not make, where its engine makes none."""
    if not any(run.of(ENGINE)):
        return
    own = {name for name in (".backward", ".step") for _, fact in run.of(name) if _is_of(fact.owner, "engine")}
    for reach, fact in run.of(".backward"):
        if _is_of(fact.owner, "of_engine") and ".backward" not in own:
            yield from violation_at(
                script,
                reach,
                "the engine of DeepSpeed has computed this loss: engine.backward scales it and reduces the gradients, "
                "and before 0.18.3 this call does neither",
                0.75,
                severity="warning",
            )
    made = {each.fact.result.key for each in run.reached if isinstance(each.fact, Noted) and is_optimizer(each.name)}
    given = {value.key for _, fact in run.of(ENGINE) if (value := argument(fact, 2, "optimizer"))}
    for reach, fact in run.of(".step"):
        owner = fact.owner
        if owner and ("engine_optimizer" in owner.facts or owner.key in made & given) and ".step" not in own:
            yield from violation_at(
                script,
                reach,
                "the engine of DeepSpeed has this optimizer: engine.step also counts the rounds, clips and undoes the "
                "scale of the loss",
                0.75,
            )


def _rare_steps(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the steps of an engine in some rounds only, though its configuration counts the rounds itself."""
    counts = any(
        (steps := entry(config.key, STEPS)) is not None and steps.is_constant and steps.value not in (1, "auto")
        for _, fact in run.of(ENGINE)
        if (config := config_of(fact))
    )
    if not counts:
        return
    backwards = [reach for reach, fact in run.of(".backward") if _is_of(fact.owner, "engine")]
    for reach, fact in run.of(".step"):
        if _is_of(fact.owner, "engine") and any(_steps_rarely(reach, each) for each in backwards):
            yield from violation_at(
                script,
                reach,
                f"the engine counts {STEPS} calls of step itself: called in every n-th round only, it updates the "
                "weights n times too rarely",
                0.8,
            )


def _clips(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the clipping of gradients by a function of torch where the engine of DeepSpeed makes the steps."""
    steps = [(reach, fact.owner.key) for reach, fact in run.of(".step") if _is_of(fact.owner, "engine") and fact.owner]
    engines = {key for _, key in steps}
    clipped = {
        fact.result.key: fact.owner.key for _, fact in run.of(*PARAMETERS) if fact.owner and fact.owner.key in engines
    }
    for reach, fact in run.of(*CLIPS) if clipped else ():
        engine = clipped.get(fact.values[0].key) if fact.values and reach.several else None
        if engine and any(key is engine and together(step, reach) for step, key in steps):
            yield from violation_at(
                script,
                reach,
                "the engine of DeepSpeed holds the gradients, scales and reduces them itself: it clips them by "
                "gradient_clipping in its configuration, and this call does not change what it steps with",
                0.75,
                severity="warning",
            )


def _steps_rarely(step: Reach, backward: Reach) -> bool:
    """Return whether a step is made in some of the rounds with a backward pass, by a remainder."""
    if not step.loops or step.loops != backward.loops:
        return False
    known = {each.test for each in backward.conditions}
    return any(
        part.op == "binary" and part.args[0] == "Mod"
        for each in step.conditions
        if each.test not in known
        for part in parts(each.test)
    )


def config_of(initialize: Noted) -> Value | None:
    """Return the configuration of an engine."""
    return argument(initialize, 10, "config", "config_params")
