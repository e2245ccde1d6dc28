"""DW314: values of all ranks that are divided by the number of ranks twice."""

import ast
from collections.abc import Iterator
from functools import partial

from ...training_script.model.collective_effects import SUMMED
from ...training_script.model.keys import Key
from ...training_script.model.reach import Run, argument
from ...training_script.model.values import reduces_by
from ...training_script.nodes import nodes_of_kinds
from ..patches.divide_once import divide_once
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node

REDUCE = "torch.distributed.all_reduce"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the divisions by the number of ranks of what is a mean over the ranks already."""
    if run.function is not None or not run.distributed:
        return
    reduced = {fact.site[:2]: fact for reach, fact in run.of(REDUCE) if reach.several}
    for node in nodes_of_kinds(script.source.tree, ast.BinOp, ast.AugAssign) if reduced else ():
        if not isinstance(node.op, ast.Div):
            continue
        left, right = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
        mean = script.evaluated.value(left) if script.is_world_size(right) else None
        if mean is None:
            continue
        halved = mean.op == "binary" and mean.args[0] == "Div" and mean.args[2].op == "world"
        summed = mean.args[1] if halved else mean
        fact = reduced.get(summed.args[:2]) if summed.op == "filled" else None
        if fact is None:
            continue
        given = argument(fact, 0, "tensor")
        if halved and summed.args[-1] == SUMMED:
            why = "divides the sum already"
        elif not halved and reduces_by(argument(fact, 1, "op"), "AVG"):
            why = "gives the mean"
        elif not halved and summed.args[-1] == SUMMED and given is not None and _is_divided(given.key):
            why = "gets what is divided by it already"
        else:
            continue
        yield violation_at_node(
            node,
            f"divided by the number of ranks once more: the program {why} (the reduction is in line {fact.site.line})"
            if halved
            else f"divided by the number of ranks once more: the reduction in line {fact.site.line} {why}",
            0.8,
            patch=partial(divide_once, script, node),
            related=[RelatedPlace(path=fact.site.path, line=fact.site.line, message="reduced here")],
        )


def _is_divided(key: Key) -> bool:
    """Return whether a value is divided by the number of ranks."""
    return key.op == "binary" and key.args[0] == "Div" and key.args[2].op == "world"
