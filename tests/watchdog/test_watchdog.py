"""What the watchdog says of a job that is over before it was looked at."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.system.run_directory import RankRecordFile
from ddpwizard.app.watchdog.watchdog import Report, WatchdogOptions, run_watchdog

NOBODY = 2**22 - 1  # above every pid: as of ranks that have ended
LEAVES_NOTES = """\
import pathlib, sys
folder, *notes = sys.argv[1:]
for number, note in enumerate(notes):
    pathlib.Path(folder, f"{number}.json").write_text(note)
sys.exit(1)
"""


def rank(number: int, ended: str, ended_at: float | None) -> RankRecordFile:
    return RankRecordFile(pid=NOBODY - number, started_ticks=1, rank=number, ended=ended, ended_at=ended_at)


def said(folder: Path, notes: Sequence[RankRecordFile]) -> list[str]:
    """What is told of a job whose ranks left these notes."""
    words = [msgspec.json.encode(note).decode() for note in notes]
    lines: list[str] = []
    code, _ = run_watchdog(
        [sys.executable, "-c", LEAVES_NOTES, str(folder), *words],
        os.environ,
        folder,
        WatchdogOptions(hang_after_s=0),
        lambda pid, why: Report("unknown", []),
        lines.append,
    )
    assert code == 1
    return lines


@pytest.mark.parametrize("first", [0, 1])
def test_ranks_that_were_gone_before_a_look_are_known_by_their_notes(first: int, tmp_path: Path) -> None:
    lines = said(tmp_path, [rank(number, f"ValueError: of {number}", 90.0 + (number != first)) for number in (0, 1)])
    assert lines == [f"rank {first} (pid {NOBODY - first}) died first: ValueError: of {first}"]


def test_an_end_that_is_well_is_none(tmp_path: Path) -> None:
    assert said(tmp_path, [rank(0, "exit", 90.0), rank(1, "OSError: stale", 91.0)]) == [
        f"rank 1 (pid {NOBODY - 1}) died first: OSError: stale"
    ]


def test_of_ranks_that_were_killed_unseen_nothing_is_said(tmp_path: Path) -> None:
    assert said(tmp_path, [rank(0, "", None), rank(1, "", None)]) == []
