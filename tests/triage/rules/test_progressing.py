"""Rules for jobs that make progress: normally, at the pace of one rank, or with only one rank at work."""

import pytest
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.triage.sampling.sampler import needs_another_sample
from ddpwizard.app.triage.types import Sample, Verdict
from ddpwizard.app.triage.verdict import judge_job
from helpers.synthetic_job import SCRIPT, job, observation, sample_at, stack

TEXT = """
def main():
    for batch in loader:
        step(batch)
        dist.all_reduce(x)
    if rank == 1:
        pack()
    dist.barrier()
"""
REDUCE = stack("all_reduce", ("main", 5))
BARRIER = stack("barrier", ("main", 8))
WORK = stack(None, ("main", 4))


def verdict(*ranks: list[Sample]) -> Verdict:
    samples = {100 + rank: ranks_samples for rank, ranks_samples in enumerate(ranks)}
    return judge_job(observation(job(len(ranks)), samples, {SCRIPT: TEXT})).verdict


def samples_of(*frames: list[StackFrame], cpu: float = 0.3, switches: int = 50) -> list[Sample]:
    """Return samples one second apart; each second uses that much CPU time and that many switches."""
    return [sample_at(each, 1000.0 + n, cpu_s=1 + n * cpu, switches=n * switches) for n, each in enumerate(frames)]


def test_ranks_at_work_in_turn_are_no_straggler() -> None:
    found = verdict(samples_of(WORK, REDUCE), samples_of(REDUCE, WORK), samples_of(REDUCE, REDUCE))
    assert (found.state, found.cause, found.culprits, found.findings) == ("progressing", None, [], ["job.progressing"])


def test_one_sample_is_no_straggler() -> None:
    found = verdict(samples_of(WORK, WORK), samples_of(REDUCE, REDUCE), samples_of(REDUCE, REDUCE))
    assert (found.state, found.culprits) == ("progressing", [])


@pytest.mark.parametrize("turns", [3, 5])
def test_straggler_is_last_in_every_sample(turns: int) -> None:
    found = verdict(samples_of(*[REDUCE] * turns), samples_of(*[WORK] * turns), samples_of(*[REDUCE] * turns))
    assert (found.state, found.cause, found.culprits) == ("progressing", "straggler-rank", [1])
    assert found.where == f"{SCRIPT}:4"
    assert found.confidence >= 0.7


def test_straggler_is_marked_where_most_of_its_samples_are() -> None:
    inner = [StackFrame("augment", "/home/ana/run/augment.py", 11), *WORK]
    found = verdict(samples_of(*[REDUCE] * 4), samples_of(inner, inner, inner, WORK), samples_of(*[REDUCE] * 4))
    assert (found.cause, found.where) == ("straggler-rank", "/home/ana/run/augment.py:11")


def test_straggler_from_two_samples_by_cpu_time_has_lower_confidence() -> None:
    found = verdict(
        samples_of(REDUCE, REDUCE, cpu=0.1), samples_of(WORK, WORK, cpu=0.9), samples_of(REDUCE, REDUCE, cpu=0.1)
    )
    assert (found.cause, found.culprits) == ("straggler-rank", [1])
    assert found.confidence < 0.7


