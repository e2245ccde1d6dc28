"""DW227: splits of data that nothing seeds, of which each rank makes one of its own."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.keys import BY_RANK
from ...training_script.model.reach import Run, argument, same_on_ranks
from ...training_script.nodes import nodes_below
from ..rule_context import Script, Violation
from ..violations import violation_at, violation_at_node
from .own_orders import ORDERS, drawn_for
from .replicas import SEED, SPLITS

OF_SKLEARN = "sklearn.model_selection.train_test_split"
SEEDED = ("random_state", "shuffle")  # arguments that decide the order
# What may give all ranks one seed, or one split.
SHARES = re.compile(r"seed|broadcast|rank_zero|main_process", re.IGNORECASE)
SETS = re.compile(r"Subset|Sampler")  # of the samples at some places
SENT = re.compile(r"broadcast|rank_zero|main_process")
MESSAGE = "nothing seeds this split: each rank draws one of its own, and what one rank validates on, another trains on"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the splits by the generator of torch or numpy where the program never sets a seed."""
    if not run.distributed:
        return
    yield from _cut(script, run)
    shares = script.mentions(SHARES) or any(run.of(SEED))
    for reach, fact in run.of(*SPLITS) if not shares else ():
        data = argument(fact, 0, "dataset")
        given = argument(fact, 2, "generator") or "**" in fact.named
        if not given and reach.by_all and data and same_on_ranks(data.key) and not reach.conditions:
            yield from violation_at(script, reach, MESSAGE, 0.8)
    if not shares and script.source.text.count("train_test_split") > 1:
        yield from _of_sklearn(script)


def _cut(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the orders that each rank draws for itself, and cuts into the samples of two data sets."""
    if run.function is not None or not script.mentions(SETS) or not script.mentions(ORDERS) or script.mentions(SENT):
        return
    cuts: dict[tuple[ast.AST, str, str], set[str]] = {}
    for node in nodes_below(script.source.tree):
        match node:
            case ast.Subscript(value=held, slice=ast.Slice(lower=lower, upper=upper, step=None)) if lower or upper:
                pass
            case _:
                continue
        bound = lower or upper
        if (lower and upper) or bound is None or not isinstance(held, ast.Name):
            continue
        place = script.names.enclosing_function(node) or script.source.tree, held.id, ast.unparse(bound)
        sides = cuts.setdefault(place, set())
        sides.add("head" if upper else "tail")
        key = script.evaluated.value(bound)
        by_rank = key is not None and key.differs_by & BY_RANK
        if len(sides) == 2 and not by_rank and (drawn := drawn_for(script, node)):
            yield violation_at_node(drawn, MESSAGE, 0.8)
            sides.clear()


def _of_sklearn(script: Script) -> Iterator[Violation]:
    for node in nodes_below(script.source.tree):
        if not isinstance(node, ast.Call) or script.names.qualified(node.func) != OF_SKLEARN:
            continue
        options = {each.arg for each in node.keywords}
        if not options & {*SEEDED, None}:
            yield violation_at_node(
                node,
                MESSAGE,
                0.8,
            )
