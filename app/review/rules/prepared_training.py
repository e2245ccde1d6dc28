"""DW315, DW316 and DW319: losses, models and metrics that Accelerate gets otherwise than the loop around them needs."""

import ast
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, parts
from ...training_script.model.reach import Reach, Run
from ...training_script.model.users import SOURCES
from ...training_script.nodes import nodes_of_kinds
from ...training_script.syntax import LOOPS, last_name
from ...training_script.torch_classes import DDP_CLASSES, is_optimizer
from ..patches.divide_once import divide_once
from ..patches.prepared_values import prepare_model_too
from ..rule_context import Patch, Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at, violation_at_node
from .past_libraries import ACCELERATOR, STEPS

# What makes Accelerate count the rounds, or tells it which of them are the last ones.
COUNTS_ROUNDS = ("accumulate(", "GradientAccumulationPlugin", "no_sync", "sync_gradients", "GradientState")
METRIC_LOADS = ("evaluate.load", "evaluate.combine", "datasets.load_metric")
ADDS = {"add", "add_batch"}
OF_ALL = ("gather", "num_process", "reduce(", "is_main_process=", "get_rank", "process_index")


def check_accumulation(script: Script, run: Run) -> Iterator[Violation]:
    """DW315: yield the backward passes of Accelerate that divide a loss for nothing, or once more."""
    steps = [given.key for _, fact in run.of(ACCELERATOR) if (given := fact.named.get(STEPS))]
    if len(steps) != 1 or (steps[0].is_constant and steps[0].value in (None, 1)) or _asserts_one(script):
        return
    made = [reach for reach, fact in run.of(".step") if fact.owner and "accelerator" not in fact.owner.facts]
    for reach, fact in run.of(".backward"):
        if not fact.owner or "accelerator" not in fact.owner.facts or not reach.loops or not fact.values:
            continue
        why, patch = "", None
        if _is_divided_by(fact.values[0].key, steps[0]):
            patch = partial(_without_division, script, fact) if script.is_here(reach) else None
            why = "accelerator.backward divides the loss by gradient_accumulation_steps, as the script has done before"
        elif not _counts_rounds(script, reach) and any(_in_each_round(step, reach) for step in made):
            why = (
                "accelerator.backward divides the loss by gradient_accumulation_steps, and each batch is a step: "
                "nothing accumulates without accelerator.accumulate"
            )
        if why:
            yield from violation_at(script, reach, why, 0.8, patch=patch)
            return


def _asserts_one(script: Script) -> bool:
    """Return whether the script ends where more than one round is to accumulate."""
    for node in nodes_of_kinds(script.source.tree, ast.Assert):
        match node.test:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=1)]) if (
                last_name(left) == STEPS
            ):
                return True
            case _:
                pass
    return False


def _counts_rounds(script: Script, backward: Reach) -> bool:
    """Return whether the script, or the file of another module with the backward pass, lets Accelerate count."""
    if any(map(script.mentions, COUNTS_ROUNDS)):
        return True
    source = None if script.is_here(backward) else SOURCES.source(Path(backward.fact.site.path))
    return source is not None and any(word in source.text for word in COUNTS_ROUNDS)


def _without_division(script: Script, backward: Noted) -> Patch:
    """Return the patch that leaves out the division of a loss, where it is written in one place."""
    given = backward.node.args[0] if backward.node.args else None
    made = [given, *script.names.origins(given)] if isinstance(given, ast.Name) else [given]
    divisions = [each for each in made if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Div)]
    return divide_once(script, divisions[0] if len(divisions) == 1 else None)


def _is_divided_by(loss: Key, steps: Key) -> bool:
    """Return whether a loss is divided by the rounds that Accelerate got."""
    if loss.op != "binary" or loss.args[0] != "Div":
        return False
    by = loss.args[2]
    return by is steps or (by.op == "attribute" and by.args[1] == STEPS)


def _in_each_round(step: Reach, backward: Reach) -> bool:
    return step.loops == backward.loops and {*step.conditions} <= {*backward.conditions}


def check_model(script: Script, run: Run) -> Iterator[Violation]:
    """DW316: yield the calls of prepare that get the optimizer of a model, and no model."""
    made = [each.fact for each in run.reached if isinstance(each.fact, Noted) and is_optimizer(each.name)]
    prepares = [(at, fact) for at, fact in run.of(".prepare") if fact.owner and "accelerator" in fact.owner.facts]
    if len(prepares) != 1 or script.mentions("prepare_model") or _wraps(script):
        return
    reach, fact = prepares[0]
    unpacked = any(isinstance(each, ast.Starred) for each in fact.node.args) or fact.node.keywords
    given = {value.key for value in fact.values}
    optimizers = {each.result.key: each for each in made if each.result.key in given}
    others = [value for value in fact.values if value.key not in optimizers and "loader" not in value.facts]
    if unpacked or not optimizers or others:
        return
    held = {part for each in optimizers.values() for value in each.values for part in parts(value.key)}
    models = [each for each in run.of(".parameters") if each[1].result.key in held and each[1].owner is not None]
    backward = [each for each, fact in run.of(".backward") if fact.owner and "accelerator" in fact.owner.facts]
    if models and backward and reach.several:
        yield from violation_at(
            script,
            reach,
            "prepare gets the optimizer and not the model: nothing averages the gradients, and the copies of the "
            "ranks drift apart",
            0.85,
            related=[RelatedPlace(path=models[0][1].site.path, line=models[0][1].site.line, message="of this model")],
            patch=partial(_with_model, script, fact, models[0][1]) if script.is_here(reach) else None,
        )


def _wraps(script: Script) -> bool:
    """Return whether a script wraps a model in DDP itself, wherever that is."""
    calls = nodes_of_kinds(script.source.tree, ast.Call)
    return any(script.names.qualified(each.func) in DDP_CLASSES for each in calls)


def _with_model(script: Script, prepare: Noted, parameters: Noted) -> Patch:
    func = parameters.node.func
    model = func.value if isinstance(func, ast.Attribute) and parameters.site.path == script.source.path else func
    return prepare_model_too(script, prepare.node, model)


def check_metric(script: Script, run: Run) -> Iterator[Violation]:
    """DW319: yield the metrics to which each rank adds its own batches of a prepared loader."""
    prepares = [fact for _, fact in run.of(".prepare") if fact.owner and "accelerator" in fact.owner.facts]
    if not prepares or any(map(script.mentions, OF_ALL)) or not any(map(script.mentions, ("load(", "load_metric("))):
        return
    loaders = [value for fact in prepares for value in fact.values if "loader" in value.facts]
    for call in nodes_of_kinds(script.source.tree, ast.Call) if len(loaders) > 1 else ():
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in ADDS or not _is_in_loop(script, call):
            continue
        origins = [each for each in script.names.origins(call.func.value) if isinstance(each, ast.Call)]
        if any(script.names.qualified(each.func) in METRIC_LOADS for each in origins):
            yield violation_at_node(
                call,
                f"{last_name(call.func)} gets the batches of this rank only: prepare has shared them out, and "
                "accelerator.gather_for_metrics gives those of all ranks",
                0.8,
            )
            return


def _is_in_loop(script: Script, node: ast.expr) -> bool:
    at = script.source.parents.get(node)
    while at is not None and not isinstance(at, LOOPS):
        at = script.source.parents.get(at)
    return at is not None
