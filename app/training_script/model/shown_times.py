"""Times that a program shows in a name: those with seconds differ between ranks, those by the minute hardly ever."""

import re
from collections.abc import Sequence

from .values import Value

SHOWN_TIMES = ("strftime", "isoformat", "timestamp", "replace", "date", "time")
COARSE = "a time by the minute"  # of which all ranks make one name
SECONDS = re.compile(r"%[-_0^#]?[SfscTXrp+N]")


def is_coarse(pattern: object) -> bool:
    """Return whether a format of a time shows no seconds."""
    return isinstance(pattern, str) and "%" in pattern and SECONDS.search(pattern) is None


def shows_coarsely(name: str, values: Sequence[Value]) -> bool:
    """Return whether a function or method of a time gives a text without seconds."""
    if name == "date":
        return not values
    given = values[0].key if name == "strftime" and values else None
    return given is not None and given.is_constant and is_coarse(given.value)
