"""The facts of a log's timeline that fixes name: the first error, the ranks, the memory of a GPU."""

from collections.abc import Iterator
from pathlib import Path

from ..logs.first_failure import script_location
from ..logs.launcher_stop import STOPPED_BY
from ..logs.timeline import all_events
from ..logs.types import Timeline, TimelineEvent, Track
from ..system.paths import relative_to_cwd
from ..text.units import rank_ranges

OF_A_KERNEL = "CUDA error: "


def is_late(error: str) -> bool:
    """Return whether CUDA reports this error after the line that caused it."""
    return OF_A_KERNEL in error


def first_error(timeline: Timeline | None) -> tuple[Track | None, TimelineEvent | None]:
    """Return the first error with a line of code, and the rank that it is of: that of the culprit, if there is one.

    Where the culprit is known, the consequences of its end on other ranks are none.
    """
    if timeline is None:
        return None, None
    found: list[tuple[bool, float, Track | None, TimelineEvent]] = []
    for attempt in timeline.attempts[-1:]:
        for track, event in all_events(attempt):
            if event.kind not in ("error", "consequence") or event.id in STOPPED_BY:
                continue
            is_culprit = track is not None and timeline.culprit is not None and track.rank == timeline.culprit
            if event.kind == "consequence" and timeline.culprit is not None and not is_culprit:
                continue
            if event.values.get("location"):
                found.append((not is_culprit, event.place, track, event))
    if not found:
        return None, None
    _, _, track, event = min(found, key=lambda each: (each[0], each[3].kind != "error", each[1]))
    return track, event


def gpu_memory_bytes(timeline: Timeline | None) -> int:
    """Return the memory of the GPU in the first out-of-memory message of a log, or 0."""
    attempts = timeline.attempts if timeline else []
    events = (event for attempt in attempts for _, event in all_events(attempt))
    totals = (event.values.get("total", "") for event in events if event.id == "mark:oom")
    return next((int(total) for total in totals if total.isdigit()), 0)


def named_scripts(timeline: Timeline | None) -> Iterator[str]:
    """Yield the existing scripts that a launcher names in a log, by a path from the directory of the log or ours."""
    for attempt in timeline.attempts[-1:] if timeline else []:
        for _, event in all_events(attempt):
            if name := event.values.get("script", ""):
                directories = (Path(event.where.rpartition(":")[0]).parent, Path())
                yield from (str(path) for path in (each / name for each in directories) if path.is_file())


def named_hosts(timeline: Timeline) -> set[str]:
    """Return the hosts that a log names as those of its ranks; a host in the path of the log is none of them."""
    found: set[str] = set()
    for attempt in timeline.attempts:
        for _, event in all_events(attempt):
            found.add(event.values.get("host", ""))
        found |= {track.host for track in attempt.tracks if track.host not in track.first.where}
    return found - {""}


def log_values(timeline: Timeline | None) -> Iterator[tuple[str, str]]:
    """Yield the named values that a timeline determines; some may be empty."""
    if timeline is None:
        return
    track, event = first_error(timeline)
    tracks = timeline.attempts[-1].tracks
    ranks = {track.rank for track in tracks if track.rank is not None}
    yield "ranks", str(max(ranks) + 1) if ranks else ""
    yield "ranks_per_node", str(max(ranks) + 1) if ranks and len({track.host for track in tracks}) <= 1 else ""
    if timeline.culprit is not None:
        yield "rank", str(timeline.culprit)
        yield "other_ranks", rank_ranges(sorted(ranks - {timeline.culprit}))
    elif track and track.rank is not None:
        yield "rank", str(track.rank)
    yield "host", timeline.culprit_host or (track.host if track else "")
    if event:
        yield "error", event.text.partition("   at ")[0]
        where = script_location(event).partition(" in ")[0]
        yield "where", relative_to_cwd(where) if where else ""
