"""Completion of a path while it is typed."""

import os
from pathlib import Path

from ..errors import UserError
from .files import expand_user

MOST_ENTRIES = 10_000


def complete_path(typed: str) -> str:
    """Return ``typed`` extended as far as the names in its directory agree, with a slash after a directory."""
    directory, slash, start = typed.rpartition("/")
    try:
        folder = expand_user(directory + slash) if slash else Path()
        with os.scandir(folder) as entries:
            found = [
                (entry.name, entry.is_dir())
                for entry, _ in zip(entries, range(MOST_ENTRIES), strict=False)
                if entry.name.startswith(start) and (start.startswith(".") or not entry.name.startswith("."))
            ]
    except (OSError, UserError, ValueError):
        return typed
    common = _common_start([name for name, _ in found])
    if len(found) == 1 and found[0][1]:
        common += "/"
    return directory + slash + common if len(common) > len(start) else typed


def _common_start(names: list[str]) -> str:
    """Return the characters with which all names begin."""
    first, last = min(names, default=""), max(names, default="")
    return first[
        : next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    ]
