"""Jupyter notebooks: the code cells as one Python text, and edits of that text as edits of the file.

Lines of IPython (``%matplotlib``, ``!pip install``, ``model?``) become ``pass`` and cells in other languages
(``%%bash``) are left out, so that the lines of a cell keep their numbers. A cell ``%%writefile train.py`` is a script
of its own.
"""

import json
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from ..errors import UserError
from ..text.python_source import parse_python
from .edits import Edit
from .source import NEWLINE, parse

LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
ADVICE = "open it in Jupyter and save it again"
DECODER = json.JSONDecoder()
TOKEN = re.compile(r'["\[\]{},]')
# Cell magics whose cell is Python code; every other cell magic makes its cell no Python.
PYTHON_CELL = re.compile(r"%%(?:time|timeit|capture|prun)\b")
WRITES_SCRIPT = re.compile(
    r"\s*%%(?:writefile|file)[ \t]+(?P<append>(?:-a|--append)[ \t]+)?[^\r\n]+\.py[\"']?[ \t]*(?:[\r\n]|$)"
)
IPYTHON_LINE = re.compile(r"(?P<indent>\s*)(?:[%!?]|[\w.]+\s*=\s*[%!](?!=)|[\w.*]+\?{1,2}\s*$)")
# What decides whether the next line begins a statement: strings, comments, brackets, a line that goes on.
STRUCTURE = re.compile(r"\"\"\"|'''|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|#.*|[\[({]|[\])}]|\\$")


class CellLine(NamedTuple):
    """A line of a notebook: the number of its cell among all cells, the line in the cell, the line in the file."""

    cell: int
    line: int
    file_line: int


class _Token(NamedTuple):
    """A JSON string in the file: its offsets, and the text that it holds."""

    start: int
    end: int
    text: str


class _Cell(NamedTuple):
    number: int
    start: int  # of the source in the file, quotes and brackets included
    end: int
    tokens: list[_Token]

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)


def read_notebook(text: str, path: str) -> "list[Notebook]":
    """Return the code of a notebook by its JSON ``text``: its own first, then that of each script that a cell writes.

    Raises:
        UserError: It is no notebook with Python code, or a cell is not valid Python.
    """
    own: list[_Cell] = []
    scripts: list[list[_Cell]] = []
    for cell in _code_cells(text, path):
        written = WRITES_SCRIPT.match(cell.text)
        if written and written["append"] and scripts:
            scripts[-1].append(cell)
        elif written:
            scripts.append([cell])
        else:
            own.append(cell)
    return [Notebook(text, path, cells) for cells in (own, *scripts)]


