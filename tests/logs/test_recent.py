"""Recent logs: those of the current directory come before those of jobs elsewhere."""

import os
import time
from pathlib import Path

from ddpwizard.app.logs.recent import MOST_LOGS, RECENT_S, recent_logs


def written(path: Path, age_s: float = 0.0, text: str = "x\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    at = time.time() - age_s
    os.utime(path, (at, at))
    return path


def test_logs_of_the_directory_come_before_those_of_jobs_elsewhere(tmp_path: Path):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    crash = written(here / "crash.log", age_s=60)
    older = written(here / "logs" / "before.out", age_s=600)
    of_rank = written(here / "torchrun" / "0" / "stdout", age_s=900)
    of_other_job = written(elsewhere / "0" / "stdout.log")
    ranks = [str(of_other_job), str(of_rank), str(of_rank), "", str(here / "missing.log")]
    assert recent_logs(ranks, here) == [of_rank, crash, older, of_other_job]


def test_old_and_empty_files_and_those_that_are_no_logs_are_left_out(tmp_path: Path):
    written(tmp_path / "old.log", age_s=RECENT_S + 60)
    written(tmp_path / "empty.log", text="")
    written(tmp_path / "train.py")
    assert recent_logs([], tmp_path) == []


def test_only_the_newest_are_listed(tmp_path: Path):
    logs = [written(tmp_path / f"{number}.log", age_s=10 * number) for number in range(MOST_LOGS + 2)]
    assert recent_logs([], tmp_path) == logs[:MOST_LOGS]
