"""DW255: copies of a model that each rank trains on its part of the data, and that nothing makes one."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, parts
from ...training_script.model.reach import ALL, Reach, Run, argument
from ...training_script.model.several_ranks import SET_UP
from ...training_script.model.values import Value
from ...training_script.nodes import nodes_of_kinds
from ...training_script.torch_classes import SAMPLER_CLASSES, is_optimizer
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .own_statistics import is_share

INIT = "torch.distributed.init_process_group"
AVERAGES = re.compile(
    r"\.grad\b|_hook\(|flatten|to_vector|[Aa]verage|sync_|allreduce|parallelize|distribute_|ProcessGroup"
)
OTHERS = re.compile(
    r"apex|fairscale|colossalai|megatron|bagua|byteps|DTensor|fully_shard|FullySharded|rpc\b|state_dict\(\)\.values"
)
OF_ONE_RANK = re.compile(r"expert|moe|shard|local", re.IGNORECASE)  # parameters that each rank has of its own
PREFIX = "torch.distributed."
SUMS = tuple(
    PREFIX + name for name in ("all_reduce", "reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter")
)
MEETINGS = (
    *SUMS,
    *(PREFIX + name for name in ("all_gather_object", "gather", "gather_object", "reduce_scatter_tensor")),
)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the steps of optimizers by gradients of one rank, in programs that give each rank a part of the data."""
    yield from _some_parameters(script, run)
    yield from _reduced_losses(script, run)
    if not run.distributed or any(run.of(*(SET_UP - {INIT}))) or script.mentions(OTHERS):
        return
    samplers = [reach for reach, _ in run.of(*SAMPLER_CLASSES) if reach.several and reach.ranks == ALL]
    optimizers = {
        reach.fact.result.key: reach.fact
        for reach in run.reached
        if isinstance(reach.fact, Noted) and is_optimizer(reach.name) and reach.ranks == ALL
    }
    if not optimizers:
        return
    held = {fact.result.key for _, fact in run.of(".parameters", ".named_parameters", ".state_dict")}
    if script.mentions(AVERAGES) or any(_is_of(value, held) for _, fact in run.of(*MEETINGS) for value in fact.values):
        return
    sent = [reach for reach, fact in run.of(PREFIX + "broadcast") if _is_of(argument(fact, 0, "tensor"), held)]
    if not samplers and not (sent and _takes_share(script)):
        return
    for reach, fact in run.of(".step"):
        if not reach.loops or not reach.several or not script.is_here(reach) or fact.owner is None:
            continue
        if fact.owner.key not in optimizers or not _learns(run, reach):
            continue
        again = [each for each in sent if each.loops[:1] == reach.loops[:1]]
        message = "each rank steps with the gradients of its part of the data, and nothing averages them: "
        message += "all of them go on with the step of one rank" if again else "the ranks train a model each"
        yield from violation_at(
            script,
            reach,
            message,
            0.75,
            related=[
                RelatedPlace(path=each.fact.site.path, line=each.fact.site.line, message="sent here") for each in again
            ],
        )
        return


def _takes_share(script: Script) -> bool:
    """Return whether the rank decides which part of a tensor, or of a list, is taken."""
    keys = (script.evaluated.value(node) for node in nodes_of_kinds(script.source.tree, ast.Subscript))
    return any(key is not None and key.op == "item" and is_share(key) for key in keys)


def _reduced_losses(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the losses that are reduced in front of the backward pass, where nothing averages the gradients."""
    if not run.distributed or any(run.of(*(SET_UP - {INIT}))) or script.mentions(OTHERS) or script.mentions(AVERAGES):
        return
    held = {fact.result.key for _, fact in run.of(".parameters", ".named_parameters", ".state_dict")}
    if any(_is_of(value, held) for _, fact in run.of(*MEETINGS, PREFIX + "broadcast") for value in fact.values):
        return
    steps = [reach for reach, _ in run.of(".step") if reach.several and reach.loops]
    for reach, fact in run.of(".backward"):
        sums = [part for part in parts(fact.owner.key) if part.op == "filled"] if fact.owner else []
        place = next(
            (at for at, each in run.of(PREFIX + "all_reduce") for part in sums if each.site[:2] == part.args[:2]), None
        )
        if place is None or not any(step.loops == reach.loops for step in steps) or not reach.several:
            continue
        yield from violation_at(
            script,
            place,
            f"the ranks reduce the loss, and nothing averages the gradients of its backward pass (line "
            f"{reach.fact.site.line}): all_reduce hands on none, and the ranks train a model each",
            0.85,
            related=[RelatedPlace(path=reach.fact.site.path, line=reach.fact.site.line, message="the backward pass")],
        )
        return


def _some_parameters(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the names by which parameters are left out where gradients are averaged by hand."""
    if any(run.of(*(SET_UP - {INIT}))) or not run.distributed:
        return
    named = {fact.result.key for _, fact in run.of(".named_parameters")}
    for reach, fact in run.of(PREFIX + "all_reduce") if named else ():
        given, group = argument(fact, 0, "tensor"), argument(fact, 2, "group")
        if (
            given is None
            or "gradient" not in given.facts
            or not reach.several
            or (group and group.key is not run.keys.none)
        ):
            continue
        for condition in reach.conditions:
            found = [*parts(condition.test)]
            texts = [each.value for each in found if each.is_constant and isinstance(each.value, str)]
            if texts and named.intersection(found) and not any(map(OF_ONE_RANK.search, texts)):
                yield from violation_at(
                    script,
                    reach._replace(fact=fact._replace(site=condition.site)),
                    "parameters are left out here by their names, and each rank steps them by its own gradients (those "
                    f"of the others are averaged in line {fact.site.line}): the models of the ranks drift apart",
                    0.75,
                )


def _is_of(value: Value | None, held: set[Key]) -> bool:
    return value is not None and any(part in held for part in parts(value.key))


def _learns(run: Run, step: Reach) -> bool:
    """Return whether a backward pass is in the loop of a step."""
    return any(reach.loops[:1] == step.loops[:1] for reach, _ in run.of(".backward"))
