"""DW449: loops that ask a loader for the batches of all ranks, of which each rank has its part."""

from collections.abc import Iterator

from ...training_script.model.reach import Run
from ..rule_context import Script, Violation
from ..violations import violation_at
from .schedules import counts_all, lengths_of_all, shared_loaders


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the calls of ``next`` in a loop that the number of samples of all ranks decides."""
    loaders, lengths = shared_loaders(run), lengths_of_all(run)
    for reach, fact in run.of("next") if loaders else ():
        if len(fact.values) != 1 or fact.values[0].key not in loaders or reach.attempted or not reach.several:
            continue
        counted = next((loop for loop in reach.loops if counts_all(loop.amount, lengths)), None)
        if counted is not None:
            yield from violation_at(
                script,
                reach,
                f"the loop (line {counted.site.line}) has as many rounds as all samples give batches, and this loader "
                "has those of one rank: next raises StopIteration",
                0.85,
            )
