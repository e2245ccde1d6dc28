"""DW224, DW229 and DW230: two backward passes of one forward, steps of some ranks, gradients averaged too late."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from ...training_script.model.collective_effects import SAME, is_agreed
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import LOCAL, Key, parts
from ...training_script.model.library_calls import BACKWARD
from ...training_script.model.noted_calls import WRAPPED_FORWARD
from ...training_script.model.reach import ALL, Reach, Run, alternatives, argument
from ...training_script.model.sequences import Site
from ...training_script.nodes import node_at, nodes_below
from ...training_script.syntax import last_name
from ...training_script.torch_classes import CLIPS, DDP_CLASSES, OPTIMIZERS, SAMPLER_CLASSES, SCHEDULERS, is_optimizer
from ..patches.move_statement import may_move_below, moved_below, statement_with
from ..rule_context import Patch, Script, Violation, no_patch
from ..types import RelatedPlace
from ..violations import violation_at
from .averaged_by_hand import by_hand
from .read_samplers import is_read_by_others

GRADIENT = re.compile(r"\.grad\b")
CLIP_LATER = "clip-the-average"
RATE = re.compile(r"""\[["']lr["']\]""")
REDUCE = "torch.distributed.all_reduce"


def check_some(script: Script, run: Run) -> Iterator[Violation]:
    """DW229: yield the steps of an optimizer, a scheduler or a sampler of all ranks that only some ranks make."""
    yield from check_own(script, run)
    made: dict[Key, tuple[Reach, str]] = {}
    own = _own_steps(run) if run.distributed else {}
    for reach, fact in _noted(run) if run.distributed else ():
        if fact.name.startswith(OPTIMIZERS) or fact.name in SAMPLER_CLASSES:
            made[fact.result.key] = reach, fact.name  # each call of a function makes another one
        if fact.name not in (".step", ".set_epoch") or not fact.owner or reach.ranks == ALL or reach.unsure:
            continue
        owner = next((key for key in alternatives(fact.owner.key) if key in made), None)
        if owner is None or not (made[owner][0].several and made[owner][0].ranks == ALL):
            continue
        if sum(own[fact.owner.key]) == ALL or _learns_in_group(run, reach):
            continue  # each rank makes a step of its own branch
        name = made[owner][1]
        if name.startswith(SCHEDULERS) and _shares_rate(script, run):
            continue
        what = "scheduler" if name.startswith(SCHEDULERS) else "sampler" if name in SAMPLER_CLASSES else "optimizer"
        if what == "sampler" and not is_read_by_others(run, owner, reach.ranks):
            continue
        effect = {
            "scheduler": "the learning rates of the ranks differ from then on",
            "sampler": "the parts of the data that the ranks read overlap from then on",
            "optimizer": "the models of the ranks differ from then on",
        }[what]
        yield from violation_at(script, reach, f"only some ranks step this {what}: {effect}", 0.9)


def _own_steps(run: Run) -> dict[Key, set[int]]:
    """Return by what is stepped the ranks, as bits, that make each of the steps that not all ranks make."""
    own: dict[Key, set[int]] = {}
    for reach, fact in _noted(run):
        if fact.name in (".step", ".set_epoch") and fact.owner and reach.ranks != ALL:
            own.setdefault(fact.owner.key, set()).add(reach.ranks)
    return own


def _shares_rate(script: Script, run: Run) -> bool:
    """Return whether all ranks take a learning rate, or the state with it, from what one rank has sent."""
    if any(fact.values and is_agreed(fact.values[0].key) for _, fact in run.of(".load_state_dict")):
        return True
    for node in nodes_below(script.source.tree) if script.mentions(RATE) else ():
        match node:
            case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value="lr"))], value=value):
                key = script.evaluated.value(value)
                if key is not None and is_agreed(key):
                    return True
            case ast.Call(
                func=ast.Attribute(attr="fill_" | "copy_", value=ast.Subscript(slice=ast.Constant(value="lr"))),
                args=[value],
            ):
                key = script.evaluated.value(value)
                if key is not None and is_agreed(key):
                    return True
            case _:
                pass
    return False


