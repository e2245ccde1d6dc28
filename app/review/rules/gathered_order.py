"""DW440: gathered parts put one behind the other, where a sampler has shared out every n-th sample."""

import ast
from collections.abc import Iterator

from ...training_script.model.keys import Key
from ...training_script.model.reach import Reach, Run, argument
from ...training_script.nodes import nodes_below
from ...training_script.torch_classes import SAMPLER_CLASSES
from ..rule_context import Script, Violation
from ..types import RelatedPlace

GATHERS = ("all_gather", "all_gather_into_tensor", "all_gather_object", "gather", "gather_object")
JOINS = ("torch.cat", "torch.concat", "numpy.concatenate", "itertools.chain", "itertools.chain.from_iterable", "sum")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the joined parts of all ranks that are cut to the length of a dataset, as if they were in its order."""
    dealt = {data.key: sampler for _, sampler in run.of(*SAMPLER_CLASSES) if (data := argument(sampler, 0, "dataset"))}
    gathers = [each for each, _ in run.of(*(f"torch.distributed.{name}" for name in GATHERS)) if each.several]
    if not dealt or not gathers:
        return
    cut = list(_cut(script, set(dealt)))
    for node, data, parts in cut:
        filled = [each for each in gathers if _fills(each, parts)]
        if len(filled) == 1 and sum(each is data for _, each, _ in cut) == 1:  # several are in one order, if not this
            yield Violation(
                line=node.lineno,
                column_bytes=node.col_offset + 1,
                end_line=node.end_lineno or node.lineno,
                message=f"DistributedSampler (line {dealt[data].site.line}) gives a rank every n-th sample: the parts "
                "of the ranks one behind the other are not in the order of the dataset",
                confidence=0.75,
                related=[RelatedPlace(path=script.source.path, line=filled[0].fact.site.line, message="gathered here")],
            )


def _cut(script: Script, datasets: set[Key]) -> Iterator[tuple[ast.Subscript, Key, Key]]:
    """Yield what is cut to the length of one of these datasets, with that and the parts that it is joined of."""
    for node in nodes_below(script.source.tree):
        match node:
            case ast.Subscript(slice=ast.Slice(lower=None, upper=ast.expr() as upper, step=None)):
                size, held = script.evaluated.value(upper), script.evaluated.value(node.value)
                if size is not None and held is not None and size.op == "length" and size.args[0] in datasets:
                    parts = _joined(held)
                    if parts is not None:
                        yield node, size.args[0], parts
            case _:
                pass


def _joined(held: Key) -> Key | None:
    """Return the gathered parts that are put one behind the other."""
    match held.op, held.args:
        case "call", (name, Key() as parts, *_) if name in JOINS:
            pass
        case "built", (2, Key() as parts, *_):  # of the parts, and of what is in each
            pass
        case _:
            return None
    return parts if parts.op == "filled" else None


def _fills(gather: Reach, parts: Key) -> bool:
    path, line, *_ = parts.args
    site = gather.fact.site
    return site.path == path and site.line <= line <= site.end_line
