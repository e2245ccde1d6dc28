"""A fix as plain data: text-range edits on an original, or whole files, with their level of safety."""

import msgspec

from ...knowledge.schema import Safety
from ..evidence import Status
from ..system.paths import relative_to_cwd
from ..text.diff import unified_diff


class FilePatch(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one file: the original text (a file that changed since is refused) and the new text."""

    path: str
    before: str
    after: str


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """A fix of a cause as it is shown and written.

    ``text`` and ``note`` are prose before and after ``code``, the lines to insert or run as they are. ``patches``
    change existing files; ``files`` (name to content) are new ones; ``commands`` are lines to run.
    """

    id: str
    cause: str
    title: str
    safety: Safety
    why_unsafe: str = ""
    text: str = ""
    code: str = ""
    note: str = ""
    commands: list[str] = []
    files: dict[str, str] = {}
    patches: list[FilePatch] = []

    def diff(self) -> str:
        """Return the patches as one unified diff, with paths relative to the working directory."""
        return "".join(unified_diff(each.before, each.after, relative_to_cwd(each.path)) for each in self.patches)


def safety_text(fix: Fix) -> tuple[Status | None, str]:
    """Return how far a fix can be trusted, with its status mark, or None if nothing can be applied."""
    if fix.safety == "safe":
        return "ok", "safe: fixes the fault and changes nothing else"
    if fix.safety == "unsafe":
        return "warn", f"read it first: {fix.why_unsafe}"
    return None, "to be done by hand"
