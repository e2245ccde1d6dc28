"""The report of torchrun on failed ranks, cut to the first failure: the ranks' own errors are printed already."""

import re

from .rank_output import TRACEBACK

RAISED = "ChildFailedError"
ROOT_CAUSE = "Root Cause"
ROOT_CAUSE_ROW = re.compile(r"\s+(rank|exitcode)\s*:")
RULE = re.compile(r"={10,}\s*")


class LauncherReport:
    """Takes the lines of a launcher as they come.

    An error of the launcher itself stays whole; so a traceback is held back until its last line shows which it is.
    """

    def __init__(self) -> None:
        self._held: list[str] = []
        self._rules = 0  # of the report that begins and ends with one; 0 outside of it
        self._at_root_cause = False

    def add(self, line: str) -> list[str]:
        """Return the lines to show now."""
        if self._rules:
            return self._of_report(line)
        if not self._held and TRACEBACK not in line:
            return [line]
        self._held.append(line)
        if line.startswith(" ") or TRACEBACK in line:
            return []
        held = self.rest()
        if RAISED not in line:
            return held
        self._rules, self._at_root_cause = 2, False
        return []

    def rest(self) -> list[str]:
        """Return the lines of a traceback that has not ended."""
        held, self._held = self._held, []
        return held

    def _of_report(self, line: str) -> list[str]:
        self._rules -= bool(RULE.fullmatch(line))
        begins = line.startswith(ROOT_CAUSE)
        self._at_root_cause = self._at_root_cause or begins
        return [line] if begins or (self._at_root_cause and ROOT_CAUSE_ROW.match(line)) else []
