"""DW243: random inputs that are the same on all ranks."""

import ast
from collections.abc import Iterator
from functools import partial

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, Key, parts
from ...training_script.model.library_calls import GENERATORS, RANDOM_TENSORS
from ...training_script.model.noted_calls import WRAPPED_FORWARD
from ...training_script.model.reach import Reach, Run, same_on_ranks
from ...training_script.nodes import node_at, nodes_below
from ...training_script.torch_classes import DDP_CLASSES
from ..patches.call_arguments import seed_of_rank
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import in_function_of, violation_at
from .replicas import SEED, where_given


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the seeds, set after DDP has wrapped a model, by which all ranks draw the same inputs."""
    yield from _of_generators(script, run)
    if any(value.key.spread & BY_RANK for _, fact in run.of(SEED) for value in fact.values):
        return
    wrapped, seed = False, None
    for reach, fact in run.of(*DDP_CLASSES, SEED, WRAPPED_FORWARD):
        if fact.name in DDP_CLASSES:
            wrapped, seed = reach.several, None
        elif fact.name == SEED:
            seed = (reach, fact) if _is_of_all(reach, fact) else None
        elif wrapped and seed and reach.loops and reach.several and fact.values and _is_drawn(fact.values[0].key):
            given = where_given(script, *seed)
            place = script.place(given)
            setting = node_at(script.source.tree, place.line, place.column, ast.Call) if place else None
            yield from violation_at(
                script,
                given,
                "all ranks set this seed, and draw the inputs of the model with it "
                f"(line {fact.site.line}): each computes the same as the others",
                0.75,
                patch=partial(seed_of_rank, script, setting) if setting else None,
            )
            seed = None


def _of_generators(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the generator, made after DDP has wrapped a model, from which all ranks draw the same inputs."""
    wraps = [reach for reach, _ in run.of(*DDP_CLASSES)]
    made = [(reach, fact) for reach, fact in run.of(*GENERATORS) if "alike" in fact.result.facts and reach.several]
    if not wraps or len(made) != 1 or run.reached.index(made[0][0]) < run.reached.index(wraps[0]):
        return
    for reach, fact in run.of(WRAPPED_FORWARD):
        given = fact.values[0] if fact.values else None
        if given and "alike" in given.facts and same_on_ranks(given.key) and reach.loops and reach.several:
            yield from violation_at(
                script,
                in_function_of(made[0][0], wraps),
                "all ranks make this generator with one seed, and what it gives goes into the model "
                f"(line {fact.site.line}): each computes the same as the others",
                0.75,
                related=_seeds(script, made[0][1]),
            )
            return


def _seeds(script: Script, made: Noted) -> list[RelatedPlace]:
    """Return the places in this script where the seed of a generator is computed, that of the generator last."""
    given = (
        each for value in (*made.values, *made.named.values()) for each in parts(value.key) if not each.is_constant
    )
    computed = {each for each in given if each.op == "binary"}
    nodes = (node for node in nodes_below(script.source.tree) if isinstance(node, ast.BinOp) and computed)
    lines = dict.fromkeys(node.lineno for node in nodes if script.evaluated.value(node) in computed)
    places = [RelatedPlace(path=script.source.path, line=line, message="the seed") for line in lines]
    return [*places, RelatedPlace(path=made.site.path, line=made.site.line, message="the generator is made here")]


def _is_of_all(reach: Reach, seed: Noted) -> bool:
    return reach.several and not reach.loops and all(same_on_ranks(value.key) for value in seed.values)


def _is_drawn(key: Key) -> bool:
    """Return whether a tensor is one of random numbers from the generator that all of torch shares, or made of such."""
    name = key.args[0] if key.op == "call" else ""
    given = [arg for arg in key.args if isinstance(arg, Key)]
    if name in RANDOM_TENSORS:
        return not any(arg.op in ("at", "changed", "local") or arg.args[:1] == ("torch.Generator",) for arg in given)
    made = str(name).startswith("torch.") or key.op == "binary"
    others = [arg for arg in given if not arg.is_constant]
    return made and bool(others) and all(map(_is_drawn, others))
