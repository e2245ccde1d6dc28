"""The error that a rank has printed, from its log and from its last lines of output."""

import re
from typing import NamedTuple

from ..logs.types import LOCATION_MARK
from .job_logs.per_rank import NOTICED
from .types import Observation

# The name of an exception with its message, as a traceback, ``print(error)`` or ``repr(error)`` has it.
NAMED = re.compile(r"\b((?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Iteration))\b(?:\(|: ?)?([^\n]*)")
MESSAGE_CHARACTERS = 160


class PrintedError(NamedTuple):
    """An error in the words of the rank. ``where`` (path:line) is "" if the output does not have it."""

    exception: str
    message: str
    where: str = ""


def printed_error(observed: Observation, rank: int) -> PrintedError | None:
    """Return the rank's own error: its traceback in the log, else the last line of its output that names an exception.

    None if it has printed none, or only one that follows from the failure of another rank.
    """
    seen = next((each for each in observed.seen if each.process.rank == rank), None)
    file = seen.output_from if seen else ""
    facts = observed.log.facts if observed.log else []
    own = [event for event in facts if event.rank == rank or (file and event.where.rpartition(":")[0] == file)]
    tracebacks = [event for event in own if event.kind == "traceback"]
    if tracebacks and "follows" not in tracebacks[-1].values:
        event = tracebacks[-1]
        text = event.text.partition(LOCATION_MARK)[0].strip()
        message = text.partition(event.values["exception"])[2]
        where = event.values["location"].partition(" in ")[0]
        return PrintedError(_last(event.values["exception"]), _shown(message), where)
    if tracebacks or any(event.kind in NOTICED for event in own):
        return None
    for line in reversed(seen.output if seen else []):
        if found := NAMED.search(line):
            return PrintedError(_last(found[1]), _shown(found[2].partition("\\n")[0]))
    return None


def _shown(message: str) -> str:
    text = message.strip(": ")
    if text[:1] in ("'", '"'):  # as ``repr(error)`` prints it
        text = text[1:].rpartition(text[0])[0] or text[1:]
    return text[:MESSAGE_CHARACTERS].rstrip(". ")


def _last(dotted: str) -> str:
    return dotted.rpartition(".")[2]
