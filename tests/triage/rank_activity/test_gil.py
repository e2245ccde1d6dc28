"""The thread that keeps the GIL, from several samples of the threads of a process."""

import msgspec
import pytest
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.triage.rank_activity.gil import gil_holder
from ddpwizard.app.triage.types import JobReport, Sample, ThreadStack
from ddpwizard.app.triage.verdict import judge_job
from helpers.synthetic_job import SCRIPT, job, observation, stack

TEXT = "def main():\n    decode(frame)\n    dist.barrier()\n\ndef beat():\n    library.wait()\n"
DECODES, BARRIER = stack(None, ("main", 2)), stack("barrier", ("main", 3))
BEATS = [StackFrame("beat", SCRIPT, 6)]


def samples_of(
    main: list[StackFrame], *, state: str = "S", owns: bool = True, cpu: float = 0.0, requests: int = 0, **other: object
) -> list[Sample]:
    """Return two samples, one second apart; the other thread has ``requests`` switches in between."""
    thread = {"name": "beat", "frames": BEATS, "process_state": "S", **other}
    return [
        Sample(
            at=1000.0 + n,
            process_state=state,
            cpu_s=n * cpu,
            switches=5,
            stack=main,
            owns_gil=owns,
            others=[msgspec.convert(thread | {"switches": n * requests}, ThreadStack, from_attributes=True)],
        )
        for n in (0, 1)
    ]


def judged(rank1: list[Sample]) -> JobReport:
    waits = [Sample(at=1000.0 + n, process_state="S", cpu_s=0, switches=5, stack=BARRIER) for n in (0, 1)]
    return judge_job(observation(job(2), {100: waits, 101: rank1}, {SCRIPT: TEXT}))


def test_rank_asleep_with_the_gil_is_hung() -> None:
    report = judged(samples_of(DECODES))
    assert (report.verdict.state, report.verdict.cause, report.verdict.culprits) == ("hung", "python-lock", [1])
    assert (report.verdict.where, report.verdict.findings) == (f"{SCRIPT}:2", ["job.rank-keeps-gil"])


def test_computing_with_the_gil_is_unknown_if_another_thread_requests_it() -> None:
    verdict = judged(samples_of(DECODES, state="R", cpu=0.9, requests=150)).verdict
    assert (verdict.state, verdict.cause, verdict.culprits) == ("unknown", "python-lock", [1])
    assert verdict.confidence < 0.7


def test_computing_with_the_gil_is_progress_if_no_thread_requests_it() -> None:
    verdict = judged(samples_of(DECODES, state="R", cpu=0.9)).verdict
    assert (verdict.state, verdict.cause) == ("progressing", "straggler-rank")
    assert "a long C call, or a loop there" in verdict.why


def test_thread_that_keeps_the_gil_from_the_main_thread_is_located() -> None:
    holding = samples_of(BARRIER, owns=False, owns_gil=True)
    requesting = [msgspec.structs.replace(sample, switches=n * 180) for n, sample in enumerate(holding)]
    verdict = judged(requesting).verdict
    assert (verdict.state, verdict.cause, verdict.where) == ("hung", "python-lock", f"{SCRIPT}:6")


def test_gil_of_a_thread_is_ignored_if_the_main_thread_does_not_request_it() -> None:
    verdict = judged(samples_of(BARRIER, owns=False, owns_gil=True)).verdict
    assert verdict.cause is None


@pytest.mark.parametrize("change", [{"owns": False}, {"state": "R"}, {"state": "D"}, {"state": "T"}])
def test_no_gil_holder_without_the_gil_or_awake(change: dict[str, object]) -> None:
    found = gil_holder(msgspec.convert(samples_of(DECODES, **change), list[Sample]))  # pyright: ignore[reportArgumentType]
    assert found is None or not found.asleep


def test_no_gil_holder_if_the_line_changes() -> None:
    first, then = samples_of(DECODES)[0], samples_of(stack(None, ("main", 1)))[1]
    assert gil_holder([first, then]) is None
    assert gil_holder([first]) is None
