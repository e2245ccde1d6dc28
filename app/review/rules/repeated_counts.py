"""DW309: sums over the ranks of what every rank has counted of all of the data."""

import ast
from collections.abc import Iterator

from ...training_script.model.collective_effects import SAME, SUMMED
from ...training_script.model.keys import Key, parts
from ...training_script.model.reach import Run, argument, same_on_ranks
from ...training_script.model.values import Instance, reduces_by
from ...training_script.nodes import nodes_of_kinds
from ...training_script.torch_classes import LOADER_CLASSES
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .loaders import has_sampler, iterates, shares_out
from .own_statistics import is_share


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the reductions of totals over a loader that gives every rank the same samples, taken for those of parts."""
    loaders = [
        (reach, fact)
        for reach, fact in run.of(*LOADER_CLASSES)
        if (data := argument(fact, 0, "dataset"))
        and same_on_ranks(data.key)
        and not shares_out(data)
        and not isinstance(data.obj, Instance)
        and not has_sampler(fact)
        and not any(each.arg is None for each in fact.node.keywords)
    ]
    if not run.distributed or not loaders or any(run.of(".prepare")):
        return
    for reach, fact in run.of("torch.distributed.all_reduce"):
        total = argument(fact, 0, "tensor")
        accumulated = [part.accumulated for part in parts(total.key) if part.accumulated] if total else []
        if not accumulated or not reach.by_all or not reduces_by(argument(fact, 1, "op"), "SUM"):
            continue
        whole = next((each for each in loaders if iterates(accumulated[0].rounds, each[1].result.key)), None)
        if whole is None or _takes_part(accumulated[0].after):
            continue
        quotient = _taken_as_of_parts(script, fact.site.line)
        if quotient is not None:
            yield from violation_at(
                script,
                reach,
                f"every rank has counted all of the data (the loader of line {whole[1].site.line} has no sampler), and "
                f"the sum over the ranks is divided by the number of all samples (line {quotient.lineno}): the result "
                "is as many times too large as there are ranks",
                0.8,
                related=[
                    RelatedPlace(
                        path=whole[1].site.path, line=whole[1].site.line, message="every rank reads all of it"
                    ),
                    RelatedPlace(path=script.source.path, line=quotient.lineno, message="divided here"),
                ],
            )


def _takes_part(added: Key) -> bool:
    """Return whether what a round adds is of the rank's part of a batch."""
    return any(part.op in SAME or (part.op == "item" and is_share(part)) for part in parts(added))


def _taken_as_of_parts(script: Script, line: int) -> ast.BinOp | None:
    """Return the quotient of the sum that is reduced in a line and a length which is the same on all ranks."""
    for node in nodes_of_kinds(script.source.tree, ast.BinOp):
        if not isinstance(node.op, ast.Div):
            continue
        summed, count = script.evaluated.value(node.left), script.evaluated.value(node.right)
        if summed is None or count is None or summed.op != "filled" or summed.args[-1] != SUMMED:
            continue
        if summed.args[1] == line and count.op == "length" and same_on_ranks(count):
            return node
    return None
