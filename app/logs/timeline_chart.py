"""The timeline as rows of characters: ranks down, time across, ranks that show the same in one row."""

from collections.abc import Sequence
from typing import NamedTuple

from ..text.units import count_text, rank_ranges
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
LOUDEST = list(SIGNS)  # where two events fall on one cell the later of this list is drawn


class ChartRow(NamedTuple):
    """Ranks that show the same: their names, the drawn line, what they show in words, and one of them."""

    name: str
    cells: str
    said: str
    lit: bool
    track: Track


def chart_rows(timeline: Timeline, attempt: Attempt, width: int) -> list[ChartRow]:
    """The rows of one attempt, the culprit first; ``width`` is that of the drawn line, in characters."""
    start, end = _span(attempt)
    groups: dict[object, list[Track]] = {}
    for track in attempt.tracks:
        groups.setdefault((_is_culprit(timeline, track), _shape(track, start, end)), []).append(track)
    drawn = [_row(tracks, lit, start, end, width) for (lit, _), tracks in groups.items()]  # type: ignore[misc]
    return sorted(drawn, key=lambda row: (not row.lit, row.track.host, row.track.rank or 0))


def visible_events(track: Track) -> list[TimelineEvent]:
    """What a track shows, in order: of the events on one line the one that says most."""
    told: dict[str, TimelineEvent] = {}
    for event in (track.first, *track.events, track.last):
        known = told.get(event.where)
        if known is None or LOUDEST.index(event.kind) > LOUDEST.index(known.kind):
            told[event.where] = event
    return sorted(told.values(), key=lambda event: event.line)


def chart_lines(timeline: Timeline) -> list[str]:
    """The last attempt as plain lines: who was first to differ, the ranks over time, what the signs mean."""
    attempt = timeline.attempts[-1]
    told: list[str] = []
    if len(attempt.tracks) > 1:
        drawn = chart_rows(timeline, attempt, LINE_WIDTH)
        width = max(len(row.name) for row in drawn)
        told = [f"{'>' if row.lit else ' '} {row.name:<{width}}  {row.cells.rstrip()}" for row in drawn[:SHOWN_ROWS]]
        if len(drawn) > SHOWN_ROWS:
            told.append(f"  and {count_text(len(drawn) - SHOWN_ROWS, 'more row')}")
        told.append("  X error   ! what followed from another rank's   · step   # end")
    first = first_failure_sentence(timeline)
    return [*told, *([first, f"  {timeline.culprit_where}"] if first else [])]


def first_failure_sentence(timeline: Timeline) -> str:
    """Who showed something first, in one sentence; empty where that cannot be told."""
    if not timeline.culprit_where:
        return ""
    if timeline.culprit is None:
        who = timeline.culprit_host or "The first error"
    else:
        who = f"Rank {timeline.culprit}" + (f" on {timeline.culprit_host}" if timeline.culprit_host else "")
    return f"{who} is the first that differs: {timeline.culprit_why}"


def _row(tracks: Sequence[Track], lit: bool, start: float, end: float, width: int) -> ChartRow:
    track = tracks[0]
    ranks = [each.rank for each in tracks if each.rank is not None]
    if len(ranks) < len(tracks):
        name = track.name if len(tracks) == 1 else count_text(len(tracks), "host")
    else:
        name = f"{'ranks' if len(ranks) > 1 else 'rank'} {rank_ranges(ranks)}"
        name += f" on {track.host}" if track.host and len({each.host for each in tracks}) == 1 else ""
    return ChartRow(name, _cells(track, start, end, width), _said(track), lit, track)


def _cells(track: Track, start: float, end: float, width: int) -> str:
    """A line from the rank's first sign to its last, its events on it."""

    def cell(event: TimelineEvent) -> int:
        return min(width - 1, round(_share(event, start, end) * (width - 1)))

    cells = [" "] * width
    for at in range(cell(track.first), cell(track.last) + 1):
        cells[at] = "─"
    for event in sorted(track.events, key=lambda event: LOUDEST.index(event.kind)):
        cells[cell(event)] = SIGNS[event.kind]
    return "".join(cells)


def _said(track: Track) -> str:
    """The first error of the track, else its first consequence, else its last line."""
    for kind in ("error", "consequence"):
        if event := next((event for event in track.events if event.kind == kind), None):
            return event.text
    return track.last.text


def _shape(track: Track, start: float, end: float) -> tuple[object, ...]:
    """What makes two ranks look the same: their host, what they show, and how long they speak, to a twentieth."""
    shown = tuple(dict.fromkeys(event.id for event in track.events if event.kind in ("error", "consequence", "exit")))
    return (track.host, shown, round(_share(track.last, start, end) * 20))


def _is_culprit(timeline: Timeline, track: Track) -> bool:
    if timeline.culprit is None and not timeline.culprit_host:
        return False
    return track.rank == timeline.culprit and track.host == (timeline.culprit_host or track.host)


def _span(attempt: Attempt) -> tuple[float, float]:
    """The first and last time of the attempt; (0, 0) where not every event has one: places are used then."""
    times = [event.time_s for track in attempt.tracks for event in (track.first, *track.events, track.last)]
    known = [time for time in times if time is not None]
    return (min(known), max(known)) if known and len(known) == len(times) else (0.0, 0.0)


def _share(event: TimelineEvent, start: float, end: float) -> float:
    if end > start and event.time_s is not None:
        return (event.time_s - start) / (end - start)
    return min(1.0, max(0.0, event.place))
