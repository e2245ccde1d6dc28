"""DW247: learning rate schedules that are counted in the samples of all ranks and stepped by each rank's batches."""

import ast
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, parts
from ...training_script.model.reach import Run, alternatives, argument
from ...training_script.model.values import FunctionRef, Value
from ...training_script.nodes import nodes_of_kinds, walk
from ...training_script.torch_classes import LOADER_CLASSES, SAMPLER_CLASSES, SCHEDULERS
from ..rule_context import Script, Violation
from ..violations import at_node, violation_at

SCHEDULES = (SCHEDULERS, "transformers.get_", "transformers.optimization.get_")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """DW247: yield the schedules whose length does not shrink with the part of the data that a rank gets."""
    yield from _prepared(script, run)
    loaders, lengths = shared_loaders(run), lengths_of_all(run)
    for reach in run.reached if loaders else ():
        fact = reach.fact
        if not isinstance(fact, Noted) or not fact.name.startswith(SCHEDULES) or not reach.several:
            continue
        counted = next((key for key in _given(fact) if counts_all(key, lengths)), None)
        if counted and _is_stepped_by_batches(run, fact.result.key, loaders):
            yield from violation_at(
                script,
                at_node(script, reach, _made(script, counted, lengths)),
                "the schedule is as long as the samples of all ranks make it, and each rank steps it for its part "
                "alone: the learning rate ends half-way with two ranks",
                0.8,
            )


def _prepared(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the schedules for a rank's number of batches that Accelerate steps as often as there are ranks."""
    made = {
        reach.fact.result.key: reach.fact
        for reach in run.reached
        if isinstance(reach.fact, Noted) and reach.fact.name.startswith(SCHEDULES)
    }
    if script.mentions("split_batches") or script.mentions("step_scheduler_with_optimizer"):
        return
    for reach, fact in run.of(".prepare"):
        if fact.owner is None or "accelerator" not in fact.owner.facts:
            continue
        for schedule in (made[value.key] for value in fact.values if value.key in made):
            given = [*schedule.values, *schedule.named.values()]
            if any(_counts_prepared(value.key) for value in given):
                yield from violation_at(
                    script,
                    reach,
                    f"the schedule (line {schedule.site.line}) is as long as the batches of a rank, and a prepared one "
                    "steps once for each rank: the learning rate ends half-way with two ranks",
                    0.8,
                )


def _counts_prepared(key: Key) -> bool:
    """Return whether a number is computed from that of the batches of a rank, and not from that of the ranks."""
    found = [*parts(key)]
    counts = any(each.op == "length" and each.args and each.args[0].op == "prepared" for each in found)
    return counts and not any(each.op == "world" or each.args[-1:] == ("num_processes",) for each in found)


def shared_loaders(run: Run) -> set[Key]:
    """Return the loaders that give a rank its part of a dataset, in batches that are not parts of larger ones."""
    samplers = {fact.result.key for _, fact in run.of(*SAMPLER_CLASSES)}
    loaders = [
        (fact, argument(fact, 3, "sampler"))
        for _, fact in run.of(*LOADER_CLASSES)
        if not (size := argument(fact, 1, "batch_size")) or all(part.op != "world" for part in parts(size.key))
    ]
    return {fact.result.key for fact, sampler in loaders if sampler and sampler.key in samplers}


def lengths_of_all(run: Run) -> set[Key]:
    """Return the numbers of samples of the datasets that samplers share out."""
    data = [given for _, fact in run.of(*SAMPLER_CLASSES) if (given := argument(fact, 0, "dataset"))]
    sizes = {size for each in data if (size := run.keys.sizes.get(each.key)) and not size.is_constant}
    return sizes | {run.keys.make("length", each.key) for each in data}


def _given(schedule: Noted) -> Iterator[Key]:
    """Yield the values that a schedule is made with, those that its function reads from around it included."""
    for value in (*schedule.values, *schedule.named.values()):
        yield value.key
        yield from (each.key for each in _read_by(value))


def _read_by(value: Value) -> list[Value]:
    """Return what a function that is passed reads from the function around it."""
    if not isinstance(value.obj, FunctionRef):
        return []
    names = {node.id for node in walk(value.obj.node) if isinstance(node, ast.Name)}
    return [held for name, held in value.obj.env.items() if name in names]


def counts_all(key: Key, lengths: set[Key]) -> bool:
    """Return whether a number is computed from that of all samples, and not from the number of ranks or of batches."""
    found = [*parts(key)]
    return any(each in lengths for each in found) and not any(each.op in ("world", "loader") for each in found)


def _made(script: Script, counted: Key, lengths: set[Key]) -> ast.AST | None:
    """Return where the script divides the number of samples, or computes with it."""
    steps = [each for each in parts(counted) if each.op == "binary" and counts_all(each, lengths)]
    first = min(steps, key=lambda each: each.depth, default=None)
    nodes = nodes_of_kinds(script.source.tree, ast.BinOp)
    return next((node for node in nodes if script.evaluated.value(node) is first), None) if first else None


def _is_stepped_by_batches(run: Run, schedule: Key, loaders: set[Key]) -> bool:
    return any(
        fact.owner and schedule in alternatives(fact.owner.key) and not loaders.isdisjoint(parts(loop.amount))
        for reach, fact in run.of(".step")
        for loop in reach.loops
    )
