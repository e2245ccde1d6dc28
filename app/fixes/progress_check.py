"""Whether ranks get past a line, told from where they are seen now and then."""

import ast
import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..training_script.frame import StackFrame
from ..training_script.line_queries import LineQueries
from ..triage.rank_activity.frames import user_frames
from ..triage.types import JobReport
from .relaunch import Relaunch
from .types import Fix


class Checkpoint(NamedTuple):
    """A statement (first to last line of a function in the copy) that was on the culprit's stack. ``certain``: nothing
    but loops decides whether it is reached, so who is seen behind it has been through it."""

    path: str
    function: str
    first: int
    last: int
    certain: bool


class ProgressCheck:
    """The culprit's stack as stations in the patched copy, and the ranks that were seen to have passed them."""

    def __init__(self, report: JobReport, relaunch: Relaunch, fix: Fix) -> None:
        self.line = report.verdict.where or ""
        self.passed: set[int] = set()
        self._at: dict[int, set[Checkpoint]] = {}
        self._stations = _stations(report, relaunch, fix)

    def see(self, stacks: Mapping[int, Sequence[StackFrame]]) -> None:
        """Take in where ranks are now: rank to the user's frames."""
        for rank, frames in stacks.items():
            if any(self._is_past(rank, frame) for frame in frames):
                self.passed.add(rank)

    def _is_past(self, rank: int, frame: StackFrame) -> bool:
        been = self._at.setdefault(rank, set())
        for index, station in enumerate(self._stations):
            if (frame.path, frame.function) != (station.path, station.function):
                continue
            if station.first <= frame.line <= station.last:
                # Being in the statement counts for the culprit's own line alone: an outer call may not get that far.
                if index == len(self._stations) - 1:
                    been.add(station)
                return False
            inner_certain = all(inner.certain for inner in self._stations[index:])
            return bool(been) or (inner_certain and frame.line > station.last)
        return False


def _stations(report: JobReport, relaunch: Relaunch, fix: Fix) -> list[Checkpoint]:
    culprit = next((row for row in report.ranks if row.where and row.where == report.verdict.where), None)
    looks = report.samples(culprit) if culprit else []
    stations: list[Checkpoint] = []
    for frame in user_frames(looks[-1].stack) if looks else []:
        before = report.sources.get(frame.path, "")
        patch = next((p for p in fix.patches if Path(p.path).resolve() == Path(frame.path).resolve()), None)
        after = patch.after if patch else before
        source = LineQueries(after)
        first, last = _statement(source, _line_after(before, after, frame.line))
        guards = source.guards(first, source.scope(first, frame.function))
        loops = {loop.lineno for loop in source.loops(first)}
        certain = all(guard.line in loops for guard in guards)
        stations.append(Checkpoint(relaunch.in_copy(frame.path), frame.function, first, last, certain))
    return stations


def _line_after(before: str, after: str, line: int) -> int:
    """Where a line stands after a change, its indentation aside; one that is gone is where its surroundings are."""
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
    """First and last line of the innermost simple statement that holds the line."""
    for node in ast.walk(source.module):
        if isinstance(node, ast.stmt) and not hasattr(node, "body") and node.lineno <= line <= (node.end_lineno or 0):
            return node.lineno, node.end_lineno or node.lineno
    return line, line
