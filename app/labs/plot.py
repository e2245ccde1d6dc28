"""The numbers that the runs of a lab print, as a table, as bars, or as a line plot."""

import re
from collections.abc import Mapping, Sequence

from ...knowledge.labs import LabPlot
from ..text.line_plot import Line, draw_lines
from ..text.terminal import align_columns
from .point import Point
from .rank_output import printed_line

BROKEN, REPAIRED, MEASURED = "broken", "repaired", "measured"  # the runs of a lab
MOST_ROWS = 16  # of a table
DIGITS = re.compile(r"\d+")
BAR_WIDTH = 40


def measured_points(plot: LabPlot, output: str) -> list[Point]:
    """Return the numbers in the output of a run, in the order in which they were printed."""
    pattern = re.compile(plot.pattern)
    place = "x" if "x" in pattern.groupindex else "label"
    points: list[Point] = []
    for line in output.splitlines():
        shown = printed_line(line)
        if shown and (found := pattern.search(shown.text)):
            named = found.groupdict()
            points.append(Point(named.get("series") or "", named[place], float(named["y"])))
    return points


def series_of(runs: Mapping[str, Sequence[Point]]) -> dict[str, list[Point]]:
    """Return the lines of a plot by name: the run, and the series where a run has several."""
    found: dict[str, list[Point]] = {}
    for run, points in runs.items():
        for point in points:
            found.setdefault(f"{run} {point.series}".strip(), []).append(point)
    return found


def is_line_plot(plot: LabPlot) -> bool:
    """Return whether the places are numbers, so that a line can be drawn."""
    return "x" in re.compile(plot.pattern).groupindex


def table_lines(plot: LabPlot, runs: Mapping[str, Sequence[Point]]) -> list[str]:
    """Return the numbers of all runs as text: a column for each line of a plot, or a bar for each label."""
    series = series_of(runs)
    if not series:
        return []
    if not is_line_plot(plot):
        return [plot.title, "", *_bars(plot, series)]
    values = {name: {point.place: point.value for point in points} for name, points in series.items()}
    places = sorted({point.place for points in series.values() for point in points}, key=float)
    step = -(-len(places) // MOST_ROWS)
    rows = [(plot.x, *values)]
    rows += [
        (place, *(_number(each[place]) if place in each else "" for each in values.values()))
        for place in places[::step]
    ]
    return [f"{plot.title} ({plot.y})", "", *align_columns(rows)]


def picture_lines(plot: LabPlot, runs: Mapping[str, Sequence[Point]], width: int, height: int) -> list[str]:
    """Return the plot of all runs as rows of characters; bars where the places are no numbers."""
    series = series_of(runs)
    if not is_line_plot(plot) or not series:
        return table_lines(plot, runs)
    lines = [Line(name, [(float(each.place), each.value) for each in points]) for name, points in series.items()]
    return [f"{plot.title} ({plot.y})", "", *draw_lines(lines, width, height - 2, plot.x, logarithmic=plot.log)]


def _bars(plot: LabPlot, series: Mapping[str, Sequence[Point]]) -> list[str]:
    longest = max((point.value for points in series.values() for point in points), default=0.0) or 1.0
    rows = [
        (point.place, name, "█" * max(1, round(BAR_WIDTH * point.value / longest)), _number(point.value))
        for name, points in series.items()
        for point in _by_number(points)
    ]
    several = len(series) > 1
    shown = [(place, *((name,) if several else ()), bar, f"{value} {plot.y}") for place, name, bar, value in rows]
    return align_columns(shown)


def _by_number(points: Sequence[Point]) -> Sequence[Point]:
    """Return points whose labels differ in numbers only, such as those of ranks, in the order of the numbers."""
    if len({DIGITS.sub("", point.place) for point in points}) > 1:
        return points
    return sorted(points, key=lambda point: [int(number) for number in DIGITS.findall(point.place)])


def _number(value: float) -> str:
    return f"{value:.4g}"
