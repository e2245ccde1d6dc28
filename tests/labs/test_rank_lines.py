"""The ranks of a lab as a table, or as blocks where it is too wide."""

from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.labs.rank_lines import rank_lines
from ddpwizard.app.triage.types import JobReport
from helpers.recorded_state import report as recorded

LONG_NOTE = "waits for its other threads to end, while the launcher and the other rank wait for it to leave"


@pytest.fixture
def report(tmp_path: Path) -> JobReport:
    """Rank 0 has a note that is too long for the table."""
    found = recorded(tmp_path)
    first, *others = found.ranks
    return msgspec.structs.replace(found, ranks=[msgspec.structs.replace(first, note=LONG_NOTE), *others])


def words_of(lines: list[str]) -> list[str]:
    return " ".join(lines).split()


def test_a_table_that_fits_has_one_line_for_each_row_and_the_long_notes_below(report: JobReport) -> None:
    lines = rank_lines(report, 160)
    assert lines[0].split()[:2] == ["rank", "state"] and lines[0].endswith("last moved")
    assert max(map(len, lines)) <= 160 and LONG_NOTE in " ".join(lines)


@pytest.mark.parametrize("width", [40, 58, 78])
def test_a_table_that_does_not_fit_is_a_block_for_each_row(report: JobReport, width: int) -> None:
    lines = rank_lines(report, width)
    assert max(map(len, lines)) <= width
    assert LONG_NOTE in " ".join(words_of(lines))
    assert not any("last moved" in line and "call" in line for line in lines)
    wide = set(words_of(rank_lines(report, 200)))
    assert wide - set(words_of(lines)) <= {"…", "…)", *LONG_NOTE.split()}
