"""A line plot in characters: one mark for each line, axes with numbers, a legend. ASCII except for the axes."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

MARKS = "xo+*#%@&"
LEAST_WIDTH, LEAST_HEIGHT = 24, 6


class Line(NamedTuple):
    """A line of the plot and its points. Values that are not finite are left out."""

    name: str
    points: Sequence[tuple[float, float]]


def draw_lines(lines: Sequence[Line], width: int, height: int, x_name: str, *, logarithmic: bool = False) -> list[str]:
    """Return the plot as at most ``height`` rows of at most ``width`` columns. ``logarithmic``: the vertical axis."""
    finite = [
        Line(line.name, [(x, y) for x, y in line.points if math.isfinite(y) and (y > 0 or not logarithmic)])
        for line in lines
    ]
    values = [y for line in finite for _, y in line.points]
    if not values:
        return ["no numbers to draw"]
    places = [x for line in finite for x, _ in line.points]
    least, most = min(0.0, *values) if not logarithmic else min(values), max(values)
    labels = [_number(most), _number(_middle(least, most, logarithmic)), _number(least)]
    margin = max(map(len, labels)) + 2
    columns, rows = max(LEAST_WIDTH, width) - margin, max(LEAST_HEIGHT, height) - 3
    cells = [[" "] * columns for _ in range(rows)]
    for number, line in reversed([*enumerate(finite)]):  # the first line is drawn on top
        for x, y in _dense(line.points, min(places), max(places), columns):
            row = _place(y, least, most, rows, logarithmic=logarithmic)
            cells[rows - 1 - row][_place(x, min(places), max(places), columns)] = MARKS[number % len(MARKS)]
    named = {0: labels[0], rows // 2: labels[1], rows - 1: labels[2]}
    drawn = [f"{named.get(row, ''):>{margin - 2}} │{''.join(each).rstrip()}" for row, each in enumerate(cells)]
    first, last = _number(min(places)), _number(max(places))
    below = f"{first}{x_name:^{max(1, columns - len(first) - len(last))}}{last}"
    legend = "   ".join(f"{MARKS[number % len(MARKS)]} {line.name}" for number, line in enumerate(lines))
    return [*drawn, f"{'':>{margin - 2}} └{'─' * columns}", " " * margin + below, " " * margin + legend]


def _dense(points: Sequence[tuple[float, float]], low: float, high: float, columns: int) -> list[tuple[float, float]]:
    """Return the points with others between them, so that each column on the way has one."""
    found = list(points)
    step = (high - low) / max(1, columns - 1)
    for (x, y), (next_x, next_y) in pairwise(points):
        count = 1 + int(abs(next_x - x) / step) if step else 0
        found += [(x + (next_x - x) * part / count, y + (next_y - y) * part / count) for part in range(1, count)]
    return found


def _place(value: float, low: float, high: float, cells: int, *, logarithmic: bool = False) -> int:
    if logarithmic:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return round((value - low) / (high - low) * (cells - 1)) if high > low else 0


def _middle(low: float, high: float, logarithmic: bool) -> float:
    return math.sqrt(low * high) if logarithmic else (low + high) / 2


def _number(value: float) -> str:
    return f"{value:.3g}"
