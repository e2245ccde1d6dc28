"""Numbers that labs print: read from the output of ranks, shown as a table, as bars and as lines."""

from ddpwizard.app.labs.plot import BROKEN, REPAIRED, measured_points, picture_lines, table_lines
from ddpwizard.app.text.ascii import to_ascii
from ddpwizard.knowledge.labs import LabPlot
from ddpwizard.screens.shell.theme import to_ascii as cells_to_ascii

LOSS = LabPlot(title="Loss", x="epoch", y="loss", pattern=r"epoch (?P<x>\d+): loss (?P<y>\S+)")
RANKS = LabPlot(title="Time", x="step", y="s", pattern=r"(?P<series>rank \d): step (?P<x>\d+), (?P<y>[\d.]+) s")
BARS = LabPlot(title="Read", y="samples", pattern=r"(?P<label>rank \d+) has read (?P<y>\d+)")
PRINTED = """\
W1126 15:35:07.608000 25553 torch/distributed/run.py:803] *****
[default0]:epoch 0: loss 2.5
[default0]:epoch 1: loss 1.25
[default1]:[rank1]: epoch 1: not a loss
"""


def test_points_are_read_without_the_prefix_of_the_launcher() -> None:
    points = measured_points(LOSS, PRINTED)
    assert [(each.place, each.value) for each in points] == [("0", 2.5), ("1", 1.25)]


def test_a_table_has_a_column_for_each_run() -> None:
    broken = measured_points(LOSS, PRINTED + "[default0]:epoch 2: loss inf\n")
    lines = table_lines(LOSS, {BROKEN: broken, REPAIRED: measured_points(LOSS, PRINTED)})
    assert lines[0] == "Loss (loss)"
    assert [line.split() for line in lines[2:]] == [
        ["epoch", "broken", "repaired"],
        ["0", "2.5", "2.5"],
        ["1", "1.25", "1.25"],
        ["2", "inf"],
    ]


def test_a_long_table_shows_some_rows() -> None:
    points = measured_points(LOSS, "\n".join(f"epoch {number}: loss {number}" for number in range(100)))
    assert len(table_lines(LOSS, {BROKEN: points})) <= 20


def test_the_lines_of_ranks_are_apart() -> None:
    points = measured_points(RANKS, "rank 0: step 1, 0.5 s\nrank 1: step 1, 0.9 s\nrank 0: step 2, 1.0 s\n")
    drawn = picture_lines(RANKS, {BROKEN: points}, 60, 14)
    assert drawn[-1].strip() == "x broken rank 0   o broken rank 1"


def test_bars_have_the_length_of_their_number() -> None:
    broken = measured_points(BARS, "rank 0 has read 96 samples\nrank 1 has read 96 samples\n")
    repaired = measured_points(BARS, "rank 0 has read 48 samples\nrank 1 has read 48 samples\n")
    lines = picture_lines(BARS, {BROKEN: broken, REPAIRED: repaired}, 80, 20)
    assert lines == table_lines(BARS, {BROKEN: broken, REPAIRED: repaired})
    assert [line.count("█") for line in lines[2:]] == [40, 40, 20, 20]
    assert lines[2].startswith("rank 0  broken") and lines[-1].endswith("48 samples")


def test_bars_are_number_signs_in_ascii() -> None:
    (line,) = table_lines(BARS, {BROKEN: measured_points(BARS, "rank 0 has read 96 samples")})[2:]
    assert to_ascii(line).count("#") == cells_to_ascii(line).count("#") == 40 and "█" in line


def test_nothing_measured_shows_nothing() -> None:
    assert table_lines(LOSS, {BROKEN: []}) == [] == picture_lines(LOSS, {}, 60, 14)


def test_bars_of_ranks_are_in_the_order_of_the_ranks_and_others_as_they_were_printed() -> None:
    ranks = measured_points(BARS, "\n".join(f"rank {rank} has read 3" for rank in (10, 1, 0, 2)))
    assert [line.split()[1] for line in table_lines(BARS, {BROKEN: ranks})[2:]] == ["0", "1", "2", "10"]
    named = LabPlot(title="Read", y="samples", pattern=r"(?P<label>\w+) has read (?P<y>\d+)")
    words = measured_points(named, "slow has read 1\nfast has read 2")
    assert [line.split()[0] for line in table_lines(named, {BROKEN: words})[2:]] == ["slow", "fast"]
