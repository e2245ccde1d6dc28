"""The timeline chart: the culprit first and highlighted, equal ranks in one row, time to the right."""

from ddpwizard.app.logs import timeline_chart
from ddpwizard.app.logs.types import Attempt, EventKind, Timeline, TimelineEvent, Track

WIDTH = 41


def event(kind: EventKind, place: float, id_: str = "", time_s: float | None = None) -> TimelineEvent:
    line = round(place * 1000)
    return TimelineEvent(kind, time_s, line, f"/x.log:{line}", f"{kind} at {place}", id_ or kind, place=place)


def track(rank: int, *events: TimelineEvent, end: float = 1.0) -> Track:
    return Track(rank, "", event("note", 0.0), event("note", end), list(events))


FAILED = track(3, event("step", 0.2), event("error", 0.5, "log:one-rank-oom/0"), end=0.5)
WAITING = [track(rank, event("consequence", 0.9, "message:watchdog-timeout")) for rank in (0, 1, 2)]
TIMELINE = Timeline([Attempt(0, [*WAITING, FAILED])], culprit=3, culprit_where="/x.log:500", culprit_why="it failed")


def test_culprit_comes_first_and_the_others_share_a_row():
    first, rest = timeline_chart.chart_rows(TIMELINE, TIMELINE.attempts[0], WIDTH)
    assert (first.name, first.highlighted, first.description) == ("rank 3", True, "error at 0.5")
    assert (rest.name, rest.highlighted, rest.description) == ("ranks 0–2", False, "consequence at 0.9")


def test_events_are_at_their_position_and_the_line_ends_with_the_last_event():
    first, rest = timeline_chart.chart_rows(TIMELINE, TIMELINE.attempts[0], WIDTH)
    assert len(first.cells) == len(rest.cells) == WIDTH
    assert (first.cells[8], first.cells[20], first.cells[30]) == ("·", "X", " ")
    assert (rest.cells[36], rest.cells[40]) == ("!", "─")


def test_times_are_used_if_every_event_has_one():
    early = Track(0, "", event("note", 0.9, time_s=0.0), event("error", 0.99, time_s=10.0))
    late = Track(1, "", event("note", 0.0, time_s=90.0), event("note", 0.1, time_s=100.0))
    attempt = Attempt(0, [early, late])
    cells = {row.name: row.cells for row in timeline_chart.chart_rows(Timeline([attempt]), attempt, WIDTH)}
    assert cells["rank 0"].rstrip() == "─" * 5
    assert cells["rank 1"].startswith(" " * 36)


def test_most_severe_event_of_a_line_is_shown():
    same = [event("note", 0.5, "a"), event("error", 0.5, "b"), event("consequence", 0.5, "c")]
    assert [e.kind for e in timeline_chart.visible_events(track(0, *same))] == ["note", "error", "note"]


def test_chart_lines_have_the_first_failure_and_the_legend():
    lines = timeline_chart.chart_lines(TIMELINE)
    assert lines[:2] == ["Rank 3 failed first: error at 0.5", "  /x.log:500"]
    assert lines[2].startswith("> rank 3")
    assert any("! consequence" in line for line in lines)


def test_rows_beyond_the_limit_are_counted():
    tracks = [track(rank, event("error", rank / 100, f"exception:{rank}")) for rank in range(40)]
    lines = timeline_chart.chart_lines(Timeline([Attempt(0, tracks)]))
    assert len(lines) == timeline_chart.SHOWN_ROWS + 4
    assert "and 32 more rows" in lines[-2]


def test_no_row_is_highlighted_without_a_culprit():
    timeline = Timeline([Attempt(0, WAITING)])
    assert not any(row.highlighted for row in timeline_chart.chart_rows(timeline, timeline.attempts[0], WIDTH))
    assert timeline_chart.first_failure_sentence(timeline) == ""


def test_legend_explains_the_marks_that_are_drawn():
    lines = timeline_chart.chart_lines(TIMELINE)
    drawn = {cell for line in lines if "rank" in line for cell in line.split("rank", 1)[1] if cell in "X!o·#"}
    legend = next(line for line in lines if "error" in line and line.startswith("  X"))
    assert {part.strip()[0] for part in legend.split("   ") if part.strip()} == drawn