class Notebook:
    """Code cells of a notebook. ``code`` is the Python text of all of them; its lines count from 1."""

    def __init__(self, text: str, path: str, cells: "Sequence[_Cell]") -> None:
        """Join the code of cells of the notebook with this JSON ``text``.

        Raises:
            UserError: A cell is not valid Python.
        """
        self.text = text
        self._file_starts = [0, *(found.end() for found in NEWLINE.finditer(text))]
        self.lines: list[str] = []  # of the cells, as they are; those of ``code`` differ where it is IPython
        self._lines: list[CellLine] = []
        self._cells: list[_Cell] = []  # of each line of the code
        self._replaced: set[int] = set()  # lines of IPython
        self._shifts: list[int] = []  # offset of each line in its cell
        parts: list[str] = []
        for cell in cells:
            if code := self._add(cell):
                parse("".join(code), f"{path}:cell {cell.number}")
                parts += code
        self.code = "".join(parts)
        self._starts = [0, *(found.end() for found in NEWLINE.finditer(self.code))]

    def place(self, line: int) -> CellLine:
        """Return the place of a line of ``code``."""
        return self._lines[min(line, len(self._lines)) - 1]

    def edits_of_file(self, edits: Sequence[Edit]) -> list[Edit]:
        """Return the edits of the file that make ``edits`` in ``code``; everything else keeps its bytes.

        Raises:
            UserError: An edit spans two cells, or changes a line of IPython.
        """
        by_cell: dict[int, tuple[_Cell, list[Edit]]] = {}
        for edit in dict.fromkeys(edits):
            cell, start, end = self._in_cell(edit)
            # The last line of a cell has no newline in the file, but it has one in ``code``.
            behind_last = start == len(cell.text) and edit.start in self._starts and not cell.text.endswith("\n")
            text = "\n" + edit.text if behind_last else edit.text
            by_cell.setdefault(cell.number, (cell, []))[1].append(Edit(start, end, text))
        ascii_only = self.text.isascii()
        return [_cell_edit(self.text, cell, own, ascii_only) for cell, own in by_cell.values()]

    def _add(self, cell: _Cell) -> list[str]:
        """Take the lines of a cell, and return them as Python; nothing if the cell is in another language."""
        lines: list[str] = LINE.findall(cell.text)
        first = next((line for line in lines if line.strip()), "")
        script = WRITES_SCRIPT.match(cell.text) is not None
        if not first or (first.startswith("%%") and not script and not PYTHON_CELL.match(first)):
            return []
        at = 0
        strings = [0, *accumulate(len(token.text) for token in cell.tokens)]
        ipython = {lines.index(first) + 1: ""} if script else dict(_ipython_lines(lines))
        code: list[str] = []
        for number, line in enumerate(lines, 1):
            if number in ipython:
                self._replaced.add(len(self._lines) + 1)
            self.lines.append(line.rstrip("\r\n"))
            code.append(f"{ipython.get(number, self.lines[-1])}\n")
            string = cell.tokens[bisect_right(strings, at) - 1]
            self._lines.append(CellLine(cell.number, number, bisect_right(self._file_starts, string.start)))
            self._cells.append(cell)
            self._shifts.append(at)
            at += len(line)
        return code

    def _in_cell(self, edit: Edit) -> tuple[_Cell, int, int]:
        first = bisect_right(self._starts, edit.start)
        # The end of a removed line is the start of the next one, which may be in another cell.
        last = max(first, bisect_right(self._starts, max(edit.start, edit.end - 1)))
        first, last = min(first, len(self._lines)), min(last, len(self._lines))
        cell = self._cells[first - 1]
        if self._cells[last - 1] is not cell:
            raise UserError("it would change several cells at once", "make it by hand")
        if edit.end > edit.start and self._replaced.intersection(range(first, last + 1)):
            raise UserError("it would change a line of IPython", "make it by hand")
        return cell, self._offset_in_cell(first, edit.start), self._offset_in_cell(last, edit.end)

    def _offset_in_cell(self, line: int, offset: int) -> int:
        """Return where a character of ``code`` in this line, or the end of the line, is in its cell."""
        behind = line < len(self._cells) and self._cells[line] is self._cells[line - 1]
        ends = self._shifts[line] if behind else len(self._cells[line - 1].text)
        at_end = line < len(self._starts) and offset >= self._starts[line]
        return ends if at_end else min(ends, self._shifts[line - 1] + offset - self._starts[line - 1])


def _code_cells(text: str, path: str) -> list[_Cell]:
    """Return the code cells of a notebook with their places in its JSON text."""
    try:
        document: Any = json.loads(text)
        strings = _sources(text)
    except (ValueError, RecursionError) as error:
        problem = f":{error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else ": nested too deeply"
        raise UserError(f"{path}{problem}: not a valid notebook", ADVICE) from error
    if not isinstance(document, dict) or not isinstance(document.get("cells"), list):
        raise UserError(f"{path}: a notebook without cells, or older than format 4", ADVICE)
    language = _language(document)
    if language != "python":
        raise UserError(f"{path}: a notebook in {language}", "give a notebook in Python")
    cells: list[Any] = document["cells"]
    return [
        _Cell(index + 1, *strings[index])
        for index, cell in enumerate(cells)
        if isinstance(cell, dict) and cell.get("cell_type") == "code" and index in strings
    ]


