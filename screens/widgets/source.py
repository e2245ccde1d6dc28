"""Excerpts of a file or a pasted text with marked lines."""

import re
from collections.abc import Mapping
from pathlib import Path

from textual.content import Content

from ...app.errors import UserError
from ...app.system.files import read_regular_file
from ...app.system.paths import relative_to_cwd
from .formatting import safe_content, truncate_middle

PLACE = re.compile(r"(?P<path>.+):(?P<line>\d+)")
AROUND = 2
READ_LIMIT_BYTES = 32 * 1024 * 1024


def split_location(where: str) -> tuple[str, int] | None:
    """Return path and line of ``path:line``, or None for any other place."""
    match = PLACE.fullmatch(where)
    return (match["path"], int(match["line"])) if match else None


def file_lines(path: str, texts: Mapping[str, str] | None = None) -> list[str]:
    """Return the lines of a pasted text or a file, or [] if it cannot be read."""
    if texts and path in texts:
        return texts[path].split("\n")
    try:
        return read_regular_file(Path(path), READ_LIMIT_BYTES, "").decode(errors="replace").splitlines()
    except UserError:
        return []


def annotated_lines(found: list[str], notes: Mapping[int, str], width: int, around: int = AROUND) -> list[Content]:
    """Render the lines (from 1) in ``notes`` with their note, and the lines around them; gaps are one ``…``."""
    near_notes = {n for number in notes for n in range(number - around, number + around + 1)}
    rows: list[Content] = []
    previous = 0
    for number in sorted(n for n in near_notes if 0 < n <= len(found)):
        if previous and number > previous + 1:
            rows.append(Content.styled("      …", "$muted"))
        rows.append(_line(number, found[number - 1], notes.get(number), width))
        previous = number
    return rows


def _line(number: int, code: str, note: str | None, width: int) -> Content:
    lead = ("▸" if note is not None else " ", "$accent bold"), (f"{number:>5}  ", "$muted")
    tail = safe_content(f"  ◀ {note}", "$accent") if note else Content("")
    room = max(8, width - 8 - tail.cell_length)
    shown = safe_content(code.expandtabs(4), "bold" if note is not None else "").truncate(room, ellipsis=True)
    return Content.assemble(*lead, shown, tail)


def excerpt(where: str, texts: Mapping[str, str], width: int) -> list[Content]:
    """Render the lines around ``path:line`` under the file name, or [] if they cannot be read."""
    found = split_location(where)
    if found is None:
        return []
    path, line = found
    rows = annotated_lines(file_lines(path, texts), {line: ""}, width)
    return [Content(""), safe_content(truncate_middle(relative_to_cwd(path), width), "bold"), *rows] if rows else []


def diff_line(line: str) -> Content:
    """Render a line of a unified diff in the colour of its kind."""
    if line.startswith(("---", "+++", "@@")):
        return safe_content(line, "$muted")
    return safe_content(line, {"+": "$success", "-": "$error"}.get(line[:1], ""))
