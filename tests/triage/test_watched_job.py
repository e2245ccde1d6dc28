"""A job that is watched: the rank that sets the pace over all samples, and the verdict that stays when it ends."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.triage.types import JobReport, Sample, Verdict
from ddpwizard.app.triage.watched_job import WatchedJob, follow_job, report_at_end
from helpers.recorded_state import report

USER = StackFrame("main", "/home/me/train.py", 12)
WAIT = StackFrame("all_reduce", "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 1)
MOVES = Verdict(
    state="progressing", cause=None, culprits=[], collective=None, where=None, branch=None, why="", confidence=0.9
)


@pytest.fixture
def job(tmp_path: Path) -> JobReport:
    return report(tmp_path)


def sampled(job: JobReport, at: float, waiting: Mapping[int, bool], verdict: Verdict = MOVES) -> JobReport:
    """Return the report of one sample in which these ranks wait in a collective, the others are at work."""
    seen = [
        msgspec.structs.replace(
            each,
            samples=[
                Sample(
                    at=at, process_state="S", cpu_s=0.0, switches=0,
                    stack=[WAIT, USER] if waiting[each.process.rank or 0] else [USER],
                )
            ],
        )
        for each in job.observed.seen
    ]  # fmt: skip
    observed = msgspec.structs.replace(job.observed, seen=seen)
    return msgspec.structs.replace(job, observed=observed, verdict=verdict)


def watch(job: JobReport, waits: Mapping[int, int], verdict: Verdict = MOVES) -> WatchedJob:
    """Follow a job over 10 samples; ``waits``: in how many of them each rank waits."""
    watched: WatchedJob | None = None
    for n in range(10):
        watched = follow_job(
            watched, sampled(job, 10.0 + n, {rank: n < count for rank, count in waits.items()}, verdict)
        )
    assert watched is not None
    return watched


def test_one_rank_that_is_at_work_while_the_others_mostly_wait_sets_the_pace(job: JobReport) -> None:
    verdict = watch(job, {0: 8, 1: 0, 2: 9, 3: 8}).report.verdict
    assert (verdict.cause, verdict.culprits, verdict.findings) == ("straggler-rank", [1], ["job.straggler"])
    assert "83% of the samples of ranks 0, 2, 3" in verdict.why


@pytest.mark.parametrize("waits", [{0: 5, 1: 0, 2: 5, 3: 5}, {0: 8, 1: 0, 2: 0, 3: 9}, {0: 8, 1: 6, 2: 9, 3: 8}])
def test_ranks_that_share_the_work_have_no_straggler(job: JobReport, waits: Mapping[int, int]) -> None:
    assert watch(job, waits).report.verdict == MOVES


def test_the_wait_of_a_hang_is_no_sign_of_a_slow_rank(job: JobReport) -> None:
    hung = msgspec.structs.replace(MOVES, state="hung", cause="dataloader-stall", culprits=[1])
    watched = watch(job, {0: 10, 1: 0, 2: 10, 3: 10}, hung)
    everywhere = dict.fromkeys(range(4), False)
    assert follow_job(watched, sampled(job, 30.0, everywhere)).report.verdict == MOVES


def test_a_hang_that_lasted_stays_the_verdict_when_the_job_is_ended(job: JobReport) -> None:
    hung = msgspec.structs.replace(MOVES, state="hung", cause="dataloader-stall", culprits=[1])
    everywhere = dict.fromkeys(range(4), False)
    watched = watch(job, {0: 10, 1: 0, 2: 10, 3: 10}, hung)
    for last in (msgspec.structs.replace(MOVES, state="dead"), MOVES):
        ending = follow_job(watched, sampled(job, 30.0, everywhere, last))
        assert report_at_end(ending, ending.report).verdict == hung
    goes_on = follow_job(ending, sampled(job, 35.0, everywhere))
    assert report_at_end(goes_on, goes_on.report).verdict == MOVES


def test_the_line_of_a_slow_rank_is_where_it_is_and_the_others_are_not(job: JobReport) -> None:
    """Every rank is sometimes in the model; only the slow one is mostly in its augmentation."""
    model = StackFrame("forward", "/home/me/model.py", 7)
    augment = [StackFrame("augment", "/home/me/augment.py", line) for line in (9, 10, 11, 11, 11, 9)]
    slow = [[model, USER], *([frame, USER] for frame in augment), [model, USER], [USER], [model, USER]]
    watched: WatchedJob | None = None
    for n, stack in enumerate(slow):
        now = sampled(job, 10.0 + n, {0: n < 9, 1: False, 2: n < 9, 3: n < 9})
        seen = [
            msgspec.structs.replace(each, samples=[msgspec.structs.replace(each.samples[0], stack=stack)])
            if each.process.rank == 1
            else each
            for each in now.observed.seen
        ]
        observed = msgspec.structs.replace(now.observed, seen=seen)
        watched = follow_job(watched, msgspec.structs.replace(now, observed=observed))
    assert watched is not None
    verdict = watched.report.verdict
    assert (verdict.cause, verdict.culprits, verdict.where) == ("straggler-rank", [1], "/home/me/augment.py:11")
    assert "most often at augment.py:11" in verdict.why
