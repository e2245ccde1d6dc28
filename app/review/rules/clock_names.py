"""DW507: directories and files whose names each rank makes of the time at which it asks for it."""

from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import CLOCK, Key, parts
from ...training_script.model.reach import ALL, Reach, Run
from ...training_script.model.sequences import Site
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .early_reads import made_path, read_path, written_path

OF_ALL = {
    "torch.distributed.checkpoint.save": "checkpoint_id",
    "torch.distributed.checkpoint.async_save": "checkpoint_id",
}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the times of which ranks make the name of a place that one of them makes and others use."""
    made: dict[Key, Reach] = {}
    for reach in run.reached if run.distributed else ():
        fact = reach.fact
        if not isinstance(fact, Noted) or reach.unsure or reach.attempted:
            continue
        shared = fact.named.get(OF_ALL.get(fact.name, ""))
        path = shared or made_path(fact) or written_path(fact) or read_path(fact)
        for clock in (part for part in parts(path.key) if part.op == CLOCK) if path else ():
            if shared and reach.ranks == ALL:
                yield from _violation(script, reach, clock, None)
            elif reach.ranks != ALL:
                made.setdefault(clock, reach)
            elif clock in made:
                yield from _violation(script, reach, clock, made.pop(clock))


def _violation(script: Script, reach: Reach, clock: Key, by: Reach | None) -> Iterator[Violation]:
    path, line, column, *_ = clock.args
    used = reach.fact.site
    if isinstance(reach.fact, Noted) and path == script.source.path:
        reach = reach._replace(fact=reach.fact._replace(site=Site(path, line, column, line)), calls=())
    makes = f"one rank makes the directory (line {by.fact.site.line})" if by else "they save one checkpoint"
    yield from violation_at(
        script,
        reach,
        f"each rank asks for the time itself: where a second begins in between, the names differ, and {makes} under "
        f"another one than the others use (line {used.line})",
        0.75,
        related=[RelatedPlace(path=used.path, line=used.line, message="used here")],
    )
