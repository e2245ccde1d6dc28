"""Files that a run leaves behind: without secrets, and not for ever."""

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.system import run_directory
from ddpwizard.app.system.run_directory import RankRecordFile, read_record
from ddpwizard.app.watchdog.kept_files import KEPT_LOG_BYTES, KEPT_S, redact_run_directory, remove_old_directories

SECRET = "s3cr3tV4lue-9x"


def write_record(folder: Path, pid: int, started_ticks: int) -> Path:
    record = RankRecordFile(
        pid=pid,
        started_ticks=started_ticks,
        rank=0,
        command=["python", "train.py", "--api-key", SECRET],
        environ={"SLURM_JWT": SECRET, "RANK": "0"},
        ended=f"RuntimeError: token={SECRET}",
    )
    path = folder / f"{pid}.json"
    path.write_bytes(msgspec.json.encode(record))
    (folder / f"{pid}.log").write_text(f"2026-01-01 password={SECRET}\n2026-01-01 step 3 loss 0.5\n")
    return path


def test_records_and_output_of_ended_ranks_are_cleaned_and_still_readable(tmp_path: Path) -> None:
    path = write_record(tmp_path, 4_999_999, 1)
    redact_run_directory(tmp_path)
    assert SECRET not in "".join(each.read_text() for each in tmp_path.iterdir())
    record = read_record(path)
    assert record and record.command[:2] == ["python", "train.py"] and record.environ["RANK"] == "0"
    assert "step 3 loss 0.5" in (tmp_path / "4999999.log").read_text()


def test_files_of_a_living_rank_are_left_to_it(tmp_path: Path) -> None:
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    before = write_record(tmp_path, os.getpid(), ticks).read_bytes()
    redact_run_directory(tmp_path)
    assert (tmp_path / f"{os.getpid()}.json").read_bytes() == before


def test_only_the_end_of_long_output_is_kept(tmp_path: Path) -> None:
    (tmp_path / "7.log").write_text("".join(f"line {number}\n" for number in range(KEPT_LOG_BYTES // 8)))
    redact_run_directory(tmp_path)
    lines = (tmp_path / "7.log").read_text().splitlines()
    assert lines[0].startswith("line ") and lines[-1] == f"line {KEPT_LOG_BYTES // 8 - 1}"
    assert (tmp_path / "7.log").stat().st_size <= KEPT_LOG_BYTES


def test_directories_of_earlier_runs_are_removed_after_a_week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_directory, "RUNS_DIRECTORY", tmp_path)
    old, recent, other = (tmp_path / name for name in ("ddpw-old", "ddpw-recent", "elsewhere"))
    for folder in (old, recent, other):
        folder.mkdir()
        (folder / "1.log").touch()
    for folder in (old, other):
        os.utime(folder, (0, time.time() - KEPT_S - 60))
    remove_old_directories()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ddpw-recent", "elsewhere"]


def test_an_existing_report_file_is_refused_before_the_job_starts(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    words = [sys.executable, "-m", "ddpwizard", "run", "--report", str(script), "--", "true"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "exists" in done.stderr and "--force" in done.stderr
    assert script.read_text() == "print(1)\n"
