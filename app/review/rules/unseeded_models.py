"""DW206: models that each rank makes from random numbers of its own, and that nothing makes equal."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, Key, parts
from ...training_script.model.reach import ALL, Run, argument
from ...training_script.model.seeding_calls import seeding_calls
from ...training_script.model.values import Instance, Value
from ...training_script.nodes import nodes_below
from ...training_script.syntax import call_argument, dotted_name, last_name
from ...training_script.torch_classes import DDP_CLASSES, LAYER, is_optimizer
from ..origins import origins_at
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node
from . import own_frozen
from .averaged_by_hand import by_hand
from .replicas import SEED
from .unshared_parts import has_weights, is_called_alone, is_layer

# What may give all ranks the same weights.
SHARES = re.compile(
    r"broadcast|load_state|torch\.load|load_model|pretrained|checkpoint|init_?weights|sync_\w*\(|prepare"
    r"|init\.(?:zeros|ones|constant|eye)|(?<!grad\.)(?<!grad\.data\.)\b(?:zero_|copy_|fill_)\("
)
DRAWS = re.compile(r"rand\w*|normal_?|uniform_?|(?:xavier|kaiming|trunc)_\w+|orthogonal_|empty")
AVERAGES = tuple(f"torch.distributed.{name}" for name in ("all_reduce", "all_gather", "all_gather_into_tensor"))


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the models of which the ranks average the gradients, and those next to DDP, with weights of each rank."""
    if run.function is None and run.distributed and not script.mentions(SHARES):
        yield from _averaged(script, run)
        yield from _outside(script, run)


def _averaged(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the models of which only the gradients are averaged, where the program seeds nothing."""
    reduces = by_hand(run)
    if not reduces or seeding_calls(script.source.text) or any(run.of(SEED)):
        return
    asked = {fact.result.key for _, fact in run.of(".parameters", ".named_parameters")}
    for _, fact in run.of(*AVERAGES):
        given = argument(fact, 0, "tensor")
        if given and "gradient" not in given.facts and any(part in asked for part in parts(given.key)):
            return
    owners = {fact.owner.key for _, fact in run.of(".parameters") if fact.owner and _draws_weights(fact.owner)}
    for _, made in _made(script):
        if script.evaluated.value(made) in owners:
            at = reduces[0].fact.site
            yield violation_at_node(
                made,
                f"nothing seeds the weights of this model, and only its gradients are reduced (line {at.line}): its "
                "copies differ from the start",
                0.8,
                related=[RelatedPlace(path=at.path, line=at.line, message="the gradients are reduced here")],
            )
            return


def _draws_weights(model: Value) -> bool:
    """Return whether a model surely has weights of the random numbers of its process.

    What a class makes by a generator of its own, of zeros or of its arguments may be the same on all ranks.
    """
    if not has_weights(model) or not isinstance(model.obj, Instance):
        return has_weights(model)
    calls = (node for cls in model.obj.cls.ancestry() for node in ast.walk(cls.node) if isinstance(node, ast.Call))
    return any(
        LAYER.fullmatch(name) or (DRAWS.fullmatch(name) and all(each.arg != "generator" for each in call.keywords))
        for call in calls
        if (name := last_name(call.func))
    )


def _outside(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the models that DDP does not know and nothing trains, made from a seed of each rank or from none."""
    wraps = [fact for reach, fact in run.of(*DDP_CLASSES) if reach.several and reach.ranks == ALL]
    if not wraps or any(own_frozen.check(script, run)):
        return
    inner = [given for fact in wraps if (given := call_argument(fact.node, "module", 0)) is not None]
    here = (node for node in (*inner, *_trained(run)) if node in script.source.parents)
    known = {origin for node in here for origin in origins_at(script, node)}
    seeds = [(fact.site.line, fact) for reach, fact in run.of(SEED) if script.is_here(reach) and reach.several]
    for name, made in _made(script):
        key = script.evaluated.value(made)
        if made in known or key is None or not _is_model(script, made, key) or not is_called_alone(script, name):
            continue
        around = script.names.enclosing_function(made)
        before = [fact for line, fact in seeds if line < made.lineno]
        same = all(script.names.enclosing_function(fact.node) is around for _, fact in seeds)
        own = bool(before) and same and _is_of_rank(max(before, key=lambda each: each.site.line))
        if own or not seeding_calls(script.source.text):
            why = "each rank has a seed of its own" if own else "nothing seeds it"
            yield violation_at_node(
                made,
                f"DDP does not know `{name}`, and {why}: the ranks compute with different weights of it",
                0.75,
            )


def _trained(run: Run) -> Iterator[ast.expr]:
    """Yield the models of which an optimizer gets the parameters."""
    inside = {
        id(node)
        for reach in run.reached
        if isinstance(reach.fact, Noted) and is_optimizer(reach.name)
        for node in ast.walk(reach.fact.node)
    }
    for _, fact in run.of(".parameters", ".named_parameters"):
        if isinstance(fact.node.func, ast.Attribute) and id(fact.node) in inside:
            yield fact.node.func.value


def _is_of_rank(seed: Noted) -> bool:
    given = argument(seed, 0, "seed")
    return given is not None and bool(given.key.differs_by & BY_RANK)


def _is_model(script: Script, made: ast.Call, key: Key) -> bool:
    """Return whether a call makes a layer of torch, or an object of a class of this file that has some."""
    if key.op == "call":
        return is_layer(key)
    name = dotted_name(made.func)
    classes = (node for node in script.source.tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    layers = (node for cls in classes for node in ast.walk(cls) if isinstance(node, ast.Call))
    return key.op == "instance" and any(LAYER.fullmatch(last_name(each)) for each in layers)


def _made(script: Script) -> Iterator[tuple[str, ast.Call]]:
    """Yield the names that the program gives to results of calls, with the calls."""
    for node in nodes_below(script.source.tree):
        match node:
            case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=ast.Call() as made):
                if isinstance(target, ast.Name) or not _is_in_module(script, node):
                    yield dotted_name(target), made
            case _:
                pass


def _is_in_module(script: Script, node: ast.AST) -> bool:
    """Return whether a statement is in a class of layers: what it makes are parts of a model."""
    at = script.source.parents.get(node)
    while at is not None and not isinstance(at, ast.ClassDef):
        at = script.source.parents.get(at)
    return at is not None and any(last_name(base) not in ("object", "ABC") for base in at.bases)
