"""Reports of the watchdog for a job that ended before its first sample."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.system.run_directory import RankRecordFile
from ddpwizard.app.watchdog.watchdog import Report, WatchdogOptions, run_watchdog

NOBODY = 2**22 - 1  # above every pid, like a rank that has ended
WRITE_RECORDS = """\
import pathlib, sys
folder, *records = sys.argv[1:]
for number, record in enumerate(records):
    pathlib.Path(folder, f"{number}.json").write_text(record)
sys.exit(1)
"""


def rank(number: int, ended: str, ended_at: float | None) -> RankRecordFile:
    return RankRecordFile(pid=NOBODY - number, started_ticks=1, rank=number, ended=ended, ended_at=ended_at)


def reported(folder: Path, records: Sequence[RankRecordFile]) -> list[str]:
    """Return the lines reported for a job whose ranks left these records."""
    words = [msgspec.json.encode(record).decode() for record in records]
    lines: list[str] = []
    code, _ = run_watchdog(
        [sys.executable, "-c", WRITE_RECORDS, str(folder), *words],
        os.environ,
        folder,
        WatchdogOptions(hang_after_s=0),
        lambda pid, why: Report("unknown", []),
        lines.append,
    )
    assert code == 1
    return lines


@pytest.mark.parametrize("first", [0, 1])
def test_rank_that_ended_before_the_first_sample_is_reported_from_its_record(first: int, tmp_path: Path) -> None:
    lines = reported(
        tmp_path, [rank(number, f"ValueError: of {number}", 90.0 + (number != first)) for number in (0, 1)]
    )
    assert lines == [f"rank {first} (pid {NOBODY - first}) died first: ValueError: of {first}"]


def test_normal_exit_is_not_reported_as_failure(tmp_path: Path) -> None:
    assert reported(tmp_path, [rank(0, "exit", 90.0), rank(1, "OSError: stale", 91.0)]) == [
        f"rank 1 (pid {NOBODY - 1}) died first: OSError: stale"
    ]


def test_killed_rank_without_a_sample_is_not_reported(tmp_path: Path) -> None:
    assert reported(tmp_path, [rank(0, "", None), rank(1, "", None)]) == []
