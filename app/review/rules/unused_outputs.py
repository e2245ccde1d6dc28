"""DW216: models in DDP with a layer for one of their outputs that no loss uses."""

import ast
from collections.abc import Iterator
from functools import partial

from ...training_script.model.keys import LOCAL, Key
from ...training_script.model.lengths import truth
from ...training_script.model.members import PAIR
from ...training_script.model.noted_calls import WRAPPED_FORWARD
from ...training_script.model.reach import Run, argument
from ...training_script.model.values import ClassRef, Instance
from ...training_script.nodes import walk
from ...training_script.torch_classes import DDP_CLASSES
from ..patches.call_arguments import find_unused
from ..rule_context import Script, Violation
from ..violations import violation_at
from .chosen_layers import ALLOWS_UNUSED

SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the models in DDP of which a loss uses some outputs, and another one has a layer of its own."""
    losses = [fact.owner for _, fact in run.of(".backward") if fact.owner and "graph" in fact.owner.facts]
    forward = {fact.result.key for _, fact in run.of(WRAPPED_FORWARD)}
    used = [_outputs(loss.key, forward) for loss in losses]
    if not used or not all(used):
        return  # of what a loss is made is not known
    numbers = {place for each in used for place in each}
    for reach, fact in run.of(*DDP_CLASSES):
        model = argument(fact, 0, "module")
        if ALLOWS_UNUSED & fact.named.keys() or model is None or not isinstance(model.obj, Instance):
            continue
        for place, layers in enumerate(_own_layers(model.obj.cls)):
            if layers and place not in numbers and reach.several:
                yield from violation_at(
                    script,
                    reach,
                    f"no loss uses output {place} of this model, for which alone it has `{min(layers)}`: DDP waits for "
                    "its gradients",
                    0.8,
                    patch=partial(find_unused, script, fact.node) if script.is_here(reach) else None,
                )


def _outputs(loss: Key, forward: set[Key]) -> set[int]:
    """Return the outputs of the forward pass in a loss, under the conditions as the program sets its options."""
    found: set[int] = set()
    pending, seen = [loss], set[int]()
    while pending:
        each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if each in forward or (each.op == "at" and each.differs_by & LOCAL):
            return set()  # with all of them, or with what a call that is not followed makes of some
        if each.op == "item" and each.args[0] in forward and each.args[1].is_constant:
            found.add(each.args[1].value)
            continue
        sides = [arg for arg in each.args if isinstance(arg, Key)]
        if each.op == "if" and (held := truth(each.args[0], PAIR[0])) is not None:
            sides = [each.args[1 if held else 2]]
        pending += sides
    return found


def _own_layers(cls: ClassRef) -> list[set[str]]:
    """Return for each output of the forward pass the layers that only it needs; nothing if that is not known."""
    found = cls.methods.get("forward")
    if found is None or not all(isinstance(stmt, SIMPLE) for stmt in found.body):
        return []
    needs: dict[str, set[str]] = {}
    for stmt in found.body:
        match stmt:
            case ast.Assign(targets=[target], value=value):
                names = [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]
                needs |= dict.fromkeys(names, _needed(value, needs))
            case ast.Return(value=ast.Tuple(elts=outputs)):
                wanted = [_needed(each, needs) for each in outputs]
                layers = _layers(cls)
                others = [set[str]().union(*(each for each in wanted if each is not own)) for own in wanted]
                return [(own - rest) & layers for own, rest in zip(wanted, others, strict=True)]
            case _:
                return []
    return []


def _needed(value: ast.expr, needs: dict[str, set[str]]) -> set[str]:
    """Return the attributes of the model from which a value is computed."""
    found: set[str] = set()
    for node in ast.walk(value):
        match node:
            case ast.Name(id=name):
                found |= needs.get(name, set())
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                found.add(name)
            case _:
                pass
    return found


def _layers(cls: ClassRef) -> set[str]:
    """Return the attributes that are layers and that nothing but the forward pass reads."""
    return {
        name
        for name, value in cls.attributes.items()
        if value.key.op == "call"
        and str(value.key.args[0]).startswith("torch.nn.")
        and sum(isinstance(node, ast.Attribute) and node.attr == name for node in walk(cls.node)) == 2
    }
