"""Find the thread that holds the GIL in every sample and keeps it from the other threads of its process.

Blocking calls of Python's own release the GIL, and Python code hands it to a requesting thread within 5 ms
(``sys.getswitchinterval``). A thread that holds it in every sample, at one place, is therefore in a C call that keeps
it: computing there, or asleep. A thread that wants the GIL asks every 5 ms (CPython, Python/ceval_gil.c, ``take_gil``),
which shows in its context switches.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ...training_script.frame import StackFrame
from ..types import Sample, ThreadStack

GIL_REQUESTS_PER_S = 50.0  # at least, of a thread that wants the GIL; 200 on an idle machine
ASLEEP = "S"  # a thread in state "D" may be reading from the disk


class GilHolder(NamedTuple):
    """A thread that keeps the GIL. ``name`` is empty for the main thread."""

    name: str
    frames: list[StackFrame]
    asleep: bool
    waiting_threads: list[str]  # the names of the threads that request the GIL


def gil_holder(samples: Sequence[Sample]) -> GilHolder | None:
    """Return the thread that held the GIL in every sample at the same place, or None if there is none."""
    if len(samples) < 2:
        return None
    owners = [next((thread for thread in _threads(sample) if thread.owns_gil), None) for sample in samples]
    last = owners[-1]
    if last is None or not last.frames or any(_place(owner) != _place(last) for owner in owners):
        return None
    asleep = all(owner is not None and owner.process_state == ASLEEP for owner in owners)
    return GilHolder(last.name, last.frames, asleep, _waiting_threads(samples[0], samples[-1], last))


def _threads(sample: Sample) -> list[ThreadStack]:
    return [ThreadStack("", sample.stack, sample.process_state, sample.switches, sample.owns_gil), *sample.others]


def _place(thread: ThreadStack | None) -> object:
    return (thread.name, thread.frames) if thread else None


def _waiting_threads(first: Sample, last: Sample, owner: ThreadStack) -> list[str]:
    """Return the threads that stayed at the same place and requested the GIL all the time."""
    before = {thread.name: thread for thread in _threads(first)}
    span_s = max(last.at - first.at, 1e-3)
    return [
        thread.name
        for thread in _threads(last)
        if thread.name != owner.name
        and thread.name in before
        and thread.frames == before[thread.name].frames
        and (thread.switches - before[thread.name].switches) / span_s >= GIL_REQUESTS_PER_S
    ]
