"""Looks at a job that follow one another: standing still adds up, moving on does not."""

import msgspec
from ddpwizard.app.triage.merge_samples import extend_with_earlier_samples
from ddpwizard.app.triage.types import JobReport, Sample
from ddpwizard.app.triage.verdict import judge_job
from helpers.synthetic_job import SCRIPT, job, look, observation, stack

TEXT = "def main():\n    if rank == 0:\n        dist.all_reduce(x)\n    dist.barrier()\nmain()\n"
INSIDE, AFTER = stack("all_reduce", ("main", 3)), stack("barrier", ("main", 4))


def report(at: float, *, switches: int = 5) -> JobReport:
    """Rank 0 in the all-reduce, rank 1 at the barrier, looked at twice from ``at`` on; ``switches`` are rank 0's."""
    samples: dict[int, list[Sample]] = {
        100: [look(INSIDE, when, switches=switches) for when in (at, at + 1)],
        101: [look(AFTER, when) for when in (at, at + 1)],
    }
    return judge_job(observation(job(2), samples, {SCRIPT: TEXT}))


def since(found: JobReport) -> list[float | None]:
    return [row.since_s for row in found.ranks]


def test_what_stands_still_through_many_looks_has_stood_still_all_along() -> None:
    found = report(1000.0)
    for at in (1006.0, 1012.0, 1018.0):
        found = extend_with_earlier_samples(found, report(at))
    assert since(found) == [19.0, 19.0]
    assert all(len(seen.samples) == 4 for seen in found.observed.seen), "only what is needed is kept"
    assert (found.verdict.state, found.verdict.culprits) == ("hung", [0])


def test_a_rank_that_went_on_between_two_looks_begins_anew() -> None:
    found = extend_with_earlier_samples(report(1000.0), report(1006.0, switches=9))
    assert since(found) == [1.0, 7.0]


def started(found: JobReport, at: float) -> JobReport:
    """The same, its processes started at another time."""
    seen = [
        msgspec.structs.replace(seen, process=msgspec.structs.replace(seen.process, started_at=at))
        for seen in found.observed.seen
    ]
    return judge_job(msgspec.structs.replace(found.observed, seen=seen))


def test_another_process_of_the_same_rank_begins_anew() -> None:
    before = started(report(1000.0), 900.0)
    assert since(extend_with_earlier_samples(before, started(report(1006.0), 900.02))) == [7.0, 7.0], (
        "no clock is that exact"
    )
    assert since(extend_with_earlier_samples(before, started(report(1006.0), 1005.0))) == [1.0, 1.0]


def test_the_first_look_and_the_same_look_stay_as_they_are() -> None:
    found = report(1000.0)
    assert extend_with_earlier_samples(None, found) is found
    assert extend_with_earlier_samples(found, found) is found
