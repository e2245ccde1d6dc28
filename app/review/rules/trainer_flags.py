"""DW510: flags of a trainer that end, or change, the training of one rank only."""

from collections.abc import Iterator

from ...training_script.model.noted_calls import FLAG_OF_SOME
from ...training_script.model.reach import ALL, Run
from ..rule_context import Script, Violation
from ..violations import violation_at


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the flags that a callback sets on some ranks only, and by which a trainer goes on on each of them."""
    for reach, fact in run.of(f".{FLAG_OF_SOME}"):
        if reach.ranks == ALL or reach.unsure or reach.attempted:
            continue
        (flag,) = fact.named
        yield from violation_at(
            script,
            reach,
            f"only some ranks set `{flag}`: the trainer goes by it on each rank for itself, so that the others go on "
            "and wait for these in the next collective",
            0.85,
            branch=next((each.site.line for each in reach.own_conditions), None),
        )
