"""DW235 and DW236: gradients that are divided again after DDP, and losses against what other ranks gathered."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from ...training_script.model.collective_effects import SUMMED
from ...training_script.model.keys import BY_RANK, Key, parts
from ...training_script.model.reach import Run, argument
from ...training_script.nodes import nodes_below, nodes_of_kinds
from ...training_script.syntax import dotted_name, is_gradient_attribute, scaled_in_place
from ...training_script.torch_classes import DDP_CLASSES
from ..patches.reduced_losses import times_ranks, without_division, without_statement
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at, violation_at_node

LOSSES = ("torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss")
MEANS = {
    f"torch.nn.functional.{name}" for name in ("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss")
}
MEANS |= {f"torch.nn.functional.binary_cross_entropy{more}" for more in ("", "_with_logits")}
REDUCED_BY_HAND = re.compile(r"comm_hook|no_sync|\.grad\b[^\n]*\bop=|(?:reduce|sync)\w*\([^\n)]*\.grad")


def check_twice(script: Script, run: Run) -> Iterator[Violation]:
    """DW235: yield the divisions by the number of ranks of what DDP has averaged."""
    wrapped = any(reach.several for reach, _ in run.of(*DDP_CLASSES))
    if not wrapped or script.mentions(REDUCED_BY_HAND):
        return
    reduced = {
        fact.site[:2]
        for _, fact in run.of("torch.distributed.all_reduce")
        if (given := argument(fact, 0, "tensor")) and "graph" in given.facts
    }
    for reach, fact in run.of(".backward"):
        if fact.owner and {"graph", "divided"} <= fact.owner.facts and reach.several:
            yield from violation_at(
                script,
                reach,
                "this loss is divided by the number of ranks, and DDP averages the gradients over them once more",
                0.7,
                severity="warning",
                related=[
                    RelatedPlace(path=each.site.path, line=each.site.line, message="the loss is reduced here as well")
                    for _, each in run.of("torch.distributed.all_reduce")
                    if each.values and "graph" in each.values[0].facts
                ],
                patch=partial(without_division, script, fact.node) if script.is_here(reach) else None,
            )
        elif fact.owner and "graph" in fact.owner.facts and reach.several and _is_mean_of_ranks(fact.owner.key):
            yield from violation_at(
                script,
                reach,
                "this loss is the mean over the rank's batch, multiplied by the number of ranks, and nothing is summed "
                "over the ranks: the gradients that DDP averages are larger by that number",
                0.7,
                severity="warning",
            )
        elif (
            fact.owner
            and "graph" in fact.owner.facts
            and reach.several
            and _is_divided_by_sum(fact.owner.key, reduced)
            and not _multiplies_gradients(script)
        ):
            yield from violation_at(
                script,
                reach,
                "this loss is divided by a sum over all ranks, and DDP divides the gradients by the number of ranks as "
                "well: multiply it by the number of ranks",
                0.7,
                severity="warning",
                patch=partial(times_ranks, script, fact.node) if script.is_here(reach) else None,
            )
    for node in nodes_below(script.source.tree) if run.function is None else ():
        if not isinstance(node, ast.Call | ast.AugAssign | ast.Assign):
            continue
        if (divided := _divided_gradient(node)) and script.is_world_size(divided):
            yield violation_at_node(
                node,
                "the gradients are divided by the number of ranks, and DDP has averaged them already",
                0.8,
                patch=partial(without_statement, script, node),
            )


def check_labels(script: Script, run: Run) -> Iterator[Violation]:
    """DW236: yield the losses whose labels count from 0 on every rank, though the keys are those of all ranks."""
    for reach, fact in run.of(*LOSSES):
        if len(fact.values) < 2:
            continue
        scores, labels = fact.values[:2]
        counted = (
            labels.key.op == "call" and labels.key.args[0] == "torch.arange" and not labels.key.differs_by & BY_RANK
        )
        if "across" in scores.facts and counted and not labels.facts & {"pooled", "world"}:
            yield from violation_at(
                script,
                reach,
                "the scores are against the keys of all ranks, but the labels begin at 0 on each rank: they name the "
                "keys of rank 0",
                0.8,
            )


def _is_divided_by_sum(loss: Key, reduced: set[tuple[str, int]]) -> bool:
    """Return whether a loss of this rank is divided by a sum over all, and multiplied by nothing that is not known.

    ``reduced``: where losses are summed over all ranks, which leaves their gradients those of this rank.
    """
    while loss.op == "binary" and loss.args[0] in ("Mult", "Div"):
        name, left, right = loss.args
        if name == "Div" and _is_sum(right):
            return _is_own(left) or (left.op == "filled" and left.args[-1] == SUMMED and left.args[:2] in reduced)
        if not right.is_constant:
            return False
        loss = left
    return False


def _is_mean_of_ranks(loss: Key) -> bool:
    """Return whether a mean over the batch of this rank is multiplied by the number of ranks, and by nothing else."""
    if loss.op != "binary" or loss.args[0] != "Mult":
        return False
    sides = loss.args[1:]
    others = [each for each in sides if each.op != "world"]
    if len(others) != 1 or any(part.op in ("shared", "filled") for part in parts(loss)):
        return False
    mean = others[0]
    texts = {part.value for part in parts(mean) if part.is_constant}
    return mean.op == "call" and mean.args[0] in MEANS and not texts & {"sum", "none"}


def _is_sum(key: Key) -> bool:
    """Return whether a value is a sum over all ranks, at most bounded."""
    while key.op == "max" or key.args[:1] == ("torch.clamp",):
        key = next((arg for arg in key.args if isinstance(arg, Key) and not arg.is_constant), key.args[-1])
    return key.op == "filled" and key.args[-1] == SUMMED


def _is_own(loss: Key) -> bool:
    """Return whether a loss is one of this rank, and neither a mean of all nor scaled by a number of ranks."""
    scaled = loss.op == "binary" and any(part.op == "world" for part in parts(loss))
    return not scaled and not any(part.op in ("shared", "filled") for part in parts(loss))


def _divided_gradient(node: ast.AST) -> ast.expr | None:
    """Return the number by which a statement divides a gradient in place."""
    if (scaled := scaled_in_place(node, ast.Div)) and is_gradient_attribute(scaled[0]):
        return scaled[1]
    match node:
        case ast.Assign(targets=[target], value=ast.BinOp(left=left, op=ast.Div(), right=number)):
            own = is_gradient_attribute(target) and dotted_name(target) == dotted_name(left)
            return number if own else None
        case _:
            return None


def _multiplies_gradients(script: Script) -> bool:
    """Return whether a statement multiplies gradients by the number of ranks, as the sum of all would be."""
    scaled = (scaled_in_place(node, ast.Mult) for node in nodes_of_kinds(script.source.tree, ast.Call, ast.AugAssign))
    return any(each and is_gradient_attribute(each[0]) and script.is_world_size(each[1]) for each in scaled)