def check_own(script: Script, run: Run) -> Iterator[Violation]:
    """DW229: yield the steps that each rank makes or leaves out by its own data, with gradients of all ranks."""
    optimizers = {fact.result.key for reach, fact in _noted(run) if is_optimizer(fact.name) and reach.ranks == ALL}
    averages = by_hand(run)
    if not optimizers or not (averages or any(reach.several for reach, _ in run.of(*DDP_CLASSES))):
        return
    backward: Reach | None = None
    for reach in run.reached:
        if reach.name == BACKWARD or (reach.name == ".backward" and averages):
            backward = reach
        elif reach.name == ".step" and backward and isinstance(reach.fact, Noted) and _is_of(reach.fact, optimizers):
            own = [each for each in reach.conditions if each not in backward.conditions and _is_of_own_data(each.test)]
            if own and reach.several and reach.ranks == ALL and reach.loops == backward.loops:
                yield from violation_at(
                    script,
                    reach,
                    f"each rank makes this step or leaves it out by its own data (line {own[0].site.line}), after all "
                    "of them have averaged the gradients: the models of the ranks differ from then on",
                    0.75,
                    severity="warning",
                    branch=own[0].site.line if own[0].site.path == script.source.path else None,
                )


def _is_of_own_data(test: Key) -> bool:
    """Return whether what a rank computes of its batches decides a condition, rather than their number."""
    if not test.differs_by & LOCAL or any(part.op in SAME for part in parts(test)):
        return False
    pending = [test]
    while pending:
        each = pending.pop()
        if each.op in ("length", "number", "counted", "altered", "changing") or not each.differs_by & LOCAL:
            continue
        if each.op in ("local", "at"):
            return True
        pending += [arg for arg in each.args if isinstance(arg, Key)]
    return False


def check_late(script: Script, run: Run) -> Iterator[Violation]:
    """DW230: yield the reductions of gradients that come, or end, after the step that uses them."""
    yield from _pending(script, run)
    optimizers = {fact.result.key for _, fact in _noted(run) if is_optimizer(fact.name)}
    stepped: Reach | None = None
    reduced = False
    reported: set[Site] = set()
    for reach in run.reached:
        if BACKWARD in reach.name or reach.name == ".backward":
            stepped, reduced = None, False
        elif reach.name == ".step" and isinstance(reach.fact, Noted) and _is_of(reach.fact, optimizers):
            stepped = reach
        elif reach.name == REDUCE and isinstance(reach.fact, Noted) and _is_of_gradient(reach.fact):
            late = stepped and not reduced and stepped.loops[:1] == reach.loops[:1] and reach.loops
            reduced = True
            place = _below(script, reach, stepped) if late and stepped else reach
            if late and reach.several and place.fact.site not in reported:
                reported.add(place.fact.site)
                yield from violation_at(
                    script,
                    place,
                    "the gradients are averaged after the optimizer has used them: each rank steps with its own, and "
                    "the models drift apart",
                    0.85,
                )


