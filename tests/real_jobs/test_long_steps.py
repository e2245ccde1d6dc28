"""Real jobs whose steps take longer than the sampling: they are slow, or unknown, and never hung."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ddpwizard.app.triage.triage import triage_jobs
from ddpwizard.app.triage.types import JobReport, Verdict
from helpers.jobs import SCRIPTS, RunningJob, running, torchrun, wait_for

pytestmark = [pytest.mark.jobs, pytest.mark.slow]
LOOKS = 3  # at different moments of the steps


@contextmanager
def stepping(script: str, directory: Path, ranks: int, *arguments: str) -> Iterator[RunningJob]:
    """The job, once it has made its first step."""
    copy = directory / script
    copy.write_text((SCRIPTS / script).read_text())
    with running(torchrun(copy, ranks, *arguments), copy, directory, OMP_NUM_THREADS="1") as job:
        wait_for(lambda: job.printed("step 1"), "two steps are made", 240)
        yield job


def reports(job: RunningJob) -> Iterator[JobReport]:
    for _ in range(LOOKS):
        yield asyncio.run(triage_jobs(pid=job.pid))[0]


@pytest.mark.parametrize("work", ["numpy", pytest.param("sleep", marks=pytest.mark.calibration)])
def test_every_rank_in_the_same_long_step(work: str, tmp_path: Path) -> None:
    with stepping("long_steps.py", tmp_path, 2, work, "all") as job:
        for report in reports(job):
            verdict = report.verdict
            assert verdict.state in ("progressing", "unknown"), verdict
            assert verdict.state == "progressing" or verdict.confidence < 0.5, verdict


@pytest.mark.parametrize("work", ["torch", pytest.param("python", marks=pytest.mark.calibration)])
def test_others_wait_in_the_collective_for_one_that_is_busy(work: str, tmp_path: Path) -> None:
    with stepping("long_steps.py", tmp_path, 3, work, "1") as job:
        found: list[Verdict] = []

        def named() -> Verdict | None:
            found.append(asyncio.run(triage_jobs(pid=job.pid))[0].verdict)
            return found[-1] if found[-1].culprits else None

        verdict = wait_for(named, f"the busy rank is named, not only {found}", 240)
        assert {each.state for each in found} == {"progressing"}, found
        assert (verdict.culprits, verdict.cause, verdict.collective) == ([1], "straggler-rank", "all_reduce")
        assert verdict.where and verdict.where.startswith(f"{job.script}:")
        assert "anks 0, 2 wait" in verdict.why


@pytest.mark.parametrize("workers", ["2", pytest.param("0", marks=pytest.mark.calibration)])
def test_slow_data(workers: str, tmp_path: Path) -> None:
    with stepping("slow_shelf.py", tmp_path, 2, workers) as job:
        for report in reports(job):
            assert report.verdict.state in ("progressing", "unknown"), report.verdict
