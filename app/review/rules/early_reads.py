"""DW505: files that ranks read before the rank that writes them is done."""

from collections.abc import Iterator
from functools import partial

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import LOCAL, Key
from ...training_script.model.reach import ALL, Reach, Run, argument, same_on_ranks, together
from ...training_script.model.sequences import Event
from ...training_script.model.values import Value
from ..patches.shared_values import wait_for_writer
from ..rule_context import Script, Violation
from ..violations import violation_at

LOAD = "torch.load"


def check_read(script: Script, run: Run) -> Iterator[Violation]:
    """DW505: yield the reads of a file that one rank writes just before, without a wait in between."""
    written: list[tuple[Reach, Key]] = []
    for reach in run.reached if run.distributed else ():
        fact = reach.fact
        if isinstance(fact, Event):
            written = []  # the rank that writes comes there when it has written
        elif isinstance(fact, Noted) and (path := _written(fact)):
            if reach.ranks != ALL and not reach.unsure:
                written.append((reach, path.key))
        elif isinstance(fact, Noted) and (path := _read(fact)):
            early = [at for at, key in written if key is path.key and together(at, reach) and reach.ranks & ~at.ranks]
            asks = any(each.test.spread & LOCAL for each in reach.conditions)
            if early and same_on_ranks(path.key) and not (reach.unsure or reach.attempted or asks):
                line = early[-1].fact.site.line
                yield from violation_at(
                    script,
                    reach,
                    f"ranks read this file without waiting for the rank that writes it (line {line})",
                    0.8,
                    patch=partial(wait_for_writer, script, reach),
                )


def _written(fact: Noted) -> Value | None:
    """Return the path of a file that a call writes."""
    if fact.name in (".write_text", ".write_bytes"):
        return fact.owner
    if fact.name == "torch.save":
        return argument(fact, 1, "f")
    return argument(fact, 0, "file") if fact.name == "open" and _mode(fact)[:1] in ("w", "x") else None


def _read(fact: Noted) -> Value | None:
    """Return the path of a file that a call reads."""
    if fact.name in (".read_text", ".read_bytes"):
        return fact.owner
    if fact.name == LOAD:
        return argument(fact, 0, "f")
    return argument(fact, 0, "file") if fact.name == "open" and _mode(fact)[:1] == "r" else None


def _mode(opened: Noted) -> str:
    """Return the mode in which a file is opened, an empty text if it is not known."""
    given = argument(opened, 1, "mode")
    return "r" if given is None else str(given.key.value) if given.key.is_constant else ""
