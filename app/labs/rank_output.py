"""The lines that a lab prints, by rank: torchrun says which rank printed each of them."""

import re
import shlex
from collections import defaultdict
from typing import NamedTuple

from ..launchers.arguments import parse_launcher
from ..logs.first_failure import first_error
from ..logs.types import Timeline

PREFIX = re.compile(r"^\[[A-Za-z_]+(\d+)\]:(?: ?\[rank\d+\]:)? ?")
TRACEBACK = "Traceback (most recent call last)"
LAUNCHER_LINE = re.compile(r"^[WE]\d{4} |^\*{10,}$|OMP_NUM_THREADS|^\[Gloo\]")


class PrintedLine(NamedTuple):
    """A line of output. ``rank`` is None for one that the launcher printed, or a script that no launcher started."""

    rank: int | None
    text: str


def printed_line(line: str) -> PrintedLine | None:
    """Return a line of output with its rank; None for a line that only the launcher or the library needs."""
    found = PREFIX.match(line)
    text = line[found.end() :] if found else line
    if not text.strip() or LAUNCHER_LINE.search(text):
        return None
    return PrintedLine(int(found[1]) if found else None, text)


class PrintedError(NamedTuple):
    """The first error of a job: the rank that printed it, and the first and last of the rank's lines, from 0."""

    rank: int
    first: int
    last: int


def first_printed_error(output: str, timeline: Timeline) -> PrintedError | None:
    """Return the first error of the first failing rank with its traceback; None if no rank has printed one."""
    found = first_error(timeline)
    until = output.splitlines()[: found.event.line] if found else []
    shown = printed_line(until[-1]) if until else None
    if shown is None or shown.rank is None:
        return None
    first = last = len(lines_by_rank("\n".join(until))[shown.rank]) - 1
    if TRACEBACK in shown.text:
        own = lines_by_rank(output)[shown.rank]
        last = next((at for at in range(first + 1, len(own)) if not own[at].startswith(" ")), first)
    return PrintedError(shown.rank, first, last)


def printer_name(rank: int | None, launch: str) -> str:
    """Return who printed a line of the job that ``launch`` started: a rank, its launcher, or Python without one."""
    if rank is not None:
        return f"rank {rank}"
    return "launcher" if parse_launcher(shlex.split(launch)) else "python"


def lines_by_rank(output: str) -> defaultdict[int | None, list[str]]:
    """Return the lines of an output by the rank that printed them."""
    found: defaultdict[int | None, list[str]] = defaultdict(list)
    for line in filter(None, map(printed_line, output.splitlines())):
        found[line.rank].append(line.text)
    return found
