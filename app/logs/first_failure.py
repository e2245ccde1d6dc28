"""Find the rank that failed first: by its own error, the launcher's summary, or its absence from a collective."""

import re
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from .timeline import ENDED_BY_LAUNCHER, own_failures
from .tracebacks import LIBRARY
from .types import LOCATION_MARK, Attempt, Timeline, TimelineEvent, Track

SEPARATORS = re.compile(r"[/\\]")


class FirstError(msgspec.Struct, frozen=True):
    """The first error of a job: its attempt, its event, and the ranks that show it (none: the log does not name them).

    ``before_others``: it is known that no other rank of the log failed before.
    """

    attempt: Attempt
    event: TimelineEvent
    tracks: list[Track]
    before_others: bool = False


def first_error(timeline: Timeline) -> FirstError | None:
    """Return the first error of the first failing rank, or None if no rank shows an error of its own."""
    for attempt in timeline.attempts:
        failing = [(track, found[0]) for track in attempt.tracks if (found := own_failures(track))]
        if common := common_error(attempt.tracks):
            return FirstError(attempt, common[0], attempt.tracks)
        if failing:
            named = [item for item in failing if _is_culprit(timeline, item[0])]
            track, event = named[0] if named else earliest(failing)
            known = bool(named) or timeline.ordered
            return FirstError(attempt, event, [track], before_others=known and len(attempt.tracks) > 1)
        if found := [event for event in attempt.shared if is_exception(event)]:
            return FirstError(attempt, found[0], [])
    return None


def first_error_text(found: FirstError) -> str:
    """Return the first error as a sentence: the rank, the error, and its line."""
    return f"{_who_failed(found)}: {_short_location(found.event)}"


def _who_failed(found: FirstError) -> str:
    if not found.tracks:
        return "The first error"
    if len(found.tracks) > 1:
        who = "Both ranks" if len(found.tracks) == 2 else f"All {len(found.tracks)} ranks"
        return f"{who} failed with the same error"
    track = found.tracks[0]
    name = track.name.replace("rank", "Rank", 1) if track.rank is not None else track.name  # a host keeps its name
    return f"{name} failed{' first' if found.before_others else ''}"


def _short_location(event: TimelineEvent) -> str:
    """Return the text of an event; of the user's file that raised an exception only the name."""
    error, location = event.text.partition(LOCATION_MARK)[0], script_location(event)
    return f"{error} at {SEPARATORS.split(location)[-1]}" if location else error


def script_location(event: TimelineEvent) -> str:
    """Return where an exception was raised as ``path:line in function``; "" if no frame is in the user's code."""
    location = event.values.get("location", "")
    return "" if LIBRARY.search(location.rpartition(":")[0]) else location


def is_exception(event: TimelineEvent) -> bool:
    """Return whether an event is a Python exception that is no consequence of another failure."""
    return event.kind == "error" and event.id.startswith("exception:")


def _is_culprit(timeline: Timeline, track: Track) -> bool:
    return timeline.culprit_where != "" and (track.rank, track.host) == (timeline.culprit, timeline.culprit_host)


def earliest(failing: Sequence[tuple[Track, TimelineEvent]]) -> tuple[Track, TimelineEvent]:
    timed = all(event.time_s is not None for _, event in failing)
    return min(failing, key=lambda item: item[1].time_s or 0.0 if timed else item[1].place)


def mark_first_failure(timeline: Timeline) -> Timeline:
    """Return the timeline with the rank that failed first, if it can be determined."""
    for attempt in timeline.attempts:
        found = _of_errors(attempt, timeline.ordered)
        if not found and not any(own_failures(track) for track in attempt.tracks):
            found = _of_waiting(attempt) or _of_summary(attempt)
        if found:
            track, event, why = found
            return msgspec.structs.replace(
                timeline,
                culprit=track.rank,
                culprit_host=track.host,
                culprit_where=event.where,
                culprit_why=why,
            )
        if any(own_failures(track) for track in attempt.tracks):
            break  # the failure is not that of a single rank
    return timeline


def common_error(tracks: list[Track]) -> list[TimelineEvent]:
    """Return the error that all of several tracks show, at its first occurrence in each; [] if they differ."""
    if len(tracks) < 2:
        return []
    by_track = [{error_key(event): event for event in reversed(own_failures(track))} for track in tracks]
    common = set(by_track[0]).intersection(*by_track[1:])
    if not common:
        return []
    first = min(common, key=lambda key: by_track[0][key].place)
    return [events[first] for events in by_track]


def error_key(event: TimelineEvent) -> str:
    """Return the key by which errors of two ranks are the same."""
    return f"{event.id} {event.values.get('message', '')}"


def _of_errors(attempt: Attempt, ordered: bool) -> tuple[Track, TimelineEvent, str] | None:
    failed = [(track, found[0]) for track in attempt.tracks if (found := own_failures(track))]
    if len(attempt.tracks) < 2 or not failed or common_error(attempt.tracks):
        return None
    if len(failed) == 1:
        return *failed[0], "the only rank with an error of its own"
    if not ordered:
        return None
    return *earliest(failed), "the first rank with an error of its own"


def _of_summary(attempt: Attempt) -> tuple[Track, TimelineEvent, str] | None:
    unmarked = [error_key(event) for event in attempt.shared if event.kind == "error" and "message" in event.values]
    if len(unmarked) > len(set(unmarked)):
        return None  # several ranks show the same error: who was first is not known
    for track in attempt.tracks:
        if any(event.kind == "consequence" for event in track.events):
            continue  # it was the first to notice, not the first to fail
        for event in track.events:
            if event.kind == "summary" and int(event.values["code"]) not in ENDED_BY_LAUNCHER:
                return track, event, "the launcher reports it as the first failure"
    return None


def timed_out_collectives(attempt: Attempt) -> dict[str, dict[str, tuple[Track, TimelineEvent]]]:
    """Return by process group the collective in which each track first timed out or lost its connection."""
    found: dict[str, dict[str, tuple[Track, TimelineEvent]]] = defaultdict(dict)
    for track in attempt.tracks:
        for event in track.events:
            if event.id == "mark:watchdog":
                found[f"group {event.values.get('pg', '')}"].setdefault(track.name, (track, event))
            elif event.kind == "consequence" and "collective" in event.values:
                found["traceback"].setdefault(track.name, (track, event))
    return found


def awaited_collective(event: TimelineEvent) -> tuple[str, str]:
    """Return the collective in which a rank waited: its name and its sequence number ("" if not known)."""
    return event.values.get("op", "") or event.values.get("collective", ""), event.values.get("seq", "")


def _of_waiting(attempt: Attempt) -> tuple[Track, TimelineEvent, str] | None:
    """Find the one rank that waited elsewhere, or not at all, while all others waited in one collective."""
    for waiting in timed_out_collectives(attempt).values():
        by_place: dict[tuple[str, ...], list[tuple[Track, TimelineEvent]]] = defaultdict(list)
        for track, event in waiting.values():
            by_place[(*awaited_collective(event), event.values.get("location", ""))].append((track, event))
        alone = [group[0] for group in by_place.values() if len(group) == 1]
        if len(by_place) == 2 and len(alone) == 1 and len(waiting) > 2:
            return *alone[0], "no other rank waits at this place"
        missing = [track for track in attempt.tracks if track.name not in waiting]
        if len(by_place) == 1 and len(missing) == 1 and len(waiting) >= 2 and missing[0].rank is not None:
            return missing[0], missing[0].last, "the only rank that did not wait for the others"
    return None
