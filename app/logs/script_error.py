"""Recognise an error of the training script: an exception of a rank that no cause of distributed training explains."""

from collections.abc import Iterator

from ..evidence import RAISED, SCRIPT_ERROR, Evidence
from .exception_types import GENERAL, NOT_OF_A_SCRIPT
from .first_failure import SEPARATORS, FirstError, first_error, first_error_text, is_exception, script_location
from .timeline import all_events
from .types import Attempt, Timeline, TimelineEvent

RAISED_IN = "raised_in"  # key of an exception's values
LIBRARY_STRENGTH = 0.8  # of an exception that a library raised for a call of the script …
GENERAL_STRENGTH = 0.6  # … if its type is one that libraries raise for any reason


def script_error_findings(timeline: Timeline, *, of_job: bool = False) -> Iterator[Evidence]:
    """Yield the finding ``log.script-error`` if the first error of a job of several ranks is one of its script.

    ``of_job``: the log is known to be that of such a job.
    """
    found = first_error(timeline)
    if found is None or not is_exception(found.event) or not (of_job or _started_by_launcher(found.attempt)):
        return
    strength = _confidence(found.event)
    if strength and not _explained(found):
        track = found.tracks[0] if len(found.tracks) == 1 else None
        yield Evidence(
            SCRIPT_ERROR,
            "log",
            first_error_text(found),
            where=found.event.where,
            rank=track.rank if track else None,
            host=track.host if track else "",
            strength=strength,
            values=_origin_of(found.event),
        )


def _origin_of(event: TimelineEvent) -> dict[str, str]:
    """Return the type of an exception and the name of the script's file that raised it."""
    path = script_location(event).rpartition(":")[0]
    return {RAISED: event.id.removeprefix("exception:")} | ({"file": SEPARATORS.split(path)[-1]} if path else {})


def _started_by_launcher(attempt: Attempt) -> bool:
    """Return whether the log shows several ranks, or a launcher."""
    return len(attempt.tracks) > 1 or any(
        event.kind in ("exit", "summary", "restart") or event.id.startswith("message:agent-")
        for _, event in all_events(attempt)
    )


def _confidence(event: TimelineEvent) -> float:
    """Return how surely an exception is one of the script itself; 0.0 if its type points elsewhere."""
    name = event.id.removeprefix("exception:")
    if name.startswith(NOT_OF_A_SCRIPT) or "collective" in event.values or not event.values.get("location"):
        return 0.0
    raised_in = event.values.get(RAISED_IN)
    if raised_in == "script":
        return 1.0
    if raised_in == "check":
        return 0.0
    return GENERAL_STRENGTH if name in GENERAL else LIBRARY_STRENGTH


def _explained(found: FirstError) -> bool:
    """Return whether the rank shows a message that names a cause of the knowledge base."""
    events = found.tracks[0].events if found.tracks else found.attempt.shared
    return any(event.kind == "error" and event.id.startswith("log:") for event in events)
