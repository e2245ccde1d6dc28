"""Draw the timeline as text: ranks down, time across, ranks with the same events in one row."""

from collections.abc import Sequence
from typing import NamedTuple

from ..text.units import count_text, rank_ranges
from .first_failure import first_error, first_error_text
from .types import Attempt, EventKind, Timeline, TimelineEvent, Track

LINE_WIDTH = 56
SHOWN_ROWS = 8
SIGNS: dict[EventKind, str] = {
    "step": "·",
    "note": "o",
    "restart": "o",
    "summary": "o",
    "exit": "#",
    "consequence": "!",
    "error": "X",
}
MEANING = {"X": "error", "!": "consequence", "o": "start, restart or summary", "·": "step", "#": "end"}
BY_SEVERITY = list(SIGNS)  # of two events in one cell the later one in this list is drawn


class ChartRow(NamedTuple):
    """Ranks with the same events: their names, the drawn line, a description, and one of the tracks."""

    name: str
    cells: str
    description: str
    highlighted: bool
    track: Track


def chart_rows(timeline: Timeline, attempt: Attempt, width: int) -> list[ChartRow]:
    """Return the rows of one attempt, the culprit first. ``width``: characters of the drawn line."""
    start, end = _span(attempt)
    groups: dict[object, list[Track]] = {}
    for track in attempt.tracks:
        groups.setdefault((_is_culprit(timeline, track), _shape(track, start, end)), []).append(track)
    drawn = [_row(tracks, highlighted, start, end, width) for (highlighted, _), tracks in groups.items()]  # type: ignore[misc]
    return sorted(drawn, key=lambda row: (not row.highlighted, row.track.host, row.track.rank or 0))


def visible_events(track: Track) -> list[TimelineEvent]:
    """Return the events of a track in order; of several events on one line the most severe."""
    by_line: dict[str, TimelineEvent] = {}
    for event in (track.first, *track.events, track.last):
        known = by_line.get(event.where)
        if known is None or BY_SEVERITY.index(event.kind) > BY_SEVERITY.index(known.kind):
            by_line[event.where] = event
    return sorted(by_line.values(), key=lambda event: event.line)


def chart_lines(timeline: Timeline) -> list[str]:
    """Return the last attempt as plain lines: the first failure, the ranks over time, and the legend."""
    attempt = timeline.attempts[-1]
    first = first_failure_sentence(timeline)
    lines = [first, f"  {first_failure_where(timeline)}"] if first else []
    if len(attempt.tracks) > 1:
        drawn = chart_rows(timeline, attempt, LINE_WIDTH)
        width = max(len(row.name) for row in drawn)
        lines += [
            f"{'>' if row.highlighted else ' '} {row.name:<{width}}  {row.cells.rstrip()}" for row in drawn[:SHOWN_ROWS]
        ]
        if len(drawn) > SHOWN_ROWS:
            lines.append(f"  and {count_text(len(drawn) - SHOWN_ROWS, 'more row')}")
        if marks := _legend(drawn[:SHOWN_ROWS]):
            lines.append(f"  {marks}")
    return lines


def _legend(rows: Sequence[ChartRow]) -> str:
    """Return the meaning of the marks that are drawn."""
    drawn = {cell for row in rows for cell in row.cells}
    return "   ".join(f"{sign} {meaning}" for sign, meaning in MEANING.items() if sign in drawn)


def first_failure_sentence(timeline: Timeline) -> str:
    """Return a sentence about the first failure: the first error of the first failing rank, else the rank that
    differs; "" if neither is known."""
    found = first_error(timeline)
    if found:
        return first_error_text(found)
    if not timeline.culprit_where:
        return ""
    if timeline.culprit is None:
        who = timeline.culprit_host or "The first error"
    else:
        who = f"Rank {timeline.culprit}" + (f" on {timeline.culprit_host}" if timeline.culprit_host else "")
    return f"{who} is the first that differs: {timeline.culprit_why}"


def first_failure_where(timeline: Timeline) -> str:
    """Return the line of the log at which the first failure begins, or ""."""
    found = first_error(timeline)
    return found.event.where if found else timeline.culprit_where


def _row(tracks: Sequence[Track], highlighted: bool, start: float, end: float, width: int) -> ChartRow:
    track = tracks[0]
    ranks = [each.rank for each in tracks if each.rank is not None]
    if len(ranks) < len(tracks):
        name = track.name if len(tracks) == 1 else count_text(len(tracks), "host")
    else:
        name = f"{'ranks' if len(ranks) > 1 else 'rank'} {rank_ranges(ranks)}"
        name += f" on {track.host}" if track.host and len({each.host for each in tracks}) == 1 else ""
    return ChartRow(name, _cells(track, start, end, width), _describe(track), highlighted, track)


def _cells(track: Track, start: float, end: float, width: int) -> str:
    """Draw a line from the rank's first event to its last, with its events on it."""

    def cell(event: TimelineEvent) -> int:
        return min(width - 1, round(_share(event, start, end) * (width - 1)))

    cells = [" "] * width
    for at in range(cell(track.first), cell(track.last) + 1):
        cells[at] = "─"
    for event in sorted(track.events, key=lambda event: BY_SEVERITY.index(event.kind)):
        cells[cell(event)] = SIGNS[event.kind]
    return "".join(cells)


def _describe(track: Track) -> str:
    """Return the first error of the track, else its first consequence, else its last line."""
    for kind in ("error", "consequence"):
        if event := next((event for event in track.events if event.kind == kind), None):
            return event.text
    return track.last.text


def _shape(track: Track, start: float, end: float) -> tuple[object, ...]:
    """Return the key by which tracks share a row: host, events, and last line (to a twentieth of the span)."""
    shown = tuple(dict.fromkeys(event.id for event in track.events if event.kind in ("error", "consequence", "exit")))
    return (track.host, shown, round(_share(track.last, start, end) * 20))


def _is_culprit(timeline: Timeline, track: Track) -> bool:
    if timeline.culprit is None and not timeline.culprit_host:
        return False
    return track.rank == timeline.culprit and track.host == (timeline.culprit_host or track.host)


def _span(attempt: Attempt) -> tuple[float, float]:
    """Return the first and last time of the attempt, or (0, 0) if an event has no time: positions are used then."""
    times = [event.time_s for track in attempt.tracks for event in (track.first, *track.events, track.last)]
    known = [time for time in times if time is not None]
    return (min(known), max(known)) if known and len(known) == len(times) else (0.0, 0.0)


def _share(event: TimelineEvent, start: float, end: float) -> float:
    if end > start and event.time_s is not None:
        return (event.time_s - start) / (end - start)
    return min(1.0, max(0.0, event.place))
