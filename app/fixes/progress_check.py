"""Decide from stack samples which ranks have passed the line of the culprit."""

import ast
import difflib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..training_script.frame import StackFrame
from ..training_script.line_queries import LineQueries
from ..triage.rank_activity.frames import user_frames
from ..triage.types import JobReport, RankRow
from .relaunch import Relaunch


class Checkpoint(NamedTuple):
    """A statement of the patched copy (first to last line of a function) that was on the culprit's stack.

    ``certain``: only loops decide whether it is reached, so a rank that is behind it has executed it.
    """

    path: str
    function: str
    first: int
    last: int
    certain: bool
    in_loop: bool


class ProgressCheck:
    """The culprit's stack as checkpoints in the patched copy, and the ranks that have passed them."""

    def __init__(self, report: JobReport, relaunch: Relaunch) -> None:
        row = _row_to_pass(report)
        self.line = (row.where if row else None) or ""
        self.passed: set[int] = set()
        self._at: dict[int, set[Checkpoint]] = {}
        self._checkpoints = _checkpoints(report, row, relaunch)

    @property
    def in_loop(self) -> bool:
        """True if a rank reaches the line more than once: to pass it once is then no proof."""
        return any(checkpoint.in_loop for checkpoint in self._checkpoints)

    def see(self, stacks: Mapping[int, Sequence[StackFrame]]) -> None:
        """Add stack samples: rank to the user's frames."""
        for rank, frames in stacks.items():
            if any(self._is_past(rank, frame) for frame in frames):
                self.passed.add(rank)

    def _is_past(self, rank: int, frame: StackFrame) -> bool:
        been = self._at.setdefault(rank, set())
        for index, checkpoint in enumerate(self._checkpoints):
            if (frame.path, frame.function) != (checkpoint.path, checkpoint.function):
                continue
            if checkpoint.first <= frame.line <= checkpoint.last:
                # Only the culprit's own line counts as reached: an outer call may not get that far.
                if index == len(self._checkpoints) - 1:
                    been.add(checkpoint)
                return False
            inner_certain = all(inner.certain for inner in self._checkpoints[index:])
            return bool(been) or (inner_certain and frame.line > checkpoint.last)
        return False


def _row_to_pass(report: JobReport) -> RankRow | None:
    """Return the rank whose line all have to pass: the culprit, or a rank that waits for one that is not there."""
    rows = [row for row in report.ranks if row.where and report.samples(row)]
    culprit = next((row for row in rows if row.where == report.verdict.where), None)
    return culprit or next((row for row in rows if row.rank not in report.verdict.culprits), None)


def _checkpoints(report: JobReport, row: RankRow | None, relaunch: Relaunch) -> list[Checkpoint]:
    samples = report.samples(row) if row else []
    checkpoints: list[Checkpoint] = []
    for frame in user_frames(samples[-1].stack) if samples else []:
        before = report.sources.get(frame.path, "")
        after = relaunch.text_of(frame.path) or before
        source = LineQueries(after)
        first, last = _statement(source, _line_after(before, after, frame.line))
        guards = source.guards(first, source.scope(first, frame.function))
        loops = {loop.lineno for loop in source.loops(first)}
        certain = all(guard.line in loops for guard in guards)
        checkpoints.append(Checkpoint(relaunch.in_copy(frame.path), frame.function, first, last, certain, bool(loops)))
    return checkpoints


def _line_after(before: str, after: str, line: int) -> int:
    """Return the number of a line after a change, ignoring indentation, or of its surroundings if it was removed."""
    old, new = ([text.strip() for text in version.splitlines()] for version in (before, after))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if start < line <= end:
            near = new_start + line - start
            if tag == "equal":
                return near
            moved = [number for number, text in enumerate(new, 1) if text == old[line - 1]]
            return min(moved, key=lambda number: abs(number - near)) if moved else max(1, min(near, new_end))
    return line


def _statement(source: LineQueries, line: int) -> tuple[int, int]:
    """Return the first and last line of the innermost simple statement that contains the line."""
    for node in ast.walk(source.module):
        if isinstance(node, ast.stmt) and not hasattr(node, "body") and node.lineno <= line <= (node.end_lineno or 0):
            return node.lineno, node.end_lineno or node.lineno
    return line, line
