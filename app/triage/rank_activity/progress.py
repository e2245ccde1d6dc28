"""Detect progress between samples of a process, and derive the state to display."""

from collections.abc import Sequence

from ..types import DisplayState, Sample
from .collectives_in_stack import collective_of
from .frames import IMPORTING, user_frames
from .wait_reasons import is_idle

STOPPED = ("T", "t")
STOPPED_OR_GONE = (*STOPPED, "Z", "")
CPU_SHARE_AT_WORK = 0.1  # of one core; gloo's own threads need about 0.01 while all ranks wait
POLL_SWITCHES_PER_S = 200  # at most, of a process that sleeps and checks again
BYTES_AT_WORK = 1 << 16  # read or written between two samples; a process that only waits transfers next to nothing
STARTED_S = 20.0  # a process of this age has begun its script


def has_progressed(samples: Sequence[Sample]) -> bool:
    """Return whether there is a sign of progress between two samples.

    Signs are a different stack, a context switch of the main thread (a thread that waits in gloo or the store sleeps),
    and CPU time. CPU time does not count if a GPU is in use, because CUDA and NCCL spin.
    """
    if len(samples) < 2:
        return bool(samples) and samples[0].process_state not in STOPPED_OR_GONE
    first, last = samples
    if last.process_state in STOPPED_OR_GONE:
        return False
    if first.stack != last.stack:
        return True
    if collective_of(last.stack)[0] == "init_process_group":
        return False  # it wakes up to try again
    share = (last.cpu_s - first.cpu_s) / max(last.at - first.at, 1e-3)
    at_work = share > CPU_SHARE_AT_WORK or last.process_state == "R"
    elsewhere = last.process_state == "S" and _another_thread_works(first, last)
    transferred_bytes = last.read_bytes + last.written_bytes - first.read_bytes - first.written_bytes
    if transferred_bytes > BYTES_AT_WORK and collective_of(last.stack)[0] is None:
        return True
    return last.switches != first.switches or (at_work and not last.gpu and not elsewhere)


def _another_thread_works(first: Sample, last: Sample) -> bool:
    """Return whether another Python thread may have used the CPU time while the main one waits in a collective."""
    if collective_of(last.stack)[0] is None:
        return False
    before, after = ([thread.frames for thread in sample.others] for sample in (first, last))
    return before != after or any(not is_idle(frames) for frames in after)


def still_for_s(samples: Sequence[Sample]) -> float | None:
    """Return the time without progress up to the last sample, a lower bound."""
    if len(samples) < 2:
        return None
    since = samples[-1].at
    for first, last in zip(reversed(samples[:-1]), reversed(samples[1:]), strict=True):
        if has_progressed([first, last]):
            break
        since = first.at
    return round(samples[-1].at - since, 1)


def display_state(samples: Sequence[Sample], progressed: bool, started_at: float) -> DisplayState:
    """Return the state to display.

    ``progressed``: between the last two samples; ``started_at``: the start time of the process, 0 if unknown.
    """
    last = samples[-1] if samples else None
    if last is None or last.process_state == "":
        return "dead"
    if last.process_state == "Z":
        return "zombie"
    if last.process_state in STOPPED:
        return "stopped"
    if last.problem and not last.stack:
        return "unreadable"
    if not progressed:
        return "blocked_io" if all(sample.process_state == "D" for sample in samples[-2:]) else "waiting"
    imports = [index for index, frame in enumerate(last.stack) if frame.path == IMPORTING]
    # The frames inside the innermost import: code that a module runs while it is imported is part of the start-up.
    outside = user_frames(last.stack[imports[-1] + 1 :]) if imports else []
    importing = bool(imports) and all(frame.function == "<module>" for frame in outside)
    young_without_stack = not last.stack and last.at - (started_at or last.at) < STARTED_S
    return "starting" if importing or young_without_stack else "running"


def still_at_one_place(samples: Sequence[Sample]) -> bool:
    """Return whether the user's code is at the same line in every sample and next to no CPU time was used."""
    places = [user_frames(sample.stack) for sample in samples]
    if len(samples) < 2 or any(place != places[0] for place in places):
        return False
    first, last = samples[0], samples[-1]
    span_s = max(last.at - first.at, 1e-3)
    share = (last.cpu_s - first.cpu_s) / span_s
    switches_per_s = (last.switches - first.switches) / span_s
    return share < CPU_SHARE_AT_WORK and switches_per_s < POLL_SWITCHES_PER_S
