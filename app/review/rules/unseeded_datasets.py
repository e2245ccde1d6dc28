"""DW227: splits and orders of the datasets library that nothing seeds, of which each rank makes one of its own."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_of_kinds
from ..rule_context import Script, Violation
from ..violations import violation_at_node

DATASETS = re.compile(r"^[ \t]*(?:from|import) datasets\b", re.MULTILINE)
SPLITS, SHUFFLES = "train_test_split", "shuffle"
DRAWS = re.compile(rf"\.{SPLITS}\(|\.{SHUFFLES}\(\)")
# What seeds the generator of numpy, from which the library draws where it is given no seed.
SEEDS = re.compile(
    r"set_seed\(|seed_everything\(|np\.random\.seed\(|numpy\.random\.seed\(|full_determinism\(|seed_all\("
)
OWN_SPLIT = (
    "nothing seeds this split: each rank draws a split of its own, and what one rank validates on, another trains on"
)
OWN_ORDER = (
    "nothing seeds this order: each rank draws an order of its own, and takes its part of that: some samples come "
    "twice, others never"
)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the splits and shuffles of data sets without a seed in a script that sets none itself."""
    if not run.distributed or not script.mentions(DRAWS) or not script.mentions("__main__"):
        return
    if not script.mentions(DATASETS) or script.mentions(SEEDS) or not script.is_first_distributed(run):
        return
    for node in nodes_of_kinds(script.source.tree, ast.Call):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.expr() as owner, attr="train_test_split" | "shuffle" as name)):
                pass
            case _:
                continue
        if script.names.qualified(node.func) or _is_seeded(node) or (name == SHUFFLES and node.args):
            continue
        if name == SPLITS or not isinstance(owner, ast.Attribute):
            message = OWN_SPLIT if name == SPLITS else OWN_ORDER
            yield violation_at_node(node, message, 0.8, severity="warning")


def _is_seeded(call: ast.Call) -> bool:
    """Return whether a call is given a seed, a generator or options, or does not draw."""
    for each in call.keywords:
        if each.arg in (None, "seed", "seeds", "generator"):
            return True
        if each.arg == SHUFFLES and isinstance(each.value, ast.Constant) and each.value.value is False:
            return True
    return False
