"""Suggestions for mistyped names."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 80  # letters of a name that are compared
CUTOFF = 0.6  # of difflib's ratio


def closest(name: str, names: Iterable[str], most: int = 3, cutoff: float = CUTOFF) -> list[str]:
    """Return the most similar names, best first, ignoring case and punctuation. ``cutoff``: the least ratio."""
    by_key: dict[str, str] = {}
    for each in names:
        by_key.setdefault(normalise(each), each)
    return [by_key[key] for key in get_close_matches(normalise(name[:LONGEST]), by_key, most, cutoff)]


def did_you_mean(found: list[str]) -> str:
    """Return ``did you mean A, B or C?``, or "" if no name is similar."""
    if not found:
        return ""
    *first, last = found
    return f"did you mean {', '.join(first)}{' or ' * bool(first)}{last}?"


def normalise(name: str) -> str:
    """Return the letters and digits of a name: ``zero3`` for ``ZeRO-3``."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
