"""Stacks, recorder and logs together: who is named, and with which line."""

import msgspec
import pytest
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.training_script.line_queries import ScriptFiles
from ddpwizard.app.triage.rank_activity.rank_state import rank_states
from ddpwizard.app.triage.rules.combine_sources import merge_verdicts
from ddpwizard.app.triage.rules.context import JobContext
from ddpwizard.app.triage.types import Verdict
from ddpwizard.app.triage.verdict import judge_job
from helpers.synthetic_job import SCRIPT, job, look, observation, stack, still

TEXT = "def main():\n    if rank == 1:\n        dist.all_reduce(x)\n    dist.barrier()\nmain()\n"
LOCK = [StackFrame("get", "/usr/lib/python3.11/queue.py", 171)]


def both(other: Verdict, *places: list[StackFrame]) -> Verdict:
    """What the stacks of ranks at these places say, joined with another's verdict."""
    samples = {100 + rank: still(frames) for rank, frames in enumerate(places)}
    observed = observation(job(len(places)), samples, {SCRIPT: TEXT})
    sources = ScriptFiles(observed.sources)
    return merge_verdicts(
        judge_job(observed).verdict, other, JobContext(observed, rank_states(observed, sources), sources)
    )


def says(
    cause: str | None, culprits: list[int], confidence: float, finding: str = "job.recorder-op-mismatch", **more: str
) -> Verdict:
    verdict = Verdict(
        state="hung",
        cause=cause,
        culprits=culprits,
        collective="all_reduce",
        where=f"{SCRIPT}:77",
        branch=None,
        why="By the records, number 7 differs.",
        confidence=confidence,
        findings=[finding],
    )
    return msgspec.structs.replace(verdict, **more)


def main_at(line: int, collective: str | None = "all_reduce") -> list[StackFrame]:
    return stack(collective, ("<module>", 5), ("main", line))


SAME = [main_at(4, "barrier")] * 3
ONE_INSIDE = [main_at(4, "barrier"), main_at(3), main_at(4, "barrier")]


def test_recorder_names_who_differs_where_all_stand_at_one_place() -> None:
    verdict = both(says("collective-desync", [2], 0.9, "job.recorder-size-mismatch"), *SAME)
    assert (verdict.state, verdict.cause, verdict.culprits) == ("hung", "collective-desync", [2])
    assert (verdict.where, verdict.collective) == (f"{SCRIPT}:4", "all_reduce")
    assert verdict.findings == ["job.recorder-size-mismatch"]


def test_a_condition_that_the_stacks_show_stays_the_cause() -> None:
    verdict = both(says("collective-desync", [1], 0.9), *ONE_INSIDE)
    assert (verdict.cause, verdict.culprits, verdict.branch) == ("rank-conditional-collective", [1], f"{SCRIPT}:2")
    assert verdict.where == f"{SCRIPT}:3"
    assert verdict.confidence == 0.97
    assert {"job.culprit-line-under-rank-test", "job.recorder-op-mismatch"} <= set(verdict.findings)


def test_recorder_breaks_a_tie_of_the_stacks() -> None:
    halves = [main_at(4, "barrier"), main_at(4, "barrier"), main_at(6), main_at(6)]
    verdict = both(says("collective-desync", [3], 0.8), *halves)
    assert (verdict.culprits, verdict.where, verdict.confidence) == ([3], f"{SCRIPT}:6", 0.8)


def test_what_a_rank_is_seen_to_wait_for_goes_before_its_record() -> None:
    places = [main_at(4, "barrier"), [*LOCK, *main_at(3, None)], main_at(4, "barrier")]
    verdict = both(says(None, [0], 0.95, "job.recorder-rank-behind"), *places)
    assert (verdict.cause, verdict.culprits) == ("python-lock", [1])
    agreed = both(says(None, [1], 0.95, "job.recorder-rank-behind"), *places)
    assert (agreed.cause, agreed.culprits, agreed.confidence) == ("python-lock", [1], 0.95)


def test_the_less_sure_adds_nothing() -> None:
    verdict = both(says("p2p-deadlock", [0], 0.3), *ONE_INSIDE)
    assert (verdict.cause, verdict.culprits) == ("rank-conditional-collective", [1])


@pytest.mark.parametrize("culprits", [[], [0]])
def test_line_of_a_rank_that_no_stack_shows_is_the_records(culprits: list[int]) -> None:
    refused = [look([], at, problem="stack: not permitted") for at in (1000.0, 1001.0)]
    observed = observation(job(2), {100: refused, 101: refused}, {})
    sources = ScriptFiles({})
    scene = JobContext(observed, rank_states(observed, sources), sources)
    verdict = merge_verdicts(judge_job(observed).verdict, says("collective-desync", culprits, 0.9), scene)
    assert verdict.cause == "collective-desync"
    assert verdict.where == f"{SCRIPT}:77"


def test_logs_say_who_died_first_of_a_job_that_is_gone() -> None:
    samples = {100: still([], ""), 101: still([], "")}
    observed = observation(job(2), samples, {})
    sources = ScriptFiles({})
    scene = JobContext(observed, rank_states(observed, sources), sources)
    said = says("rank-died-survivors-wait", [1], 0.85, "job.rank-dead")
    verdict = merge_verdicts(judge_job(observed).verdict, said, scene)
    assert (verdict.state, verdict.cause, verdict.culprits) == ("dead", "rank-died-survivors-wait", [1])
