"""DW216: models in DDP whose forward pass uses a layer only from some round on."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import partial

from ...training_script.model.keys import DIFFERS, Key
from ...training_script.model.library_calls import BACKWARD
from ...training_script.model.noted_calls import WRAPPED_FORWARD
from ...training_script.model.reach import Run, argument
from ...training_script.model.values import ClassRef, Instance
from ...training_script.nodes import walk
from ...training_script.torch_classes import DDP_CLASSES, LAYER
from ..patches.call_arguments import find_unused
from ..rule_context import Script, Violation
from ..violations import violation_at
from .chosen_layers import ALLOWS_UNUSED
from .covered_rounds import leaves_of

COUNTERS = ("number", "altered", "counted", "changing")
HOLDERS = re.compile(r"Sequential|ModuleList|ModuleDict|MultiheadAttention|Transformer\w*")
# A program that keeps unused parameters out of DDP, or all of them in the loss.
HANDLES = re.compile(r"requires_grad|sum\([^\n]*parameters\(")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the models in DDP with a layer that the forward pass leaves out by the number of the round."""
    wrapped = [(reach, fact) for reach, fact in run.of(*DDP_CLASSES) if reach.several]
    if not wrapped or script.mentions(HANDLES):
        return
    trained = [reach.loops for reach in run.reached if reach.name == BACKWARD]
    calls = [fact for reach, fact in run.of(WRAPPED_FORWARD) if reach.loops and reach.loops in trained]
    for reach, fact in wrapped:
        model = argument(fact, 0, "module")
        if ALLOWS_UNUSED & fact.named.keys() or model is None or not isinstance(model.obj, Instance):
            continue
        forward = model.obj.cls.methods.get("forward")
        for call in calls if forward else ():
            assert forward is not None
            names = [each.arg for each in forward.args.args[1:]]
            given = {**dict(zip(names, call.values, strict=False)), **call.named}
            rounds = {name for name, value in given.items() if _is_of_round(value.key)}
            found = next(_left_out(model.obj.cls, forward, rounds), None) if rounds else None
            if found:
                test, layer = found
                yield from violation_at(
                    script,
                    reach,
                    f"the number of the round decides whether a forward pass uses `{layer}` of this model (line "
                    f"{test.lineno}): DDP waits for its gradients",
                    0.75,
                    patch=partial(find_unused, script, fact.node) if script.is_here(reach) else None,
                )
                break


def _is_of_round(value: Key) -> bool:
    """Return whether a value is a number of rounds, or computed from one and from constants alone."""
    leaves = set(leaves_of(value))
    return bool(leaves) and all(each.op in COUNTERS and not each.differs_by & DIFFERS for each in leaves)


def _left_out(cls: ClassRef, forward: ast.AST, rounds: set[str]) -> Iterator[tuple[ast.expr, str]]:
    """Yield the conditions on a number of the round with a layer that only one side of each reads."""
    everywhere = _count_reads([method for name, method in cls.methods.items() if name != "__init__"])
    for test, then, other in _choices(forward):
        if not any(isinstance(node, ast.Name) and node.id in rounds for node in walk(test)):
            continue
        sides = _count_reads(then), _count_reads(other)
        for layer in sorted(_layers(cls)):
            counts = [side.get(layer, 0) for side in sides]
            if 0 in counts and any(counts) and sum(counts) == everywhere.get(layer, 0):
                yield test, layer


def _choices(forward: ast.AST) -> Iterator[tuple[ast.expr, Sequence[ast.AST], Sequence[ast.AST]]]:
    """Yield the conditions of a function with what is on both sides, up to its end if one side returns."""
    for node in walk(forward):
        if isinstance(node, ast.IfExp):
            yield node.test, [node.body], [node.orelse]
        body: list[ast.stmt] = getattr(node, "body", []) if isinstance(node, ast.stmt) else []
        for place, stmt in enumerate(body):
            if isinstance(stmt, ast.If):
                returns = isinstance(stmt.body[-1], ast.Return) and node is forward
                rest = body[place + 1 :] if returns else []
                yield stmt.test, stmt.body, [*stmt.orelse, *rest]


def _count_reads(nodes: Sequence[ast.AST]) -> dict[str, int]:
    """Return how often each attribute of the model is read."""
    counts: dict[str, int] = {}
    for each in nodes:
        for node in walk(each):
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name):
                    counts[name] = counts.get(name, 0) + 1
                case _:
                    pass
    return counts


def _layers(cls: ClassRef) -> set[str]:
    """Return the attributes that are layers with parameters."""
    made = {name: str(value.key.args[0]) for name, value in cls.attributes.items() if value.key.op == "call"}
    kinds = {name: kind.rpartition(".")[2] for name, kind in made.items() if kind.startswith("torch.nn.")}
    return {name for name, kind in kinds.items() if LAYER.fullmatch(kind) or HOLDERS.fullmatch(kind)}
