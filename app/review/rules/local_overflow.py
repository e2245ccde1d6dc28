"""DW458: gradients that a GradScaler checks for overflow before they are averaged over the ranks."""

import re
from collections.abc import Iterator

from ...training_script.model.reach import Reach, Run
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import in_function_of, violation_at
from .averaged_by_hand import by_hand

# What a script reduces over the ranks itself, so that all skip the step together.
FOUND_OVERFLOW = re.compile(r"found_inf")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the calls of ``unscale_`` between the backward pass and the reduction by hand."""
    reduces = [] if script.mentions(FOUND_OVERFLOW) else by_hand(run)
    checked: Reach | None = None
    for reach in run.reached if reduces else ():
        if reach.name == ".backward":
            checked = None
        elif reach.name == ".unscale_":
            checked = reach
        elif checked and any(reach is each for each in reduces) and checked.loops[:1] == reach.loops[:1]:
            line = reach.fact.site.line
            yield from violation_at(
                script,
                in_function_of(checked, [reach]),
                f"unscale_ looks for infinite gradients of this rank, and they are averaged later (line {line}): one "
                "rank skips the step, the others take it with what is not finite",
                0.8,
                related=[RelatedPlace(path=reach.fact.site.path, line=line, message="averaged here")],
            )
            return
