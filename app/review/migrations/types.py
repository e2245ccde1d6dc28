"""A migration as plain data: the new text of a script, what changes with it, and why it is refused."""

from typing import NamedTuple

import msgspec

from ...system.paths import relative_to_cwd
from ...text.diff import unified_diff


class Note(NamedTuple):
    """A remark on one line of the script."""

    line: int
    message: str


class Refusal(Exception):
    """The script cannot be migrated. ``note`` names the line and the reason."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.note = Note(line, message)


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """The migration of one script: its text before and after, and notes on lines of the text before.

    ``reports``: what behaves differently afterwards, or is left to do. ``refusals``: why there is no migration; the
    text is unchanged then.
    """

    target: str
    path: str
    before: str
    after: str
    reports: list[Note] = []
    refusals: list[Note] = []

    def diff(self) -> str:
        """Return the change as a unified diff, with a path relative to the working directory."""
        return unified_diff(self.before, self.after, relative_to_cwd(self.path))