@pytest.mark.parametrize(("inner", "again"), [("/torch/utils/data/dataloader.py", True), ("/pdb.py", False)])
def test_straggler_that_waits_for_data(inner: str, again: bool) -> None:
    fetches = [StackFrame("_try_get_data", f"/venv/lib/python3.11/site-packages{inner}", 1), *stack(None, ("main", 3))]
    found = verdict(samples_of(fetches, fetches, cpu=0, switches=0), samples_of(REDUCE, REDUCE, cpu=0, switches=0))
    assert (found.state, found.culprits, needs_another_sample(found)) == ("hung", [0], again)
    slow = [sample_at(fetches, 1000.0 + at, switches=at // 3) for at in (0, 1, 3)]
    reduces = [sample_at(REDUCE, 1000.0 + at, switches=at // 3) for at in (0, 1, 3)]
    if again:
        found = verdict(slow, reduces)
        assert (found.state, found.cause, found.culprits) == ("progressing", "straggler-rank", [0])


def test_straggler_may_be_seen_in_a_collective_in_two_of_eight_samples() -> None:
    waits, works = [REDUCE] * 8, [REDUCE, REDUCE, *[WORK] * 6]
    found = verdict(samples_of(*waits), samples_of(*works), samples_of(*waits))
    assert (found.cause, found.culprits, found.where) == ("straggler-rank", [1], f"{SCRIPT}:4")
    assert "in 6 of 8 samples" in found.why
    fewer = verdict(samples_of(*waits[:4]), samples_of(*works[1:5]), samples_of(*waits[:4]))
    assert (fewer.cause, needs_another_sample(fewer)) == (None, True)


def test_ranks_that_wait_most_of_the_time_are_sampled_again() -> None:
    waits, works = samples_of(REDUCE, REDUCE), samples_of(WORK, WORK)
    assert needs_another_sample(verdict(waits, waits, waits))
    assert needs_another_sample(verdict(waits, works, waits))
    assert not needs_another_sample(verdict(waits, works, works))
    assert not needs_another_sample(verdict(*[samples_of(*[REDUCE] * 8)] * 2))


def test_straggler_in_steps_longer_than_the_gap_between_samples() -> None:
    at = [sample_at(REDUCE, 1000.0 + n / 2, switches=int(n >= 4)) for n in range(6)]
    found = verdict(at, samples_of(*[WORK] * 6, cpu=0.9), at)
    assert (found.state, found.cause, found.culprits) == ("progressing", "straggler-rank", [1])


def test_two_slow_ranks_are_no_straggler() -> None:
    found = verdict(
        samples_of(*[WORK] * 3), samples_of(*[WORK] * 3), samples_of(*[REDUCE] * 3), samples_of(*[REDUCE] * 3)
    )
    assert found.culprits == []


def test_one_rank_at_work_while_all_others_wait() -> None:
    packs = stack(None, ("main", 7))
    waits = samples_of(BARRIER, BARRIER, cpu=0, switches=0)
    found = verdict(waits, samples_of(packs, packs, cpu=0.9), waits)
    assert (found.state, found.cause, found.culprits) == ("progressing", "rank0-slow-work", [1])
    assert (found.branch, found.confidence) == (f"{SCRIPT}:6", 0.85)


def test_rank_at_work_under_a_rank_test_in_every_iteration_is_a_straggler() -> None:
    text = "def main():\n    for x in data:\n        if rank == 1:\n            slow()\n        dist.barrier()\n"
    waits = samples_of(*[stack("barrier", ("main", 5))] * 2, cpu=0, switches=0)
    works = samples_of(*[stack(None, ("main", 4))] * 2, cpu=0.9)
    found = judge_job(observation(job(3), {100: waits, 101: works, 102: waits}, {SCRIPT: text})).verdict
    assert (found.state, found.cause, found.culprits) == ("progressing", "straggler-rank", [1])


def test_third_sample_with_progress_of_the_others_clears_the_straggler() -> None:
    first, then = samples_of(WORK, REDUCE, REDUCE), samples_of(WORK, WORK, WORK, cpu=0.9)
    still = [first[0], first[1], sample_at(REDUCE, 1002.0, cpu_s=first[1].cpu_s, switches=first[1].switches)]
    found = verdict(still, then, still)
    assert (found.state, found.cause, found.culprits) == ("progressing", None, [])


def test_rank_that_joins_late_is_starting() -> None:
    wait = stack("init_process_group", ("main", 2))
    joins = [sample_at(wait, at) for at in (910.0, 911.0)]
    found = verdict(joins, [sample_at(WORK, 910.0), sample_at(WORK, 911.0, cpu_s=2.0)])
    assert found.state == "starting"


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("time.sleep(6)", "progressing"),
        ("time.sleep(pause_s)", "progressing"),
        ("time.sleep(3600)", "hung"),
        ("while not ready(): time.sleep(1)", "hung"),
    ],
)
def test_short_sleep_of_the_script_is_progress(line: str, state: str) -> None:
    loop, _, rest = line.partition(": ")
    text = f"def main():\n    {loop}:\n        {rest}\n" if rest else f"def main():\n\n    {line}\n"
    text += "    dist.barrier()\n"
    asleep = samples_of(*[stack(None, ("main", 3))] * 2, cpu=0, switches=0)
    waits = samples_of(*[stack("barrier", ("main", 4))] * 2, cpu=0, switches=0)
    found = judge_job(observation(job(2), {100: waits, 101: asleep}, {SCRIPT: text})).verdict
    assert (found.state, found.culprits, found.where) == (state, [1], f"{SCRIPT}:3")
    assert (found.confidence <= 0.5) == (state == "progressing")


def test_every_rank_in_a_sleep_is_unknown() -> None:
    text = "def main():\n    time.sleep(pause_s)\n"
    asleep = samples_of(*[stack(None, ("main", 2))] * 2, cpu=0, switches=0)
    found = judge_job(observation(job(2), {100: asleep, 101: asleep}, {SCRIPT: text})).verdict
    assert (found.state, found.confidence < 0.5) == ("unknown", True)
    assert "it continues when the sleep ends" in found.why
