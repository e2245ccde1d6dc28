"""Apply edits to a text and leave every other character unchanged."""

from collections.abc import Iterable, Sequence
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


def shifts_lines_of(edits: Sequence[Edit], others: Sequence[Edit], text: str) -> bool:
    """Return whether edits change the indentation of lines next to which others insert a line of their own."""
    shifted = [edit.start for edit in edits if _is_indentation(edit, text)]
    if not shifted:
        return False
    first = text.rfind("\n", 0, min(shifted)) + 1
    last = text.find("\n", max(shifted)) + 1 or len(text)
    return any(first <= edit.start <= last for edit in others if edit.start == edit.end and edit.text.strip())


def _is_indentation(edit: Edit, text: str) -> bool:
    changed = text[edit.start : edit.end] + edit.text
    before = text[text.rfind("\n", 0, edit.start) + 1 : edit.start]
    return changed.isspace() and not before.strip() and "\n" not in changed
