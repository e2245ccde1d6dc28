"""A Python stack frame, as stack samples and Flight Recorder dumps hold it."""

import msgspec


class StackFrame(msgspec.Struct, frozen=True):
    """One Python frame, innermost first in a stack. ``path`` is as the process sees it, absolute if known."""

    function: str
    path: str
    line: int
