"""Recognise a job that was stopped from outside: its launcher received a signal before anything failed."""

from collections.abc import Iterator

from ..evidence import STOPPED, Evidence
from .timeline import all_events
from .types import Attempt, TimelineEvent

STOPPED_BY = ("exception:KeyboardInterrupt", "exception:SignalException")
SIGNALLED = (*STOPPED_BY, "message:agent-got-signal", "message:agent-death-signal")
FOLLOWS = (*SIGNALLED, "message:agent-sigterm")
FAILURES = ("error", "consequence", "exit", "summary")


def stop_findings(attempt: Attempt) -> Iterator[Evidence]:
    """Yield the finding ``log.stopped-from-outside`` if a signal to the launcher is the first failure of an attempt,
    and no rank shows an error of its own."""
    failures = [event for _, event in all_events(attempt) if event.kind in FAILURES]
    signals = [event for event in failures if event.id in SIGNALLED]
    if not signals:
        return
    first = min(signals, key=_order)
    lines = {event.where for event in failures if event.id in FOLLOWS}
    others = [event for event in failures if event.where not in lines]
    if all(event.kind != "error" and _order(event) > _order(first) for event in others):
        yield Evidence(STOPPED, "log", first.text, where=first.where)


def _order(event: TimelineEvent) -> tuple[float, float]:
    return event.time_s or 0.0, event.place
