"""DW412: arrays, archives and data stores on disk that every rank opens in a mode that empties them."""

from collections.abc import Iterator

from ...training_script.model.library_effects import OPENED
from ...training_script.model.reach import Run, argument, same_on_ranks
from ..rule_context import Script, Violation
from ..violations import violation_at
from .repeated_files import RACE, elsewhere


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the calls by which each rank empties one file."""
    if not run.distributed:
        return
    for reach, fact in run.of(*OPENED):
        place, name, place_of_mode = OPENED[fact.name]
        path, mode = argument(fact, place, name), argument(fact, place_of_mode, "mode")
        empties = mode is not None and mode.key.is_constant and str(mode.key.value).startswith("w")
        if path and empties and reach.by_all and same_on_ranks(path.key) and run.is_of_several(reach):
            yield from violation_at(
                script,
                reach,
                f"every rank empties this file{elsewhere(script, reach)}: what one has written there is lost when "
                "the next one opens it",
                0.75,
                cause=RACE,
            )
