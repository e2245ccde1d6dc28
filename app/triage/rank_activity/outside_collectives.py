"""What a rank outside of any collective waits for: its stack read with the text of its lines, and with what its
threads and children do."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from ...training_script.frame import StackFrame
from ...training_script.line_queries import LineQueries, ScriptFiles
from ..types import Child, ProcessSamples, Sample
from .collectives_in_stack import collective_of
from .frames import NOT_THE_USERS, function_name, inner_frames, user_frames
from .wait_reasons import (
    LONG_SLEEP_S,
    POLLING,
    UNTIL_SLEEP_ENDS,
    WaitReason,
    is_idle,
    kernel_wait_reason,
    polled_value,
    sleeps_for_s,
    wait_reason,
)

WAITS_OF_PYTHON = ("/queue.py", "/threading.py", "/multiprocessing/queues.py", "/concurrent/futures/_base.py")
ASKS_AGAIN = ("person", "service", "lock", "loader")  # waits that wake up now and then to look once more


def wait_outside_collectives(
    sample: Sample, stack: Sequence[StackFrame], frames: Sequence[StackFrame], has_moved: bool, sources: ScriptFiles
) -> tuple[WaitReason | None, bool]:
    """What a rank outside of any collective waits for, and whether such a wait wakes up now and then to ask again."""
    if not stack:
        return None, False
    inner = frames[-1] if frames else None
    source = sources[inner.path] if inner else None
    found = wait_reason(stack, source.statement(inner.line) if source and inner else "")
    asks_again = found is not None and found.kind in ASKS_AGAIN
    if found and found.kind in ("sleep", "loader") and source and inner and stack[0] == inner:
        found, asks_again = _sleeping(source, inner.line, found)
    if not has_moved and (found is None or found.kind == "files"):
        found = kernel_wait_reason(sample.waits_in) or found
    if _is_on_its_way_out(sample, sources):
        found = WaitReason("exit", f"{found.what if found else 'in Python itself'}, on the way out")
    return found, asks_again


def _sleeping(source: LineQueries, line: int, found: WaitReason) -> tuple[WaitReason, bool]:
    """What a sleep on a line is for: a loop that asks again (then True), a step that goes on soon, a long rest."""
    if found.kind == "loader":
        return (WaitReason("sleep", UNTIL_SLEEP_ENDS), False) if _is_nap(source, line) else (found, True)
    if poll := source.poll_around(line):
        return polled_value(poll) or POLLING, True
    lasts_s = sleeps_for_s(source.statement(line))
    if lasts_s is not None and lasts_s > LONG_SLEEP_S:
        return WaitReason("dormant", f"until its sleep of {lasts_s:.0f} s is over"), False
    return found, False


def _is_nap(source: LineQueries, line: int) -> bool:
    """Whether a line is a sleep that is known to end soon, once and for all."""
    lasts_s = sleeps_for_s(source.statement(line))
    return lasts_s is not None and lasts_s <= LONG_SLEEP_S and not source.poll_around(line)


def relevant_stack(sample: Sample) -> list[StackFrame]:
    """The main thread's; on top of it that of a thread it waits for, where that one stands in a collective."""
    collective, _ = collective_of(sample.stack)
    if collective is None and (found := wait_reason(sample.stack, "")) and found.kind in ("lock", "exit"):
        for thread in sample.others:
            if collective_of(thread.frames)[0] and user_frames(thread.frames):
                return [*thread.frames, *sample.stack]
    if sample.stack and not user_frames(sample.stack):
        busy = [thread.frames for thread in sample.others if user_frames(thread.frames)]
        kept = next((frames for frames in busy if not is_idle(frames)), busy[0] if busy else [])
        return [*sample.stack, *kept]  # on its way out, it waits for what this thread does
    return sample.stack


def _is_on_its_way_out(sample: Sample, sources: ScriptFiles) -> bool:
    """Whether the script is over, and a function runs that was to be called at exit: the user's, or one of a queue or
    a thread (``atexit.register(queue.join)``), below which no script stands any more."""
    if not sample.stack:
        return False
    outermost = sample.stack[-1]
    if function_name(outermost) in ("<module>", "_run_module_as_main"):
        return False
    if NOT_THE_USERS.search(outermost.path):
        return outermost.path.endswith(WAITS_OF_PYTHON) and not user_frames(sample.stack)
    return sources[outermost.path].registers_exit()


def awaits_user_iterator(frames: Sequence[StackFrame], sources: ScriptFiles) -> str | None:
    """The place that waits for the next item of an iterator the user wrote: the rank is in its own data pipeline."""
    for outer, inner in pairwise(frames):
        made = sources[inner.path].is_generator(inner.line) and sources[outer.path].iterates(outer.line)
        if made or function_name(inner) in ("__next__", "__anext__"):
            return f"{Path(outer.path).name}:{outer.line}"
    return None


def is_multiprocess_queue(stack: Sequence[StackFrame]) -> bool:
    """Whether a queue is one that other processes fill."""
    return any("/multiprocessing/" in frame.path for frame in inner_frames(stack))


def waits_for_busy_child(seen: ProcessSamples, found: WaitReason | None, sources: ScriptFiles) -> bool:
    """Whether a rank waits for a process it started that is itself at work."""
    kind = {"lock": "other", "service": "other", "loader": "loader"}.get(found.kind) if found else None
    mine = [child for child in seen.children if child.kind == kind]
    return any((child.moved and not _child_waits(child, sources)) or _naps(child, sources) for child in mine)


def _naps(child: Child, sources: ScriptFiles) -> bool:
    """Whether a child is in a sleep that ends soon."""
    mine = user_frames(child.stack)
    return bool(mine) and child.stack[0] == mine[-1] and _is_nap(sources[mine[-1].path], mine[-1].line)


def _child_waits(child: Child, sources: ScriptFiles) -> bool:
    mine = user_frames(child.stack)
    text = sources[mine[-1].path].statement(mine[-1].line) if mine and child.stack[0] == mine[-1] else ""
    return is_idle(child.stack) or wait_reason(child.stack[:1], text) is not None
