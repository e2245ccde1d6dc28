"""Change a text by edits, leaving every other character as it was, and show the change as a diff."""

from collections.abc import Iterable

from ...training_script.edits import Edit


class OverlappingEdits(Exception):
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
            raise OverlappingEdits(f"edit of characters {edit.start} to {edit.end} overlaps another or leaves the text")
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*parts, text[at:]])
