"""Counters that count as progress."""

import os

import pytest
from ddpwizard.app.watchdog.progress import CounterSample, count_collectives, has_progressed, sample_counters


def counted(**more: object) -> CounterSample:
    return CounterSample(**({"at": 2.0, "state": "S"} | more))  # type: ignore[arg-type]


FIRST = CounterSample(at=0.0, state="S", collectives=4)


@pytest.mark.parametrize(
    ("last", "answer"),
    [
        (counted(), False),
        (counted(cpu_s=0.1), False),
        (counted(cpu_s=1.0), True),
        (counted(cpu_s=2.0, gpu=True), False),
        (counted(cpu_s=2.0, gpu=True, collectives=4), False),
        (counted(cpu_s=2.0, gpu=True, collectives=5), True),
        (counted(wakes=3), False),
        (counted(wakes=30), True),
        (counted(io_bytes=500), False),
        (counted(io_bytes=50_000), True),
        (counted(cpu_s=1.0, wakes=30, state="T"), False),
        (counted(wakes=30, state="Z"), False),
        (counted(state=""), False),
    ],
)
def test_progress_between_two_counter_samples(last: CounterSample, answer: bool) -> None:
    assert has_progressed(FIRST, last) is answer


def test_counters_of_a_living_and_of_a_missing_process() -> None:
    here = sample_counters(os.getpid())
    assert here.cpu_s > 0 and here.io_bytes > 0
    assert sample_counters(2**22 - 1).state == ""


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        (b'{"pg_status": {"0": {"last_completed_collective": "2", "last_started_collective": "-1"}}}', 2),
        (b'{"entries": []}', 0),
        (b'{"pg_status": {"0": {"last_completed_collective": "many"}}}', None),
        (b"[", None),
        (b"", None),
    ],
)
def test_collectives_are_parsed_from_an_answer(answer: bytes, number: int | None) -> None:
    assert count_collectives(answer) == number
