"""Reports of the watchdog for a job that ended before its first sample."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.system.run_directory import RankRecordFile
from ddpwizard.app.watchdog.ended_ranks import EndedRank, first_ended, first_failed
from ddpwizard.app.watchdog.exit_events import ProcessExit
from ddpwizard.app.watchdog.watchdog import Report, WatchdogOptions, _started, run_watchdog

NOBODY = 2**22 - 1  # above every pid, like a rank that has ended
WRITE_RECORDS = """\
import pathlib, sys
folder, *records = sys.argv[1:]
for number, record in enumerate(records):
    pathlib.Path(folder, f"{number}.json").write_text(record)
sys.exit(1)
"""


class NoDiagnosis:
    """Diagnoses nothing."""

    def diagnose_job(self, pid: int, why: str) -> Report:
        return Report("unknown", [f"{pid}: {why}"])

    def diagnose_crash(self, ended: Sequence[EndedRank], first: EndedRank) -> list[str]:
        return [f"{len(ended)} ended, first {first.record.rank}"]

    def shows_lost_rank(self, error: str) -> bool:
        return "closed by peer" in error


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
        NoDiagnosis(),
        lines.append,
    )
    assert code == 1
    assert lines[0] == f"watching; diagnoses on kill -USR1 {os.getpid()}"
    return lines[1:]


class InterruptedMask:
    """The signals to block; whoever reads them is interrupted at that moment."""

    def __iter__(self) -> Iterator[int]:
        os.kill(os.getpid(), signal.SIGINT)
        return iter(())


def test_interrupt_before_the_command_runs_ends_it_like_the_command() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        child = _started(["sleep", "60"], os.environ, [signal.SIGINT], InterruptedMask())
        assert child.wait(30) == -signal.SIGINT
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.parametrize("first", [0, 1])
def test_rank_that_ended_before_the_first_sample_is_reported_from_its_record(first: int, tmp_path: Path) -> None:
    lines = reported(
        tmp_path, [rank(number, f"ValueError: of {number}", 90.0 + (number != first)) for number in (0, 1)]
    )
    death = f"rank {first} (pid {NOBODY - first}) died first: ValueError: of {first}"
    assert lines == [death, f"2 ended, first {first}"]


def test_normal_exit_is_not_reported_as_failure(tmp_path: Path) -> None:
    assert reported(tmp_path, [rank(0, "exit", 90.0), rank(1, "OSError: stale", 91.0)]) == [
        f"rank 1 (pid {NOBODY - 1}) died first: OSError: stale",
        "2 ended, first 1",
    ]


def test_killed_rank_without_a_sample_is_not_reported(tmp_path: Path) -> None:
    assert reported(tmp_path, [rank(0, "", None), rank(1, "", None)]) == []


def test_killed_rank_comes_before_the_error_of_a_rank_that_lost_it() -> None:
    lost = EndedRank(rank(0, "RuntimeError: Connection closed by peer", 90.0), ProcessExit(90.2, 256))
    killed = EndedRank(rank(1, "", None), ProcessExit(90.4, 9))
    ended_by_launcher = EndedRank(rank(2, "", None), ProcessExit(91.0, 15))
    killed_by_launcher = EndedRank(rank(3, "", None), ProcessExit(121.0, 9))
    assert first_failed([lost, killed, ended_by_launcher]) is killed
    assert first_failed([lost, ended_by_launcher, killed_by_launcher]) is lost
    assert first_failed([EndedRank(rank(4, "exit", 90.0), ProcessExit(90.0, 0))]) is None


LOST = "RuntimeError: Connection closed by peer [127.0.0.1]:1948"


def test_a_rank_that_left_is_first_if_another_one_then_lost_it(tmp_path: Path) -> None:
    assert reported(tmp_path, [rank(0, LOST, 90.2), rank(1, "exit", 90.0)]) == [
        f"rank 1 (pid {NOBODY - 1}) left first: it ended without an error while others waited for it",
        "2 ended, first 1",
    ]


@pytest.mark.parametrize(
    ("failed", "other"),
    [
        pytest.param(rank(0, "OSError: upload failed", 95.0), rank(1, "exit", 90.0), id="an error of its own"),
        pytest.param(rank(0, LOST, 90.0), rank(1, "exit", 90.2), id="it ended later"),
        pytest.param(rank(0, LOST, 90.2), rank(1, "ValueError: no data", 90.0), id="it failed as well"),
        pytest.param(
            rank(0, LOST, 90.2), RankRecordFile(pid=7, started_ticks=1, ended="exit", ended_at=90.0), id="no rank"
        ),
    ],
)
def test_a_rank_that_ended_normally_is_not_first(failed: RankRecordFile, other: RankRecordFile) -> None:
    ended = [EndedRank(failed, None), EndedRank(other, None)]
    assert first_ended(ended, NoDiagnosis().shows_lost_rank) is first_failed(ended)


def test_reason_of_a_death_repeats_no_traceback(tmp_path: Path) -> None:
    of_a_worker = (
        "RuntimeError: Caught KeyError in DataLoader worker process 1.\nOriginal Traceback (most recent call last):\n"
        '  File "/x/data.py", line 16, in __getitem__\n    row = rows[i]\nKeyError: 7\n'
    )
    lines = reported(tmp_path, [rank(0, of_a_worker, 90.0), rank(1, "exit", 91.0)])
    assert lines[0].partition("died first: ")[2] == (
        "RuntimeError: Caught KeyError in DataLoader worker process 1.\n  KeyError: 7"
    )
