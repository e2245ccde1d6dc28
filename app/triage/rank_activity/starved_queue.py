"""A rank that waits for an item in a queue which its own threads should fill: whether any of them still lives."""

import re
from collections.abc import Sequence
from pathlib import Path

from ...training_script.frame import StackFrame
from ...training_script.line_queries import ScriptFiles
from ...training_script.queue_producers import consumed_queue, queue_producers
from ..types import Sample
from .frames import function_name
from .wait_reasons import WaitReason

ENDED = re.compile(r"Exception in thread ")  # Lib/threading.py, ``_make_invoke_excepthook``
ERROR_LENGTH = 120


def starved_queue(
    sample: Sample, frames: Sequence[StackFrame], sources: ScriptFiles, output: Sequence[str]
) -> WaitReason | None:
    """What is said of a rank whose queue no living thread fills; None where one does, or it cannot be told.

    ``frames``: the user's, outermost first; ``output``: the last lines the rank printed.
    """
    here = frames[-1]
    module = sources[here.path].module
    known = queue_producers(module)
    queue = consumed_queue(module, here.line)
    known = [feeder for feeder in known if queue in feeder.queues] or known
    living = {(frame.path, function_name(frame)) for thread in sample.others for frame in thread.frames}
    if not known or any((here.path, feeder.name) in living for feeder in known):
        return None
    who = " and ".join(f"{feeder.name} ({Path(here.path).name}:{feeder.line})" for feeder in known)
    one = len(known) == 1
    text = f"for an item in a queue that no living thread fills: {who}, which {'puts' if one else 'put'} into it, "
    return WaitReason("feeder", f"{text}{'has' if one else 'have'} ended{_error(output)}")


def _error(output: Sequence[str]) -> str:
    """`` (OSError: stale file handle)``: the error that a thread ended with, where it was printed."""
    begins = next((n for n, line in enumerate(output) if ENDED.search(line)), None)
    if begins is None:
        return ""
    rest = (line for line in output[begins + 1 :] if line[:1] not in (" ", "") and not line.startswith("Traceback"))
    return f" ({error[:ERROR_LENGTH]})" if (error := next(rest, "")) else ""
