"""Which thread keeps Python's lock, told from several looks at the threads of a process."""

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


def looks(
    main: list[StackFrame], *, state: str = "S", owns: bool = True, cpu: float = 0.0, asks: int = 0, **other: object
) -> list[Sample]:
    """Two looks, a second apart; the other thread switches ``asks`` times in between."""
    thread = {"name": "beat", "frames": BEATS, "process_state": "S", **other}
    return [
        Sample(
            at=1000.0 + n,
            process_state=state,
            cpu_s=n * cpu,
            switches=5,
            stack=main,
            owns_gil=owns,
            others=[msgspec.convert(thread | {"switches": n * asks}, ThreadStack, from_attributes=True)],
        )
        for n in (0, 1)
    ]


def judged(rank1: list[Sample]) -> JobReport:
    waits = [Sample(at=1000.0 + n, process_state="S", cpu_s=0, switches=5, stack=BARRIER) for n in (0, 1)]
    return judge_job(observation(job(2), {100: waits, 101: rank1}, {SCRIPT: TEXT}))


def test_asleep_with_the_lock_in_hand_is_hung() -> None:
    report = judged(looks(DECODES))
    assert (report.verdict.state, report.verdict.cause, report.verdict.culprits) == ("hung", "python-lock", [1])
    assert (report.verdict.where, report.verdict.findings) == (f"{SCRIPT}:2", ["job.rank-keeps-gil"])


def test_at_work_with_the_lock_is_not_known_where_another_thread_asks_for_it() -> None:
    verdict = judged(looks(DECODES, state="R", cpu=0.9, asks=150)).verdict
    assert (verdict.state, verdict.cause, verdict.culprits) == ("unknown", "python-lock", [1])
    assert verdict.confidence < 0.7


def test_at_work_with_the_lock_is_work_where_nobody_asks_for_it() -> None:
    verdict = judged(looks(DECODES, state="R", cpu=0.9)).verdict
    assert (verdict.state, verdict.cause) == ("progressing", "straggler-rank")
    assert "a long call into C, or a loop there" in verdict.why


def test_thread_that_keeps_it_from_the_main_thread_is_named_with_its_line() -> None:
    kept = looks(BARRIER, owns=False, owns_gil=True)
    asking = [msgspec.structs.replace(look, switches=n * 180) for n, look in enumerate(kept)]
    verdict = judged(asking).verdict
    assert (verdict.state, verdict.cause, verdict.where) == ("hung", "python-lock", f"{SCRIPT}:6")


def test_thread_that_keeps_it_while_the_main_thread_does_not_ask_is_nobodys_concern() -> None:
    verdict = judged(looks(BARRIER, owns=False, owns_gil=True)).verdict
    assert verdict.cause is None


@pytest.mark.parametrize("change", [{"owns": False}, {"state": "R"}, {"state": "D"}, {"state": "T"}])
def test_who_does_not_have_it_or_does_not_sleep(change: dict[str, object]) -> None:
    found = gil_holder(msgspec.convert(looks(DECODES, **change), list[Sample]))  # pyright: ignore[reportArgumentType]
    assert found is None or not found.asleep


def test_another_line_in_the_next_look_is_code_in_python() -> None:
    first, then = looks(DECODES)[0], looks(stack(None, ("main", 1)))[1]
    assert gil_holder([first, then]) is None
    assert gil_holder([first]) is None
