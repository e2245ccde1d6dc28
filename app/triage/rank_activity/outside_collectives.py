"""Find out what a rank outside any collective waits for, from its stack, source lines, threads and children."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from ...text.units import seconds_text
from ...training_script.frame import StackFrame
from ...training_script.line_queries import LineQueries, ScriptFiles
from ..types import Child, ProcessSamples, Sample
from .collectives_in_stack import collective_of
from .frames import NOT_THE_USERS, function_name, inner_frames, user_frames
from .wait_reasons import (
    LONG_SLEEP_S,
    POLLING,
    UNTIL_SLEEP_ENDS,
    WHILE_EXITING,
    WaitReason,
    is_idle,
    kernel_wait_reason,
    polled_value,
    sleeps_for_s,
    wait_reason,
)

BLOCKING_MODULES = ("/queue.py", "/threading.py", "/multiprocessing/queues.py", "/concurrent/futures/_base.py")
POLLING_KINDS = ("person", "service", "lock", "loader")  # waits that wake up now and then to check again


def wait_outside_collectives(
    sample: Sample, stack: Sequence[StackFrame], frames: Sequence[StackFrame], progressed: bool, sources: ScriptFiles
) -> tuple[WaitReason | None, bool]:
    """Return what a rank outside any collective waits for, and whether that wait wakes up now and then (polls)."""
    if not stack:
        return None, False
    inner = frames[-1] if frames else None
    source = sources[inner.path] if inner else None
    found = wait_reason(stack, source.statement(inner.line) if source and inner else "")
    polls = found is not None and found.kind in POLLING_KINDS
    if found and found.kind in ("sleep", "loader") and source and inner and stack[0] == inner:
        found, polls = _sleep_reason(source, inner.line, found)
    if not progressed and (found is None or found.kind == "files"):
        found = kernel_wait_reason(sample.waits_in) or found
    if _is_exiting(sample, sources):
        what = found.what.removesuffix(WHILE_EXITING) if found else "in Python itself"
        found = WaitReason("exit", what + WHILE_EXITING)
    return found, polls


def _sleep_reason(source: LineQueries, line: int, found: WaitReason) -> tuple[WaitReason, bool]:
    """Return the purpose of a sleep, and whether it is part of a polling loop: polling, a short pause, a long sleep."""
    if found.kind == "loader":
        return (WaitReason("sleep", UNTIL_SLEEP_ENDS), False) if _is_short_sleep(source, line) else (found, True)
    if poll := source.poll_around(line):
        return polled_value(poll) or POLLING, True
    lasts_s = sleeps_for_s(source.statement(line))
    if lasts_s is not None and lasts_s > LONG_SLEEP_S:
        return WaitReason("dormant", f"until its sleep of {seconds_text(lasts_s, whole=True)} is over"), False
    return found, False


def _is_short_sleep(source: LineQueries, line: int) -> bool:
    """Return whether a line is a single short sleep with a constant duration."""
    lasts_s = sleeps_for_s(source.statement(line))
    return lasts_s is not None and lasts_s <= LONG_SLEEP_S and not source.poll_around(line)


def relevant_stack(sample: Sample) -> list[StackFrame]:
    """Return the stack that explains what the process does.

    This is the stack of the main thread. If the main thread waits for another thread that is in a collective, or runs
    no user code any more while another thread does, the frames of that thread are on top.
    """
    collective, _ = collective_of(sample.stack)
    if collective is None and (found := wait_reason(sample.stack, "")) and found.kind in ("lock", "exit"):
        for thread in sample.others:
            if collective_of(thread.frames)[0] and user_frames(thread.frames):
                return [*thread.frames, *sample.stack]
    if sample.stack and not user_frames(sample.stack):
        with_user_code = [thread.frames for thread in sample.others if user_frames(thread.frames)]
        awaited = next((frames for frames in with_user_code if not is_idle(frames)), next(iter(with_user_code), []))
        return [*sample.stack, *awaited]  # the exiting main thread waits for this one
    return sample.stack


def _is_exiting(sample: Sample, sources: ScriptFiles) -> bool:
    """Return whether the script is over and a function runs that was registered with ``atexit``.

    That is a function of the user, or one of a queue or thread (``atexit.register(queue.join)``), which has no frame of
    the script below it.
    """
    if not sample.stack:
        return False
    outermost = sample.stack[-1]
    if function_name(outermost) in ("<module>", "_run_module_as_main"):
        return False
    if NOT_THE_USERS.search(outermost.path):
        return outermost.path.endswith(BLOCKING_MODULES) and not user_frames(sample.stack)
    return sources[outermost.path].registers_exit()


def awaits_user_iterator(frames: Sequence[StackFrame], sources: ScriptFiles) -> str | None:
    """Return the place that waits for the next item of an iterator written by the user: its own data pipeline."""
    for outer, inner in pairwise(frames):
        is_generator = sources[inner.path].is_generator(inner.line) and sources[outer.path].iterates(outer.line)
        if is_generator or function_name(inner) in ("__next__", "__anext__"):
            return f"{Path(outer.path).name}:{outer.line}"
    return None


def is_multiprocess_queue(stack: Sequence[StackFrame]) -> bool:
    """Return whether the queue in a stack is filled by other processes."""
    return any("/multiprocessing/" in frame.path for frame in inner_frames(stack))


def waits_for_busy_child(observed: ProcessSamples, found: WaitReason | None, sources: ScriptFiles) -> bool:
    """Return whether a rank waits for a process it started that is itself at work."""
    kind = {"lock": "other", "service": "other", "loader": "loader"}.get(found.kind) if found else None
    awaited = [child for child in observed.children if child.kind == kind]
    return any(
        (child.moved and not _child_waits(child, sources)) or _child_sleeps_briefly(child, sources) for child in awaited
    )


def _child_sleeps_briefly(child: Child, sources: ScriptFiles) -> bool:
    frames = user_frames(child.stack)
    return bool(frames) and child.stack[0] == frames[-1] and _is_short_sleep(sources[frames[-1].path], frames[-1].line)


def _child_waits(child: Child, sources: ScriptFiles) -> bool:
    frames = user_frames(child.stack)
    text = sources[frames[-1].path].statement(frames[-1].line) if frames and child.stack[0] == frames[-1] else ""
    return is_idle(child.stack) or wait_reason(child.stack[:1], text) is not None
