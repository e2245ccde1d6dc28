"""DW258: states of a sharded optimizer that are taken before the ranks have sent their parts."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.reach import Run, alternatives
from ...training_script.nodes import nodes_below
from ...training_script.syntax import last_name
from ..rule_context import Script, Violation
from ..violations import violation_at

ZERO = "ZeroRedundancyOptimizer"
NAME = "ZeroRedundancyOptimizer"
WHOLE_NAME = re.compile(rf"\b{NAME}\b")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the states of a ZeroRedundancyOptimizer in programs that never consolidate it."""
    if (
        not (script.mentions(NAME) and script.mentions(WHOLE_NAME))
        or script.mentions("consolidate_state_dict")
        or any(run.of(".consolidate_state_dict"))
    ):
        return
    made = {
        key
        for node in nodes_below(script.source.tree)
        if isinstance(node, ast.Call) and last_name(node.func) == ZERO
        if (key := script.evaluated.value(node)) is not None
    }
    for reach, fact in run.of(".state_dict"):
        if fact.owner and any(key in made for key in alternatives(fact.owner.key)) and not reach.unsure:
            yield from violation_at(
                script,
                reach,
                "each rank has only its part of the state of this optimizer: consolidate_state_dict has to be called "
                "on all ranks first, and without it state_dict raises an error",
                0.9,
            )
