"""DW255: gradients that a program averages by hand for some models only, or on one rank."""

import ast
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, parts
from ...training_script.model.reach import ALL, Run, argument
from ...training_script.model.several_ranks import SET_UP
from ...training_script.model.values import Instance, Value
from ...training_script.syntax import dotted_name
from ...training_script.torch_classes import is_optimizer
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import in_function_of, violation_at
from .averaged_by_hand import INIT, by_hand, is_gradient, is_of_optimizer
from .unshared_parts import has_weights, is_layer


def check_parts(script: Script, run: Run) -> Iterator[Violation]:
    """DW255: yield the models that an optimizer steps, and whose gradients are left out where others are averaged."""
    reduces = by_hand(run)
    asked = [(fact.result.key, fact) for _, fact in run.of(".parameters", ".named_parameters") if fact.owner]
    given = [argument(reach.fact, 0, "tensor") for reach in reduces if isinstance(reach.fact, Noted)]
    reduced = {
        fact.owner.key
        for value in given
        if value
        for part in parts(value.key)
        for key, fact in asked
        if fact.owner and part is key
    }
    again = len({(reach.fact.site, reach.calls) for reach in reduces}) > len({reach.fact.site for reach in reduces})
    if not reduced or again or any(not _is_asked(value, asked) for value in given):
        return  # a function that is called for several models is followed once
    for reach in run.reached:
        if not isinstance(reach.fact, Noted) or not is_optimizer(reach.name) or not reach.several:
            continue
        inside = {id(node) for node in ast.walk(reach.fact.node)}
        models = [fact for _, fact in asked if id(fact.node) in inside]
        left_out = next((name for each in models if (name := _left_out(each, reduced))), "")
        if left_out:
            line = reduces[0].fact.site.line
            yield from violation_at(
                script,
                in_function_of(reduces[0], [reach]),
                f"the gradients of `{left_out}` are not among those that are averaged here (line {line}), and the "
                f"optimizer of line {reach.fact.site.line} steps it by those of each rank: its copies drift apart",
                0.8,
                related=[RelatedPlace(path=reach.fact.site.path, line=reach.fact.site.line, message="the optimizer")],
            )
            return


def _left_out(asked: Noted, reduced: set[Key]) -> str:
    """Return the model of an optimizer, or its part, that is not among those whose gradients are reduced."""
    owner = asked.owner
    if owner is None or owner.key in reduced or not isinstance(asked.node.func, ast.Attribute):
        return ""
    name = dotted_name(asked.node.func.value)
    inner = {key.args[1] for key in reduced if key.op == "attribute" and key.args[0] is owner.key}
    if not inner:
        return name if has_weights(owner) else ""
    if len(inner) < len(reduced) or not isinstance(owner.obj, Instance):
        return ""
    layers = (
        part for part, value in owner.obj.cls.attributes.items() if value.key.op == "call" and is_layer(value.key)
    )
    return next((f"{name}.{part}" for part in layers if part not in inner), "")


def _is_asked(value: Value | None, asked: list[tuple[Key, Noted]]) -> bool:
    """Return whether a gradient is one of the parameters that a method gave."""
    found = {id(part) for part in parts(value.key)} if value else set[int]()
    return any(id(key) in found for key, _ in asked)


def check_one_rank(script: Script, run: Run) -> Iterator[Violation]:
    """DW255: yield the sums of gradients that only one rank gets, where all ranks step by what they have."""
    if not run.distributed or any(run.of(*(SET_UP - {INIT}), "torch.distributed.broadcast")):
        return
    steps = [reach for reach, fact in run.of(".step") if is_of_optimizer(run, fact) and reach.loops and reach.several]
    for reach, fact in run.of("torch.distributed.reduce"):
        after = [step for step in steps if step.loops[:1] == reach.loops[:1] and step.ranks == ALL]
        if reach.several and is_gradient(fact) and after:
            yield from violation_at(
                script,
                reach,
                "reduce gives the sum of the gradients to one rank, and all ranks step (line "
                f"{after[0].fact.site.line}): the others do so by what is left in their tensors",
                0.85,
            )
            return