def _pending(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the steps of an optimizer while a reduction of gradients is under way for which something waits later."""
    optimizers = {fact.result.key for _, fact in _noted(run) if is_optimizer(fact.name)}
    begun: Reach | None = None
    reported: set[Site] = set()
    for at, reach in enumerate(run.reached):
        if reach.name == ".wait":
            begun = None
        elif not isinstance(reach.fact, Noted):
            continue
        elif reach.name == REDUCE and _is_of_gradient(reach.fact) and reach.loops:
            flag = reach.fact.named.get("async_op")
            begun = reach if flag and flag.key is run.keys.true and reach.several else begun
        elif begun and reach.name == ".step" and _is_of(reach.fact, optimizers) and reach.fact.site not in reported:
            waits = any(each.name == ".wait" and each.loops[:1] == reach.loops[:1] for each in run.reached[at:])
            if waits and begun.loops[:1] == reach.loops[:1]:
                reported.add(reach.fact.site)
                yield from violation_at(
                    script,
                    reach,
                    f"the reduction of the gradients (line {begun.fact.site.line}) is only waited for behind this "
                    "step, which uses what is there before its end",
                    0.85,
                )


def check_clipped(script: Script, run: Run) -> Iterator[Violation]:
    """DW240: yield the clips of gradients that the ranks average afterwards."""
    if any(run.of(*DDP_CLASSES)):
        return
    clipped: Reach | None = None
    for reach in run.reached:
        if BACKWARD in reach.name or reach.name == ".backward":
            clipped = None
        elif reach.name in CLIPS and reach.several:
            clipped = reach
        elif clipped and reach.name == REDUCE and isinstance(reach.fact, Noted) and _is_of_gradient(reach.fact):
            if reach.loops[: len(clipped.loops)] == clipped.loops and reach.several:
                related = [RelatedPlace(path=reach.fact.site.path, line=reach.fact.site.line, message="averaged here")]
                yield from violation_at(
                    script,
                    clipped,
                    "each rank clips its own gradients before they are averaged: the result is not the clipped average "
                    "that one process would step with",
                    0.75,
                    related=related,
                    patch=partial(_clip_later, script, clipped, reach) if script.is_here(clipped) else None,
                )
            clipped = None


def _clip_later(script: Script, clipped: Reach, averaged: Reach) -> Patch:
    """Return the patch that clips the averaged gradients, in front of the step."""
    source, call = (
        script.source,
        node_at(script.source.tree, clipped.fact.site.line, clipped.fact.site.column, ast.Call),
    )
    stmt = source.statement_of(call) if call else None
    block = source.block_of(stmt) if stmt else []
    average = statement_with(block, source.path, (averaged.fact.site, *averaged.calls))
    behind = block[block.index(average) :] if average else []
    steps = [n for n, each in enumerate(behind) if any(last_name(node) == "step" for node in _calls(each))]
    last = behind[steps[0] - 1] if steps and steps[0] else None
    if (
        stmt is None
        or last is None
        or not may_move_below(source, stmt, last)
        or not isinstance(stmt, ast.Assign | ast.Expr)
    ):
        return no_patch(CLIP_LATER, "clip behind the average, in front of the step")
    reason = "the norm is that of the average, which is smaller than those of the ranks"
    return Patch(id=CLIP_LATER, safety="unsafe", why_unsafe=reason, edits=moved_below(source, stmt, last))


def _calls(stmt: ast.stmt) -> list[ast.Call]:
    return [node for node in ast.walk(stmt) if isinstance(node, ast.Call)]


def check_twice(script: Script, run: Run) -> Iterator[Violation]:
    """DW224: yield the second backward pass of one forward pass of DDP."""
    if len(list(run.of(*DDP_CLASSES))) != 1:
        return
    kept: Reach | None = None
    reducing = {reach.fact.site for reach in run.reached if reach.name == BACKWARD}  # others are within no_sync
    for reach in run.reached:
        if reach.name == WRAPPED_FORWARD:
            kept = None
        elif (
            reach.name == ".backward"
            and reach.fact.site in reducing
            and isinstance(reach.fact, Noted)
            and _is_of_model(reach.fact)
        ):
            if kept and kept.fact.site != reach.fact.site and reach.several and kept.conditions == reach.conditions:
                yield from violation_at(
                    script,
                    reach,
                    f"a second backward pass of one forward pass of DDP (the first is in line {kept.fact.site.line}): "
                    "DDP reduces each gradient once, and raises an error or reduces only the first part",
                    0.8,
                )
            held = reach.fact.named.get("retain_graph")
            kept = reach if held and held.key is run.keys.true else None


def _learns_in_group(run: Run, step: Reach) -> bool:
    """Return whether the ranks that make a step average their gradients in a group of their own."""
    return any(
        reach.ranks == step.ranks
        and _is_of_gradient(fact)
        and (group := argument(fact, 2, "group"))
        and group.key is not run.keys.none
        for reach, fact in run.of(REDUCE)
    )


def _noted(run: Run) -> Iterator[tuple[Reach, Noted]]:
    for reach in run.reached:
        if isinstance(reach.fact, Noted):
            yield reach, reach.fact


def _is_of(step: Noted, optimizers: set[Key]) -> bool:
    return step.owner is not None and any(key in optimizers for key in alternatives(step.owner.key))


def _is_of_gradient(reduce: Noted) -> bool:
    given = argument(reduce, 0, "tensor")
    return given is not None and "gradient" in given.facts


def _is_of_model(backward: Noted) -> bool:
    return backward.owner is not None and "graph" in backward.owner.facts


def _below(script: Script, reach: Reach, step: Reach) -> Reach:
    """Return a fact as the call that leads to it from the function of a step."""
    depth = len(step.calls)
    same = reach.calls[:depth] == step.calls
    if not same or len(reach.calls) == depth or reach.calls[depth].path != script.source.path:
        return reach
    return reach._replace(fact=reach.fact._replace(site=reach.calls[depth]), calls=reach.calls[:depth])
