"""Apply edits to a text and leave every other character unchanged."""

from collections.abc import Iterable

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
