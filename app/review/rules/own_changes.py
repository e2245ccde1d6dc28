"""DW252: parameters and learning rates of a model of all ranks that each rank changes by values of its own."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.collective_effects import SAME
from ...training_script.model.keys import BY_RANK, LOCAL, Key, parts
from ...training_script.model.library_calls import RANDOM_TENSORS
from ...training_script.model.reach import Run, argument
from ...training_script.model.seeding_calls import seeding_calls
from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, dotted_name
from ...training_script.torch_classes import DDP_CLASSES
from ..rule_context import Script, Violation
from ..violations import violation_at_node

IN_PLACE = {"add_", "sub_", "mul_", "div_", "copy_", "lerp_", "addcmul_", "addcdiv_", "clamp_", "masked_fill_"}
CHANGES = re.compile(r"parameters\(\)|\.weight\b|\.bias\b|param_groups")
DRAWN_LIKE = {"torch.randn_like", "torch.rand_like", "torch.bernoulli", *RANDOM_TENSORS}
RATES = {"lr", "weight_decay", "momentum"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the changes of parameters in DDP, and of what the optimizer goes by, that differ between ranks."""
    wraps = [fact for reach, fact in run.of(*DDP_CLASSES) if reach.several]
    if not wraps or not script.mentions(CHANGES):
        return
    models = {fact.result.key for fact in wraps} | {
        given.key for fact in wraps if (given := argument(fact, 0, "module"))
    }
    held = {
        fact.result.key
        for _, fact in run.of(".parameters", ".named_parameters")
        if _is_of(fact.owner and fact.owner.key, models)
    }
    sends = [
        value.key
        for _, fact in run.of("torch.distributed.broadcast", "torch.distributed.all_reduce")
        for value in fact.values[:1]
    ]
    shares = any(part in held or part in models for key in sends for part in parts(key))
    seeded_by_rank = not seeding_calls(script.source.text) or any(
        value.key.differs_by & BY_RANK for _, fact in run.of("torch.manual_seed") for value in fact.values
    )
    for node in nodes_below(script.source.tree):
        match node:
            case ast.Call(func=ast.Attribute(value=target, attr=method), args=[_, *_]) if method in IN_PLACE:
                given = [*node.args, *(each.value for each in node.keywords)]
            case ast.AugAssign(target=ast.Name() | ast.Attribute() as target, value=value):
                given = [value]
            case (
                ast.Assign(targets=[ast.Subscript(value=group, slice=ast.Constant(value=name))], value=value)
                | ast.AugAssign(target=ast.Subscript(value=group, slice=ast.Constant(value=name)), value=value)
            ):
                own = _differs(script, value) or _is_chosen_here(script, node)
                if own and name in RATES and _is_of_groups(script, group):
                    yield _violation(
                        node,
                        f"{name} is set by a value of this rank: the ranks take different steps with the same "
                        "gradients, and their models drift apart",
                    )
                continue
            case _:
                continue
        if ".grad" in ast.unparse(target) and any(_differs(script, each) for each in given) and _scales(node):
            yield _violation(
                node,
                "the gradients that DDP has averaged are scaled by a value of this rank: the models drift apart",
            )
            continue
        if ".grad" in ast.unparse(target) and seeded_by_rank and any(_draws(script, each) for each in given):
            yield _violation(
                node,
                "each rank adds random numbers of its own to the gradients that DDP has averaged: the models drift "
                "apart",
            )
            continue
        key = script.evaluated.value(target)
        if shares or key is None or ".grad" in ast.unparse(target) or not _is_parameter(key, target, models, held):
            continue
        drawn = seeded_by_rank and any(_draws(script, each) for each in given)
        if drawn or any(_differs(script, each) for each in given):
            yield _violation(
                node,
                "the parameters of a model in DDP are changed here by values of this rank, which nothing averages: the "
                "models of the ranks drift apart",
            )


def _scales(node: ast.AST) -> bool:
    """Return whether a statement multiplies or divides in place."""
    match node:
        case ast.Call(func=ast.Attribute(attr="mul_" | "div_")) | ast.AugAssign(op=ast.Mult() | ast.Div()):
            return True
        case _:
            return False


def _violation(node: ast.expr | ast.stmt, message: str) -> Violation:
    return violation_at_node(
        node,
        message,
        0.75,
    )


def _is_of(owner: Key | None, models: set[Key]) -> bool:
    """Return whether an object is one of the models, or a part of one."""
    while owner is not None and owner.op == "attribute":
        if owner in models:
            return True
        owner = owner.args[0]
    return owner in models


def _is_parameter(key: Key, target: ast.expr, models: set[Key], held: set[Key]) -> bool:
    """Return whether an expression is a parameter of a model, or its data."""
    while key.op == "attribute" and key.args[1] == "data":
        key = key.args[0]
    if key.op == "element":
        return any(part in held for part in parts(key))
    named = dotted_name(target).removesuffix(".data").endswith((".weight", ".bias"))
    return named and key.op == "attribute" and _is_of(key, models)


def _differs(script: Script, node: ast.expr) -> bool:
    """Return whether a value is one of this rank, of which no collective has made one of all."""
    key = script.evaluated.value(node)
    if key is None or not key.differs_by & LOCAL:
        return False
    return not any(part.op in SAME for part in parts(key))


def _is_chosen_here(script: Script, node: ast.AST) -> bool:
    """Return whether a condition on data of this rank is around a node, in its function."""
    at: ast.AST | None = node
    while at is not None and not isinstance(at, FUNCTIONS):
        parent = script.source.parents.get(at)
        if isinstance(parent, ast.If) and at is not parent.test and _differs(script, parent.test):
            return True
        at = parent
    return False


def _draws(script: Script, node: ast.expr) -> bool:
    """Return whether random numbers of the generator that all of torch shares go into a value."""
    return any(
        isinstance(each, ast.Call)
        and script.names.qualified(each.func) in DRAWN_LIKE
        and not any(keyword.arg == "generator" for keyword in each.keywords)
        for made in (node, *(script.names.origins(node) if isinstance(node, ast.Name) else ()))
        for each in ast.walk(made)
    )


def _is_of_groups(script: Script, node: ast.expr) -> bool:
    """Return whether an expression is one of the groups of parameters of an optimizer."""
    key = script.evaluated.value(node)
    while key is not None and key.op in ("element", "item"):
        key = key.args[0]
    return key is not None and key.op == "attribute" and key.args[1] == "param_groups"