def _language(document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    for name, key in (("language_info", "name"), ("kernelspec", "language")):
        part = metadata.get(name) if isinstance(metadata, dict) else None
        if isinstance(part, dict) and isinstance(part.get(key), str):
            return str(part[key]).lower()
    return "python"


def _sources(text: str) -> dict[int, tuple[int, int, list[_Token]]]:
    """Return the place of ``source`` of each cell in a valid JSON text, and its strings, by the index of the cell."""
    found: dict[int, tuple[int, int, list[_Token]]] = {}
    path: list[str | int] = []  # where the current value is: keys and indices
    in_object: list[bool] = []
    tokens: list[_Token] = []
    expects_key = False
    opened = at = 0
    while match := TOKEN.search(text, at):
        token, at = match[0], match.end()
        source = len(path) in (3, 4) and path[0] == "cells" and path[2] == "source"
        cell = int(path[1]) if source else 0
        if token == '"':
            value, at = DECODER.raw_decode(text, match.start())
            if expects_key:
                path[-1], expects_key = value, False
            elif source:
                tokens.append(_Token(match.start(), at, value))
                if len(path) == 3:
                    found[cell], tokens = (match.start(), at, tokens), []
        elif token == ",":
            expects_key = in_object[-1]
            if not expects_key:
                path[-1] = int(path[-1]) + 1
        elif token in "{[":
            if source and len(path) == 3:
                opened = match.start()
            expects_key = token == "{"
            in_object.append(expects_key)
            path.append("" if expects_key else 0)
        else:
            if source and len(path) == 4:
                found[cell], tokens = (opened, at, tokens), []
            in_object.pop()
            path.pop()
            expects_key = False
    return found


def _ipython_lines(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the numbers of the lines of a cell that are IPython, not Python, with the Python in their place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            parse_python("".join(lines))
            return
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
    depth, quote, goes_on, ipython_goes_on = 0, "", False, False
    for number, line in enumerate(lines, 1):
        found = None if depth or quote or goes_on else IPYTHON_LINE.match(line)
        if ipython_goes_on or found:
            yield number, "" if ipython_goes_on or not found else f"{found['indent']}pass"
            ipython_goes_on = line.rstrip().endswith("\\")
            continue
        goes_on, at = False, 0
        while part := STRUCTURE.search(line, at) if not quote else re.compile(quote).search(line, at):
            token, at = part[0], part.end()
            if token in ('"""', "'''"):
                quote = "" if quote else token
            else:
                depth = max(0, depth + (token in "[({") - (token in "])}"))
                goes_on = token == "\\"


def _cell_edit(text: str, cell: _Cell, edits: Sequence[Edit], ascii_only: bool) -> Edit:
    """Return the edit of the file that makes ``edits`` in the source of a cell: only strings that change are new."""
    after, at = [], 0
    for edit in sorted(edits, key=lambda each: (each.start, each.end)):
        after += [cell.text[at : edit.start], edit.text]
        at = edit.end
    changed = "".join([*after, cell.text[at:]])
    if not cell.text.endswith("\n"):
        changed = re.sub(r"\r?\n\Z", "", changed)
    if text[cell.start] == '"':
        return Edit(cell.start, cell.end, json.dumps(changed, ensure_ascii=ascii_only))
    new = [line for line in re.split(r"(?<=\n)", changed) if line]
    old = [token.text for token in cell.tokens]
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    between = text[cell.tokens[0].end : cell.tokens[1].start] if len(old) > 1 else ",\n" + _indent(text, cell)
    strings = [json.dumps(line, ensure_ascii=ascii_only) for line in new[head : len(new) - tail]]
    before = text[cell.start : cell.tokens[0].start] if not head else text[cell.start : cell.tokens[head - 1].end]
    behind = text[cell.tokens[-1].end : cell.end] if not tail else text[cell.tokens[-tail].start : cell.end]
    if head and strings:
        before += between
    if (tail and strings) or (tail and head):
        behind = between + behind
    return Edit(cell.start, cell.end, before + between.join(strings) + behind)


def _common(one: Sequence[str], two: Sequence[str]) -> int:
    count = 0
    for a, b in zip(one, two, strict=False):
        if a != b:
            break
        count += 1
    return count


def _indent(text: str, cell: _Cell) -> str:
    """Return the white space before the first string of a source."""
    before = text[: cell.tokens[0].start]
    return before[len(before.rstrip(" \t")) :]
