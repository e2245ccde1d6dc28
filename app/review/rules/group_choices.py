"""DW450 and DW451: groups that each rank enters in an order, or by a choice, of its own."""

import ast
from collections.abc import Iterator
from functools import partial

from ...training_script.collectives import GROUP_PLACE
from ...training_script.model.keys import BY_RANK, RANKS, Key, parts
from ...training_script.model.orders import ORDER
from ...training_script.model.reach import Reach, Run, argument
from ...training_script.model.values import Value
from ...training_script.nodes import nodes_of_kinds
from ..patches.common_order import common_order, same_group
from ..rule_context import Script, Violation
from ..violations import violation_at

PREFIX = "torch.distributed."
WORLD = ("group.WORLD", "GroupMember.WORLD")


def check_order(script: Script, run: Run) -> Iterator[Violation]:
    """DW450: yield the collectives in groups that a rank enters in an order that its number decides."""
    for reach, given in _of_groups(run):
        order = next((part for part in parts(given.key) if part.op == ORDER and part.differs_by & BY_RANK), None)
        if order is not None and reach.loops:
            path, line, column = order.args
            here = path == script.source.path
            yield from violation_at(
                script,
                reach,
                f"line {line} puts the groups of a rank into an order of its own: ranks of several groups may wait for "
                "each other in a circle",
                0.75,
                branch=line if here else None,
                patch=partial(common_order, script, line, column) if here else None,
            )


def check_group(script: Script, run: Run) -> Iterator[Violation]:
    """DW451: yield the collectives that some ranks enter with all ranks and the others in a group of their own."""
    for reach, given in _of_groups(run):
        group = given.key
        if not reach.several or "group" not in given.facts or not group.differs_by & BY_RANK:
            continue
        ranks = [rank for bit, rank in enumerate(RANKS) if reach.ranks & (1 << bit)]
        seen = [_chosen(run.keys.specialise(group, rank)) for rank in ranks]
        of_all = [_is_of_all(each) for each in seen]
        if any(of_all) and not all(of_all) and not any(each.op in ("if", "or", "and") for each in seen):
            who = ", ".join(str(rank.rank) for rank, every in zip(ranks, of_all, strict=True) if every)
            nodes = nodes_of_kinds(script.source.tree, ast.BoolOp, ast.IfExp)
            choice = next((node for node in nodes if script.evaluated.value(node) is group), None)
            yield from violation_at(
                script,
                reach,
                f"of 4 ranks, {who} enter this in the group of all ranks, and the others in a smaller one",
                0.8,
                branch=choice.lineno if choice else None,
                patch=partial(same_group, script, choice) if choice else None,
            )


def _of_groups(run: Run) -> Iterator[tuple[Reach, Value]]:
    """Yield the collectives that are given a group, with the group."""
    for reach, fact in run.of(*(PREFIX + name for name in GROUP_PLACE)):
        group = argument(fact, GROUP_PLACE[fact.name.removeprefix(PREFIX)], "group")
        if group is not None:
            yield reach, group


def _chosen(group: Key) -> Key:
    """Return what ``x or y`` is if x is surely a group."""
    while group.op == "or" and group.args[0].op == "library":
        group = group.args[0]
    return group


def _is_of_all(group: Key) -> bool:
    if group.is_constant:
        return group.value is None
    return group.op == "library" and str(group.args[0]).endswith(WORLD)
