"""DW429: batches of another size on each rank, of whose mean losses DDP averages the gradients."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.lengths import length
from ...training_script.model.members import PAIR
from ...training_script.model.noted_calls import WRAPPED_FORWARD
from ...training_script.model.reach import Run
from ..rule_context import Script, Violation
from ..violations import violation_at

LAST_SAMPLE = 1  # by so much the parts of ranks differ that share out what their number does not divide
# A loss that is a sum, or is weighed by the size of its batch.
WEIGHS = re.compile(
    r"reduction\s*=|\.sum\(\)|all_reduce|\*=?\s*(?:len\(|\w*(?:size|world|weight|scale))", re.IGNORECASE
)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the forward passes of DDP with surely larger batches on one of two ranks, and a loss that ignores it."""
    for reach, fact in run.of(WRAPPED_FORWARD):
        given = fact.values[0].key if fact.values else None
        if given is None or not reach.loops or not reach.several or not script.is_here(reach):
            continue
        first, second = (length(given, rank) for rank in PAIR)
        if first is None or second is None or abs(first - second) <= LAST_SAMPLE:
            continue
        around = script.names.enclosing_function(fact.node) or script.source.tree
        text = ast.unparse(around)
        if ".backward(" in text and not WEIGHS.search(text):
            yield from violation_at(
                script,
                reach,
                f"of two ranks one computes with {first} samples, the other with {second}, and DDP averages the "
                "gradients of their means: the samples of the smaller batch count for more",
                0.75,
            )
            return
