"""Successive reports of a job: time without progress adds up, progress resets it."""

import msgspec
from ddpwizard.app.triage.job_history import JobHistory
from ddpwizard.app.triage.job_text import problems
from ddpwizard.app.triage.merge_samples import extend_with_earlier_samples, keep_first_sources
from ddpwizard.app.triage.types import JobReport, Sample
from ddpwizard.app.triage.verdict import judge_job
from helpers.synthetic_job import SCRIPT, job, observation, sample_at, stack

TEXT = "def main():\n    if rank == 0:\n        dist.all_reduce(x)\n    dist.barrier()\nmain()\n"
INSIDE, AFTER = stack("all_reduce", ("main", 3)), stack("barrier", ("main", 4))


def report(at: float, *, switches: int = 5) -> JobReport:
    """Rank 0 in the all-reduce, rank 1 in the barrier, two samples from ``at`` on; ``switches`` are rank 0's."""
    samples: dict[int, list[Sample]] = {
        100: [sample_at(INSIDE, when, switches=switches) for when in (at, at + 1)],
        101: [sample_at(AFTER, when) for when in (at, at + 1)],
    }
    return judge_job(observation(job(2), samples, {SCRIPT: TEXT}))


def since(found: JobReport) -> list[float | None]:
    return [row.since_s for row in found.ranks]


def test_time_without_progress_adds_up_over_samples() -> None:
    found = report(1000.0)
    for at in (1006.0, 1012.0, 1018.0):
        found = extend_with_earlier_samples(found, report(at))
    assert since(found) == [19.0, 19.0]
    assert all(len(seen.samples) == 4 for seen in found.observed.seen), "only the samples that are needed are kept"
    assert (found.verdict.state, found.verdict.culprits) == ("hung", [0])


def test_a_screen_that_is_opened_again_goes_on_counting() -> None:
    history = JobHistory()
    for at in (1000.0, 1006.0):
        history.extend([report(at)], of_all_jobs=True)
    assert since(history.extend([report(1012.0)], of_all_jobs=False)[0]) == [13.0, 13.0]
    history.extend([], of_all_jobs=False)
    assert since(history.extend([report(1018.0)], of_all_jobs=True)[0]) == [19.0, 19.0]
    history.extend([], of_all_jobs=True)
    assert since(history.extend([report(1024.0)], of_all_jobs=True)[0]) == [1.0, 1.0], "another job with this id"


def test_progress_between_two_samples_resets_the_time() -> None:
    found = extend_with_earlier_samples(report(1000.0), report(1006.0, switches=9))
    assert since(found) == [1.0, 7.0]


def started(found: JobReport, at: float) -> JobReport:
    """Return the report with another start time of its processes."""
    seen = [
        msgspec.structs.replace(seen, process=msgspec.structs.replace(seen.process, started_at=at))
        for seen in found.observed.seen
    ]
    return judge_job(msgspec.structs.replace(found.observed, seen=seen))


def test_a_restarted_process_resets_the_time() -> None:
    before = started(report(1000.0), 900.0)
    assert since(extend_with_earlier_samples(before, started(report(1006.0), 900.02))) == [7.0, 7.0], (
        "no clock is that exact"
    )
    assert since(extend_with_earlier_samples(before, started(report(1006.0), 1005.0))) == [1.0, 1.0]


def test_the_first_and_an_equal_report_are_unchanged() -> None:
    found = report(1000.0)
    assert extend_with_earlier_samples(None, found) is found
    assert extend_with_earlier_samples(found, found) is found


def edited(found: JobReport, text: str) -> JobReport:
    """Return the report as it is after somebody wrote another text to the script."""
    return judge_job(msgspec.structs.replace(found.observed, sources={SCRIPT: text}, changed_sources={SCRIPT: 1003.0}))


FIXED = "def main():\n    dist.all_reduce(x)\n    if rank == 0:\n        print(x)\n    dist.barrier()\nmain()\n"


def test_a_running_job_keeps_the_code_and_the_verdict_it_started_with() -> None:
    before = report(1000.0)
    after = edited(report(1006.0), FIXED)
    assert after.verdict.branch != before.verdict.branch, "the line of the condition has moved in the new file"
    kept = keep_first_sources(before, after)
    assert kept.sources == before.sources
    assert (kept.verdict.cause, kept.verdict.branch) == (before.verdict.cause, before.verdict.branch)
    assert any("train.py was changed at" in line and "still runs the old code" in line for line in problems(kept))


def test_a_file_that_has_its_first_text_again_is_unchanged() -> None:
    before = report(1000.0)
    kept = keep_first_sources(before, edited(report(1006.0), before.sources[SCRIPT]))
    assert not kept.observed.changed_sources
    assert not any("was changed at" in line for line in problems(kept))


def test_a_file_that_was_changed_before_it_was_first_seen_stays_changed() -> None:
    before = edited(report(1000.0), FIXED)
    assert keep_first_sources(before, edited(report(1006.0), FIXED)).observed.changed_sources


def test_a_restarted_job_has_the_code_of_its_file() -> None:
    before = started(report(1000.0), 900.0)
    after = started(edited(report(1006.0), FIXED), 1005.0)
    assert keep_first_sources(before, after) is after
