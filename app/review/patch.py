"""Change a text by edits, leaving every other character as it was, and show the change as a diff."""

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

from ..fixes.types import Edit

CONTEXT_LINES = 3


class Overlap(Exception):
    """Two edits want to change the same characters."""


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """``text`` with the edits applied, which all count in the original; the same edit given twice counts once.

    Insertions at one place keep the order they were given in.

    Raises:
        Overlap: Edits overlap, or reach beyond the text.
    """
    ordered = sorted(dict.fromkeys(edits), key=lambda edit: (edit.start, edit.end))
    parts: list[str] = []
    at = 0
    for edit in ordered:
        if not at <= edit.start <= edit.end <= len(text):
            raise Overlap(f"edit of characters {edit.start} to {edit.end} overlaps another or leaves the text")
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*parts, text[at:]])


def unified_diff(before: str, after: str, path: str) -> str:
    """The change as a unified diff that ``git apply`` and ``patch`` read; empty where nothing changes.

    A relative path gets the usual ``a/`` and ``b/``; newlines of the text stay, a missing last one is marked.
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
