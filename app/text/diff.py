"""Unified diffs."""

import difflib
import re
from pathlib import Path

CONTEXT_LINES = 3


def unified_diff(before: str, after: str, path: str) -> str:
    """Return the change as a unified diff that ``git apply`` and ``patch`` read, or "" if nothing changes.

    A relative path gets the usual ``a/`` and ``b/``. Line ends are kept; a missing last one is marked.
    """
    old, new = _lines(before), _lines(after)
    absolute = Path(path).is_absolute()
    names = (path, path) if absolute else (f"a/{path}", f"b/{path}")
    shown: list[str] = []
    for line in difflib.unified_diff(old, new, *names, n=CONTEXT_LINES):
        shown.append(line)
        if not line.endswith("\n"):
            shown.append("\n\\ No newline at end of file\n")
    return "".join(shown)


def _lines(text: str) -> list[str]:
    # A lone carriage return is no line end to git and patch.
    return re.findall(r"[^\n]*\n|[^\n]+", text)
