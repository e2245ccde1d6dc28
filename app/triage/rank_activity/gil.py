"""Which thread keeps Python's lock (the GIL) from the others of its process, over all looks.

A wait of Python's own gives the lock back, and code written in Python gives it to who asks within 5 ms
(``sys.getswitchinterval``). Who has it in every look, at one place, is in a call into C that keeps it: at work there,
or asleep. Who wants it asks every 5 ms (CPython, Python/ceval_gil.c, ``take_gil``), which shows in its switches.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ...training_script.frame import StackFrame
from ..types import Sample, ThreadStack

ASKS_PER_S = 50.0  # at least, of a thread that wants the lock; 200 where the machine is not busy
ASLEEP = "S"  # who waits for a disk ("D") may just be read from it


class GilHolder(NamedTuple):
    """A thread that keeps the lock. ``name`` is empty for the main thread; ``asking`` names those that want it."""

    name: str
    frames: list[StackFrame]
    asleep: bool
    asking: list[str]


def gil_holder(looks: Sequence[Sample]) -> GilHolder | None:
    """The thread that had the lock in every look without getting any further; None where there is none."""
    if len(looks) < 2:
        return None
    owners = [next((thread for thread in _threads(look) if thread.owns_gil), None) for look in looks]
    last = owners[-1]
    if last is None or not last.frames or any(_place(owner) != _place(last) for owner in owners):
        return None
    asleep = all(owner is not None and owner.process_state == ASLEEP for owner in owners)
    return GilHolder(last.name, last.frames, asleep, _asking(looks[0], looks[-1], last))


def _threads(look: Sample) -> list[ThreadStack]:
    return [ThreadStack("", look.stack, look.process_state, look.switches, look.owns_gil), *look.others]


def _place(thread: ThreadStack | None) -> object:
    return (thread.name, thread.frames) if thread else None


def _asking(first: Sample, last: Sample, owner: ThreadStack) -> list[str]:
    """The threads that stand where they stood, and asked for the lock all the time."""
    before = {thread.name: thread for thread in _threads(first)}
    span_s = max(last.at - first.at, 1e-3)
    return [
        thread.name
        for thread in _threads(last)
        if thread.name != owner.name
        and thread.name in before
        and thread.frames == before[thread.name].frames
        and (thread.switches - before[thread.name].switches) / span_s >= ASKS_PER_S
    ]
