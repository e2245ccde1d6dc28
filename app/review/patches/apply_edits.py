"""Apply edits to a text and leave every other character unchanged."""

from collections.abc import Iterable
from difflib import SequenceMatcher
from itertools import accumulate

from ...training_script.edits import Edit


class OverlappingEdits(Exception):
    """Two edits change the same characters."""


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Return ``text`` with the edits applied. Offsets refer to the original; duplicates count once.

    Insertions at one place keep their order.

    Raises:
        OverlappingEdits: Edits overlap, or reach beyond the text.
    """
    ordered = sorted(dict.fromkeys(edits), key=lambda edit: (edit.start, edit.end))
    parts: list[str] = []
    at = 0
    for edit in ordered:
        if not at <= edit.start <= edit.end <= len(text):
            raise OverlappingEdits(f"edit of characters {edit.start} to {edit.end} overlaps another or leaves the text")
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*parts, text[at:]])


def edits_between(before: str, after: str) -> list[Edit]:
    """Return the edits, in whole lines, that make one text of the other."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    starts = [0, *accumulate(len(line) for line in old)]
    return [
        Edit(starts[first], starts[last], "".join(new[start:end]))
        for kind, first, last, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if kind != "equal"
    ]
