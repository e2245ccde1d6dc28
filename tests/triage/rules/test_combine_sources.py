"""The verdict of the stacks merged with those of the records and the logs."""

import msgspec
import pytest
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.training_script.line_queries import ScriptFiles
from ddpwizard.app.triage.rank_activity.rank_state import rank_states
from ddpwizard.app.triage.rules.combine_sources import merge_verdicts
from ddpwizard.app.triage.rules.context import JobContext
from ddpwizard.app.triage.types import Verdict
from ddpwizard.app.triage.verdict import judge_job
from helpers.synthetic_job import SCRIPT, job, observation, sample_at, stack, still

TEXT = "def main():\n    if rank == 1:\n        dist.all_reduce(x)\n    dist.barrier()\nmain()\n"
LOCK = [StackFrame("get", "/usr/lib/python3.11/queue.py", 171)]


def merged(other: Verdict, *places: list[StackFrame]) -> Verdict:
    """Return the verdict of the stacks of ranks at these places, merged with another one."""
    samples = {100 + rank: still(frames) for rank, frames in enumerate(places)}
    observed = observation(job(len(places)), samples, {SCRIPT: TEXT})
    sources = ScriptFiles(observed.sources)
    return merge_verdicts(
        judge_job(observed).verdict, other, JobContext(observed, rank_states(observed, sources), sources)
    )


def other_verdict(
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


def test_recorder_names_the_culprit_if_all_ranks_are_at_one_place() -> None:
    verdict = merged(other_verdict("collective-desync", [2], 0.9, "job.recorder-size-mismatch"), *SAME)
    assert (verdict.state, verdict.cause, verdict.culprits) == ("hung", "collective-desync", [2])
    assert (verdict.where, verdict.collective) == (f"{SCRIPT}:4", "all_reduce")
    assert "job.recorder-size-mismatch" in verdict.findings


def test_condition_shown_by_the_stacks_stays_the_cause() -> None:
    verdict = merged(other_verdict("collective-desync", [1], 0.9), *ONE_INSIDE)
    assert (verdict.cause, verdict.culprits, verdict.branch) == ("rank-conditional-collective", [1], f"{SCRIPT}:2")
    assert verdict.where == f"{SCRIPT}:3"
    assert verdict.confidence == 0.97
    assert {"job.culprit-line-under-rank-test", "job.recorder-op-mismatch"} <= set(verdict.findings)


def test_recorder_breaks_a_tie_of_the_stacks() -> None:
    halves = [main_at(4, "barrier"), main_at(4, "barrier"), main_at(6), main_at(6)]
    verdict = merged(other_verdict("collective-desync", [3], 0.8), *halves)
    assert (verdict.culprits, verdict.where, verdict.confidence) == ([3], f"{SCRIPT}:6", 0.8)


def test_wait_shown_by_the_stacks_outweighs_the_record() -> None:
    places = [main_at(4, "barrier"), [*LOCK, *main_at(3, None)], main_at(4, "barrier")]
    verdict = merged(other_verdict(None, [0], 0.95, "job.recorder-rank-behind"), *places)
    assert (verdict.cause, verdict.culprits) == ("python-lock", [1])
    agreed = merged(other_verdict(None, [1], 0.95, "job.recorder-rank-behind"), *places)
    assert (agreed.cause, agreed.culprits, agreed.confidence) == ("python-lock", [1], 0.95)


def test_verdict_with_lower_confidence_is_ignored() -> None:
    verdict = merged(other_verdict("p2p-deadlock", [0], 0.3), *ONE_INSIDE)
    assert (verdict.cause, verdict.culprits) == ("rank-conditional-collective", [1])


@pytest.mark.parametrize("culprits", [[], [0]])
def test_line_from_the_record_if_no_stack_was_readable(culprits: list[int]) -> None:
    refused = [sample_at([], at, problem="stack: not permitted") for at in (1000.0, 1001.0)]
    observed = observation(job(2), {100: refused, 101: refused}, {})
    sources = ScriptFiles({})
    context = JobContext(observed, rank_states(observed, sources), sources)
    verdict = merge_verdicts(judge_job(observed).verdict, other_verdict("collective-desync", culprits, 0.9), context)
    assert verdict.cause == "collective-desync"
    assert verdict.where == f"{SCRIPT}:77"


def test_logs_name_the_first_death_of_a_dead_job() -> None:
    samples = {100: still([], ""), 101: still([], "")}
    observed = observation(job(2), samples, {})
    sources = ScriptFiles({})
    context = JobContext(observed, rank_states(observed, sources), sources)
    other = other_verdict("rank-died-survivors-wait", [1], 0.85, "job.rank-dead")
    verdict = merge_verdicts(judge_job(observed).verdict, other, context)
    assert (verdict.state, verdict.cause, verdict.culprits) == ("dead", "rank-died-survivors-wait", [1])
