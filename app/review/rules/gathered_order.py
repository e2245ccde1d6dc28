"""DW440: gathered parts put one behind the other, where a sampler has shared out every n-th sample."""

import ast
from collections.abc import Iterator

from ...training_script.model.collective_effects import SAME
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key
from ...training_script.model.keys import parts as parts_of
from ...training_script.model.reach import Reach, Run, argument, same_on_ranks
from ...training_script.nodes import nodes_below, nodes_of_kinds
from ...training_script.torch_classes import SAMPLER_CLASSES
from ..rule_context import Script, Violation
from ..types import RelatedPlace

GATHERS = ("all_gather", "all_gather_into_tensor", "all_gather_object", "gather", "gather_object")
JOINS = ("torch.cat", "torch.concat", "numpy.concatenate", "itertools.chain", "itertools.chain.from_iterable", "sum")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the joined parts of all ranks that are cut to the length of a dataset, as if they were in its order."""
    dealt = {data.key: sampler for _, sampler in run.of(*SAMPLER_CLASSES) if (data := argument(sampler, 0, "dataset"))}
    gathers = [each for each, _ in run.of(*(f"torch.distributed.{name}" for name in GATHERS)) if each.several]
    yield from _compared(script, run, gathers)
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


def _compared(script: Script, run: Run, gathers: list[Reach]) -> Iterator[Violation]:
    """Yield what compares joined parts, every n-th sample of which is one rank's, with data in their own order."""
    dealt = [each for each in gathers if _sends_every_nth(each)]
    for node in nodes_of_kinds(script.source.tree, ast.Compare, ast.BinOp) if dealt and run.function is None else ():
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else [node.left, node.right]
        keys = [script.evaluated.value(each) for each in sides]
        if len(keys) != 2 or not all(keys) or (isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Sub)):
            continue
        for held, other in ((keys[0], keys[1]), (keys[1], keys[0])):
            joined = _joined(held) if held is not None else None
            filled = [each for each in dealt if joined is not None and _fills(each, joined)]
            if filled and other is not None and _is_in_order(other):
                line = filled[0].fact.site.line
                yield Violation(
                    line=node.lineno,
                    column_bytes=node.col_offset + 1,
                    end_line=node.end_lineno or node.lineno,
                    message="each rank has every n-th sample, and their parts one behind the other (gathered in line "
                    f"{line}) are compared with data in the order of the samples",
                    confidence=0.75,
                    related=[RelatedPlace(path=script.source.path, line=line, message="gathered here")],
                )
                return


def _sends_every_nth(gather: Reach) -> bool:
    """Return whether what a rank sends is made of every n-th sample, n the number of ranks."""
    sent = argument(gather.fact, 1, "tensor", "input_tensor") if isinstance(gather.fact, Noted) else None
    steps = [part.args[2] for part in parts_of(sent.key) if part.op == "slice"] if sent else []
    return any(step.op == "world" for step in steps)


def _is_in_order(other: Key) -> bool:
    """Return whether a value is the same on all ranks, and made of nothing that they exchange or take every n-th of."""
    return same_on_ranks(other) and not other.is_constant and not any(part.op in SAME for part in parts_of(other))


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
