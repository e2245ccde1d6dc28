"""The one type that stacks and records share."""

import msgspec


class StackFrame(msgspec.Struct, frozen=True):
    """One Python frame, innermost first in a stack. ``path`` is as the process sees it, absolute where known."""

    function: str
    path: str
    line: int
