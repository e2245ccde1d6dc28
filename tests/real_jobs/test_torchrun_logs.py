"""Verdicts from the directory of ``torchrun --log-dir`` of real gloo jobs alone."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest
from ddpwizard.app.system.subprocesses import run_process
from ddpwizard.app.triage.job_logs import read
from ddpwizard.app.triage.types import JobReport
from helpers.jobs import SCRIPTS, line_of

pytestmark = [pytest.mark.jobs, pytest.mark.slow]

SCRIPT = SCRIPTS / "logs_ends.py"


def logs_of(way: str, directory: Path, **environ: str) -> JobReport:
    """Run three ranks to their end, with the launcher's output next to the files of the ranks."""
    options = ["--standalone", "--nproc-per-node=3", "--log-dir", str(directory / "logs"), "--redirects", "3"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, str(SCRIPT), way]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environ}
    said: list[str] = []
    asyncio.run(run_process(command, limit_s=300, env=env, cwd=directory, on_output=said.append))
    (directory / "logs" / "torchrun.out").write_text("\n".join(said))
    return read.report_from_logs([directory / "logs"])


class TestTheLogsOf:
    def test_a_rank_that_raises(self, tmp_path: Path) -> None:
        began = time.time()
        report = logs_of("raises", tmp_path)
        verdict, log = report.verdict, report.observed.log
        assert (verdict.state, verdict.cause, verdict.culprits) == ("dead", "rank-died-survivors-wait", [1])
        assert verdict.where == line_of(SCRIPT, "RAISES")
        assert verdict.why.startswith("Rank 1 failed: ValueError: no such sample at logs_ends.py:")
        assert log
        assert report.world_size == 3
        assert [(row.rank, row.step) for row in log.ranks] == [(0, 4), (1, 4), (2, 4)]
        assert all(row.silent_since and began <= row.silent_since <= time.time() for row in log.ranks)
        assert {fact.rank for fact in log.of("peer-closed")} <= {0, 2}
        roots = log.of("root-cause")
        assert [fact.rank for fact in roots] == [1]
        assert all(fact.at and began - 2 <= fact.at <= time.time() for fact in roots)
        for fact in log.facts:
            path, _, number = fact.where.rpartition(":")
            assert 1 <= int(number) <= len(Path(path).read_text().splitlines())
        assert [death.rank for death in report.observed.deaths] == [1]

    def test_a_rank_that_is_killed(self, tmp_path: Path) -> None:
        report = logs_of("killed", tmp_path)
        assert (report.verdict.cause, report.verdict.culprits) == ("rank-died-survivors-wait", [1])
        assert [(death.rank, death.how) for death in report.observed.deaths] == [(1, "signal")]
        (tmp_path / "logs" / "torchrun.out").unlink()  # without the launcher's words
        verdict = read.report_from_logs([tmp_path / "logs"]).verdict
        assert (verdict.cause, verdict.culprits) == ("rank-died-survivors-wait", [1])

    def test_another_operation_under_detail(self, tmp_path: Path) -> None:
        verdict = logs_of("differs", tmp_path, TORCH_DISTRIBUTED_DEBUG="DETAIL").verdict
        assert (verdict.cause, verdict.culprits) == ("collective-desync", [1])
        assert (verdict.collective, verdict.where) == ("broadcast", line_of(SCRIPT, "DIFFERS"))

    def test_another_shape_under_detail(self, tmp_path: Path) -> None:
        verdict = logs_of("shape", tmp_path, TORCH_DISTRIBUTED_DEBUG="DETAIL").verdict
        assert (verdict.cause, verdict.culprits) == ("collective-desync", [2])
        assert (verdict.collective, verdict.where) == ("all_reduce", line_of(SCRIPT, "SHAPE"))

    def test_a_rank_that_does_not_come_to_a_monitored_barrier(self, tmp_path: Path) -> None:
        report = logs_of("absent", tmp_path)
        assert (report.verdict.culprits, report.verdict.collective) == ([1], "monitored_barrier")
        assert report.verdict.findings == ["job.log-names-absent"]
        assert report.observed.deaths == []

    def test_an_absent_rank_under_detail(self, tmp_path: Path) -> None:
        verdict = logs_of("late", tmp_path, TORCH_DISTRIBUTED_DEBUG="DETAIL").verdict
        assert verdict.culprits == [1]

    def test_ranks_that_run_out_of_time(self, tmp_path: Path) -> None:
        verdict = logs_of("late", tmp_path).verdict
        assert (verdict.culprits, verdict.collective) == ([1], "all_reduce")

    def test_a_job_that_went_well(self, tmp_path: Path) -> None:
        report = logs_of("well", tmp_path)
        assert (report.verdict.state, report.verdict.culprits) == ("unknown", [])
        assert report.observed.deaths == []
