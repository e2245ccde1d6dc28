"""DW313: parts of the data as long as the share of a rank that are the same on every rank."""

import ast
from collections.abc import Iterator
from functools import partial

from ...training_script.model.keys import BY_RANK, DIFFERS, Key, parts
from ...training_script.model.noted_calls import WRAPPED_FORWARD
from ...training_script.model.reach import ALL, Run, same_on_ranks
from ...training_script.nodes import nodes_of_kinds
from ..patches.own_data import part_of_each_rank
from ..rule_context import Script, Violation
from ..violations import violation_at_node
from .averaged_by_hand import by_hand


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the first samples, the whole data divided by the number of ranks, that every rank takes for its part."""
    if run.function is not None or not run.distributed:
        return
    forward = [fact for reach, fact in run.of(WRAPPED_FORWARD) if reach.ranks == ALL and reach.loops]
    trained = [fact for reach, fact in run.of(".backward") if reach.ranks == ALL and reach.loops]
    if not (forward or (trained and by_hand(run))):
        return
    computed = [value.key for fact in forward for value in fact.values] or [
        fact.owner.key for fact in trained if fact.owner
    ]
    if forward and any(key.differs_by & DIFFERS for key in computed):
        return
    nodes = nodes_of_kinds(script.source.tree, ast.Subscript)
    keys = [(node, script.evaluated.value(node)) for node in nodes]
    if any(key is not None and key.op == "item" and key.args[1].differs_by & BY_RANK for _, key in keys):
        return
    lines = set[int]()
    for node, key in keys:
        if (
            key is not None
            and _is_first_share(key)
            and any(key in parts(each) for each in computed)
            and node.lineno not in lines
        ):
            lines.add(node.lineno)
            yield violation_at_node(
                node,
                "every rank takes the same first part of the data here, which is as long as the share of one rank: the "
                "other parts are never used",
                0.75,
                patch=partial(part_of_each_rank, script, node),
            )
            return


def _is_first_share(key: Key) -> bool:
    """Return whether a value is what comes first of something, so much as each of the ranks gets of it."""
    if key.op != "item" or key.args[1].op != "slice" or not same_on_ranks(key):
        return False
    start, stop, step = key.args[1].args
    first = start.is_constant and start.value in (None, 0) and step.is_constant and step.value in (None, 1)
    return first and stop.op == "binary" and stop.args[0] == "FloorDiv" and stop.args[2].op == "world"
