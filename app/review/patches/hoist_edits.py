"""Text edits that split a branch into runs: statements that move out, and those under (a copy of) its condition."""

import ast
from typing import NamedTuple

from ...training_script.edits import Edit
from ...training_script.source import ScriptSource


class NoPatch(Exception):
    """No patch is possible; the message gives the reason."""


class BodyPiece(NamedTuple):
    """A statement of the body: moved out, kept under the condition, or split into ``inner``."""

    stmt: ast.stmt
    moved: bool
    inner: "list[BodyPiece]"


def branch_edits(
    source: ScriptSource, guard: ast.If, pieces: list[BodyPiece], rank_test: str, uniform_test: str
) -> list[Edit]:
    first = guard.body[0]
    nested = [stmt for stmt in ast.walk(guard) if isinstance(stmt, ast.stmt) and stmt is not guard]
    if guard.lineno == first.lineno or not all(source.alone(stmt) for stmt in nested):
        if len(guard.body) == 1 and pieces[0].moved and guard.lineno == (first.end_lineno or 0) and source.alone(guard):
            code = source.code(first)
            return [source.replace(guard, f"if {uniform_test}: {code}" if uniform_test else code)]
        raise NoPatch("several statements share a line")
    outer, inner = source.indent(guard.lineno), source.indent(first.lineno)
    if not inner.startswith(outer) or source.code(guard)[2:3] not in " (":
        raise NoPatch("the indentation mixes tabs and spaces")
    return _Lines(source, outer, inner[len(outer) :], rank_test).edits(guard, pieces, uniform_test)


class _Lines:
    """The new indentation of each line of the branch, and the conditions inserted between them."""

    def __init__(self, source: ScriptSource, outer: str, unit: str, rank_test: str) -> None:
        self.source, self.unit, self.rank_test = source, unit, rank_test
        self.outer = outer
        self.made: list[Edit] = []

    def edits(self, guard: ast.If, pieces: list[BodyPiece], uniform_test: str) -> list[Edit]:
        source = self.source
        floor = source.header_end(guard)
        if uniform_test:
            # The branch stays, under the rest of its condition; what only one rank does goes one level deeper.
            self.made.append(source.replace(guard.test, uniform_test))
            self._shift(pieces, floor, kept=1, moved=0)
        elif not pieces[0].moved:
            self._shift(pieces, floor, kept=0, moved=-1, under=True)
        else:
            self.made.append(source.remove_lines(guard.lineno, floor))
            comment = source.text[source.end(guard.test) : source.starts[floor]].partition("#")
            if comment[1]:
                self.made.append(source.insert_line(guard.lineno, ("#" + comment[2]).rstrip(), self.outer))
            self._shift(pieces, floor, kept=0, moved=-1)
        return self.made

    def _shift(self, pieces: list[BodyPiece], floor: int, *, kept: int, moved: int, under: bool = False) -> None:
        """Shift each piece by its number of levels; ``under``: the condition is right above already."""
        for piece in pieces:
            first = self.source.first_line_with_comments(piece.stmt, floor)
            last = piece.stmt.end_lineno or piece.stmt.lineno
            if not piece.moved:
                if not under:
                    indent = self.source.indent(piece.stmt.lineno)
                    indent = indent if kept else indent[: len(indent) - len(self.unit)]
                    self.made.append(self.source.insert_line(first, f"if {self.rank_test}:", indent))
                self._indent(first, last, kept)
            elif piece.inner:
                head_end = self.source.header_end(piece.stmt)  # type: ignore[arg-type]
                self._indent(first, head_end, moved)
                self._shift(piece.inner, head_end, kept=kept, moved=moved)
            else:
                self._indent(first, last, moved)
            under = not piece.moved
            floor = last

    def _indent(self, first: int, last: int, levels: int) -> None:
        for number in range(first, last + 1):
            line = self.source.line(number)
            start = self.source.starts[number - 1]
            if not line.strip() or number in self.source.inside_strings:
                continue
            if levels > 0:
                self.made.append(Edit(start, start, self.unit))
            elif levels < 0 and line.startswith(self.outer + self.unit):
                at = start + len(self.outer)
                self.made.append(Edit(at, at + len(self.unit), ""))
