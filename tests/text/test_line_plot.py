"""Line plots: each point has its place, each line its mark."""

import pytest
from ddpwizard.app.text.line_plot import MARKS, Line, draw_lines


def cells(drawn: list[str]) -> list[str]:
    """Return the rows between the axes."""
    return [row.partition("│")[2] for row in drawn if "│" in row]


def test_points_are_at_their_place():
    drawn = draw_lines([Line("loss", [(0, 0.0), (10, 8.0)])], 60, 13, "step")
    rows = cells(drawn)
    assert rows[0].rindex("x") == len(drawn[-3]) - drawn[-3].index("└") - 2  # the largest value at the right end
    assert rows[-1].index("x") == 0
    assert drawn[0].startswith("8 │") and drawn[-4].startswith("0 │")
    assert all(len(row) <= 60 for row in drawn) and len(drawn) <= 13
    assert drawn[-2].split() == ["0", "step", "10"] and drawn[-1].strip() == "x loss"


def test_two_lines_have_two_marks_and_the_first_is_on_top():
    drawn = draw_lines([Line("broken", [(0, 1), (4, 1)]), Line("repaired", [(0, 1), (2, 1), (4, 4)])], 60, 12, "epoch")
    rows = "\n".join(cells(drawn))
    assert {mark for mark in MARKS if mark in rows} == {"x", "o"}
    assert cells(drawn)[0].rstrip()[-1] == "o"
    low = next(row for row in cells(drawn) if "x" in row)
    assert low.strip("x") == ""


@pytest.mark.parametrize("logarithmic", [True, False])
def test_values_that_are_not_finite_are_left_out(logarithmic: bool):
    points = [(0, 1.0), (1, 10.0), (2, float("inf")), (3, float("nan"))]
    drawn = draw_lines([Line("loss", points)], 60, 12, "epoch", logarithmic=logarithmic)
    assert drawn[-2].split() == ["0", "epoch", "1"]
    assert draw_lines([Line("loss", [(0, float("nan"))])], 60, 12, "epoch") == ["no numbers to draw"]


def test_a_logarithmic_axis_has_equal_ratios_in_equal_parts():
    drawn = draw_lines([Line("loss", [(0, 1.0), (1, 100.0), (2, 10_000.0)])], 40, 14, "epoch", logarithmic=True)
    rows = cells(drawn)
    places = [number for number, row in enumerate(rows) if row[:1] == "x" or row.rstrip().endswith("x")]
    assert places[0] == 0 and places[-1] == len(rows) - 1
    middle = len(rows) // 2
    assert drawn[middle].lstrip().startswith("100 ") and "x" in rows[middle]


def test_one_value_at_one_place_is_drawn():
    assert "x" in "".join(cells(draw_lines([Line("loss", [(3, 5.0)])], 40, 10, "step")))
