"""Verdicts from the directory of ``torchrun --log-dir`` of real gloo jobs alone."""

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ddpwizard.app.triage.job_logs import read
from helpers.jobs import SCRIPTS, line_of
from helpers.torchrun_server import run_torchrun

pytestmark = [pytest.mark.jobs, pytest.mark.slow, pytest.mark.long]

SCRIPT = SCRIPTS / "logs_ends.py"
# Waits for time-outs make up most of these jobs, so three of them run at a time.
AT_A_TIME = 3
LONGEST_S = 300
DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
JOBS: dict[str, tuple[str, dict[str, str]]] = {
    "raises": ("raises", {}),
    "killed": ("killed", {}),
    "differs": ("differs", DETAIL),
    "shape": ("shape", DETAIL),
    "absent": ("absent", {}),
    "late-detail": ("late", DETAIL),
    "late": ("late", {}),
    "well": ("well", {}),
}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The log directory of each job of ``JOBS``, once all have ended."""
    directories = {name: tmp_path_factory.mktemp(name) for name in JOBS}
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        running = [pool.submit(run_job, way, directories[name], environ) for name, (way, environ) in JOBS.items()]
        for job in running:
            job.result()
    return {name: directory / "logs" for name, directory in directories.items()}


def run_job(way: str, directory: Path, environ: Mapping[str, str]) -> None:
    """Run three ranks to their end, with the launcher's output next to the files of the ranks."""
    options = ["--standalone", "--nproc-per-node=3", "--log-dir", str(directory / "logs"), "--redirects", "3"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environ}
    ended = run_torchrun(options, SCRIPT, [way], directory=directory, limit_s=LONGEST_S, environ=env)
    (directory / "logs" / "torchrun.out").write_text(ended.log)


class TestTheLogsOf:
    def test_a_rank_that_raises(self, jobs: dict[str, Path]) -> None:
        began = (jobs["raises"] / "torchrun.out").stat().st_mtime - LONGEST_S
        report = read.report_from_logs([jobs["raises"]])
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

    def test_a_rank_that_is_killed(self, jobs: dict[str, Path]) -> None:
        report = read.report_from_logs([jobs["killed"]])
        assert (report.verdict.cause, report.verdict.culprits) == ("rank-died-survivors-wait", [1])
        assert [(death.rank, death.how) for death in report.observed.deaths] == [(1, "signal")]
        (jobs["killed"] / "torchrun.out").unlink()  # without the launcher's output
        verdict = read.report_from_logs([jobs["killed"]]).verdict
        assert (verdict.cause, verdict.culprits) == ("rank-died-survivors-wait", [1])

    def test_another_operation_under_detail(self, jobs: dict[str, Path]) -> None:
        verdict = read.report_from_logs([jobs["differs"]]).verdict
        assert (verdict.cause, verdict.culprits) == ("collective-desync", [1])
        assert (verdict.collective, verdict.where) == ("broadcast", line_of(SCRIPT, "DIFFERS"))

    def test_another_shape_under_detail(self, jobs: dict[str, Path]) -> None:
        verdict = read.report_from_logs([jobs["shape"]]).verdict
        assert (verdict.cause, verdict.culprits) == ("collective-desync", [2])
        assert (verdict.collective, verdict.where) == ("all_reduce", line_of(SCRIPT, "SHAPE"))

    def test_a_rank_that_does_not_come_to_a_monitored_barrier(self, jobs: dict[str, Path]) -> None:
        report = read.report_from_logs([jobs["absent"]])
        assert (report.verdict.culprits, report.verdict.collective) == ([1], "monitored_barrier")
        assert report.verdict.findings == ["job.log-names-absent"]
        assert report.observed.deaths == []

    def test_an_absent_rank_under_detail(self, jobs: dict[str, Path]) -> None:
        verdict = read.report_from_logs([jobs["late-detail"]]).verdict
        assert verdict.culprits == [1]

    def test_ranks_that_run_out_of_time(self, jobs: dict[str, Path]) -> None:
        verdict = read.report_from_logs([jobs["late"]]).verdict
        assert (verdict.culprits, verdict.collective) == ([1], "all_reduce")

    def test_a_job_that_went_well(self, jobs: dict[str, Path]) -> None:
        report = read.report_from_logs([jobs["well"]])
        assert (report.verdict.state, report.verdict.culprits) == ("unknown", [])
        assert report.observed.deaths == []
