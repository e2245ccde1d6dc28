"""Whether a process lives on between two looks, and in which state it is."""

from collections.abc import Sequence

from ..types import DisplayState, Sample
from .collectives_in_stack import collective_of
from .frames import user_frames
from .wait_reasons import is_idle

IMPORTING = "<frozen importlib._bootstrap>"
STOPPED = ("T", "t")
STOPPED_OR_GONE = (*STOPPED, "Z", "")
CPU_SHARE_AT_WORK = 0.1  # of one core; gloo's own threads need about 0.01 while everybody waits
SWITCHES_OF_A_POLL = 200  # a second, at most, of who sleeps and asks again
BYTES_AT_WORK = 1 << 16  # read or written between two looks; a process that only waits passes next to nothing
STARTED_S = 20.0  # a process that has lived so long has begun its script


def has_progressed(looks: Sequence[Sample]) -> bool:
    """Whether anything shows life between two looks: another stack, a switch of the main thread (under gloo and the
    store a waiting thread sleeps), or CPU time, which is no sign where a GPU is in use (CUDA and NCCL spin)."""
    if len(looks) < 2:
        return bool(looks) and looks[0].process_state not in STOPPED_OR_GONE
    first, last = looks
    if last.process_state in STOPPED_OR_GONE:
        return False
    if first.stack != last.stack:
        return True
    if collective_of(last.stack)[0] == "init_process_group":
        return False  # it wakes up to try again
    share = (last.cpu_s - first.cpu_s) / max(last.at - first.at, 1e-3)
    at_work = share > CPU_SHARE_AT_WORK or last.process_state == "R"
    elsewhere = last.process_state == "S" and _another_thread_works(first, last)
    passed = last.read_bytes + last.written_bytes - first.read_bytes - first.written_bytes
    if passed > BYTES_AT_WORK and collective_of(last.stack)[0] is None:
        return True
    return last.switches != first.switches or (at_work and not last.gpu and not elsewhere)


def _another_thread_works(first: Sample, last: Sample) -> bool:
    """Whether the CPU time may be that of a Python thread beside a main thread that waits in a collective."""
    if collective_of(last.stack)[0] is None:
        return False
    before, after = ([thread.frames for thread in look.others] for look in (first, last))
    return before != after or any(not is_idle(frames) for frames in after)


def still_for_s(looks: Sequence[Sample]) -> float | None:
    """How long nothing has moved, at least."""
    if len(looks) < 2:
        return None
    since = looks[-1].at
    for first, last in zip(reversed(looks[:-1]), reversed(looks[1:]), strict=True):
        if has_progressed([first, last]):
            break
        since = first.at
    return round(looks[-1].at - since, 1)


def display_state(looks: Sequence[Sample], moved: bool, started_at: float) -> DisplayState:
    """The state to show. ``moved``: between the last two looks; ``started_at``: when the process began, 0 unknown."""
    last = looks[-1] if looks else None
    if last is None or last.process_state == "":
        return "dead"
    if last.process_state == "Z":
        return "zombie"
    if last.process_state in STOPPED:
        return "stopped"
    if last.problem and not last.stack:
        return "unreadable"
    if not moved:
        return "blocked_io" if all(look.process_state == "D" for look in looks[-2:]) else "waiting"
    imports = [index for index, frame in enumerate(last.stack) if frame.path == IMPORTING]
    outside = (
        user_frames(last.stack[imports[-1] + 1 :]) if imports else []
    )  # what a module does while imported is start-up
    importing = bool(imports) and all(frame.function == "<module>" for frame in outside)
    bare_process = not last.stack and last.at - (started_at or last.at) < STARTED_S
    return "starting" if importing or bare_process else "running"


def still_at_one_place(looks: Sequence[Sample]) -> bool:
    """Whether every look shows the user's code at the same line, with next to no CPU time used in between."""
    places = [user_frames(look.stack) for look in looks]
    if len(looks) < 2 or any(place != places[0] for place in places):
        return False
    share = (looks[-1].cpu_s - looks[0].cpu_s) / max(looks[-1].at - looks[0].at, 1e-3)
    switches = (looks[-1].switches - looks[0].switches) / max(looks[-1].at - looks[0].at, 1e-3)
    return share < CPU_SHARE_AT_WORK and switches < SWITCHES_OF_A_POLL
