"""Detect a rank that is blocked on a queue whose producer threads have ended."""

import re
from collections.abc import Sequence
from pathlib import Path

from ...training_script.frame import StackFrame
from ...training_script.line_queries import ScriptFiles
from ...training_script.queue_producers import consumed_queue, queue_producers
from ..types import Sample
from .frames import function_name
from .wait_reasons import WaitReason

THREAD_ENDED = re.compile(r"Exception in thread ")  # Lib/threading.py, ``_make_invoke_excepthook``
ERROR_LENGTH = 120


def starved_queue(
    sample: Sample, frames: Sequence[StackFrame], sources: ScriptFiles, output: Sequence[str]
) -> WaitReason | None:
    """Return the wait reason of a rank whose queue no living thread fills, or None if one does or it is not known.

    ``frames``: the user's, outermost first; ``output``: the last lines the rank printed.
    """
    here = frames[-1]
    module = sources[here.path].module
    producers = queue_producers(module)
    queue = consumed_queue(module, here.line)
    producers = [producer for producer in producers if queue in producer.queues] or producers
    running = {(frame.path, function_name(frame)) for thread in sample.others for frame in thread.frames}
    if not producers or any((here.path, producer.name) in running for producer in producers):
        return None
    names = " and ".join(f"{producer.name} ({Path(here.path).name}:{producer.line})" for producer in producers)
    one = len(producers) == 1
    text = f"for an item in a queue that no running thread fills: {names}, which {'puts' if one else 'put'} into it, "
    return WaitReason("feeder", f"{text}{'has' if one else 'have'} ended{_error(output)}")


def _error(output: Sequence[str]) -> str:
    """Return `` (OSError: stale file handle)``, the error that ended a thread, or "" if none was printed."""
    start = next((n for n, line in enumerate(output) if THREAD_ENDED.search(line)), None)
    if start is None:
        return ""
    rest = (line for line in output[start + 1 :] if line[:1] not in (" ", "") and not line.startswith("Traceback"))
    return f" ({error[:ERROR_LENGTH]})" if (error := next(rest, "")) else ""
