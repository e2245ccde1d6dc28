"""Findings of static review. The field names are the public JSON of ``ddpwizard review``."""

from typing import NamedTuple

import msgspec

from ...knowledge.schema import Safety, Severity
from ..training_script.edits import Edit


class RuleFix(msgspec.Struct, frozen=True, kw_only=True):
    """A patch for one finding: edits on the file's text, their safety, and the diff for people."""

    id: str
    safety: Safety
    why_unsafe: str | None
    edits: list[Edit]
    diff: str


class CellPlace(msgspec.Struct, frozen=True):
    """A place in a notebook: the number of the cell among all cells, and the line in it, both from 1."""

    number: int
    line: int


class RelatedPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A place on the way of some ranks, and what they do there."""

    path: str
    line: int
    message: str
    cell: CellPlace | None = None


class ReviewFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One place that violates a rule. ``column`` counts from 1; ``branch`` is the line of the condition, if any.

    ``related``: where ranks part, and what each of them does then. In a notebook lines are those of the file, and
    ``cell`` is the place that Jupyter shows.
    """

    rule: str
    cause: str
    path: str
    line: int
    column: int
    end_line: int
    message: str
    why: str
    severity: Severity
    confidence: float
    branch: int | None = None
    related: list[RelatedPlace] = []
    fix: RuleFix | None = None
    cell: CellPlace | None = None


class SkippedFile(NamedTuple):
    """A file or directory that could not be reviewed: one line that names it, and what to do about it."""

    path: str
    message: str
    next_step: str

    @property
    def reason(self) -> str:
        """The message without the path: ``line 2: not valid Python``."""
        rest = self.message.removeprefix(f"{self.path}:")
        line, colon, problem = rest.partition(": ")
        return f"line {line}: {problem}" if colon and line.isdecimal() else rest.strip()


class SourceLine(NamedTuple):
    """A line of a script with the number that is shown."""

    number: int
    text: str


class Patched(msgspec.Struct, frozen=True, kw_only=True):
    """A file before and after its patches, and the findings that they fix."""

    before: str
    after: str
    encoding: str
    done: list[ReviewFinding]


class ReviewedSource(NamedTuple):
    """The findings in the text of a file, and for each the lines around it.

    ``complete``: all calls could be followed in search of divergences between ranks.
    """

    findings: list[ReviewFinding]
    excerpts: list[list[SourceLine]]
    complete: bool


class ReviewedFile(msgspec.Struct, frozen=True, kw_only=True):
    """The review of one file: its findings, for each the lines around it, and its patches if they are wanted."""

    path: str
    findings: list[ReviewFinding]
    excerpts: list[list[SourceLine]]
    patched: Patched | None = None
    complete: bool = True
