"""A fix as plain data: text-range edits on an original, or whole files, with their level of safety."""

from difflib import SequenceMatcher
from pathlib import Path

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


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a file that a fix is about: its text, if it can be read, and its part in the case."""

    path: str
    line: int
    text: str = ""
    label: str = ""

    @property
    def shown(self) -> str:
        """The place as ``train.py:34``, relative to the working directory."""
        return f"{relative_to_cwd(self.path)}:{self.line}"


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """A fix of a cause as it is shown and written.

    ``text`` and ``note`` are prose before and after ``code``, the lines to insert or run as they are. ``patches``
    change existing files; ``files`` (name to content) are new ones; ``commands`` are lines to run. ``places`` are the
    lines of the user's files that it is about, ``again`` is the command line that starts the job again, and ``start``
    the one of ``commands`` that starts it where the command line is the fix; ``directory`` is where these two are to
    be run, if not in the working directory. ``environ``: the variables that it sets.
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
    places: list[Place] = []
    again: str = ""
    start: str = ""
    directory: str = ""
    environ: dict[str, str] = {}

    def diff(self) -> str:
        """Return the patches as one unified diff, with paths relative to the working directory."""
        return "".join(unified_diff(each.before, each.after, relative_to_cwd(each.path)) for each in self.patches)


def changed_places(patch: FilePatch) -> list[Place]:
    """Return the first line of each change of a patch, as it is before the change."""
    before, after = patch.before.splitlines(), patch.after.splitlines()
    changes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    first = [start for kind, start, *_ in changes if kind != "equal" and start < len(before)]
    return [Place(path=patch.path, line=at + 1, text=before[at].strip()) for at in first]


def editable_place(fix: Fix) -> Place | None:
    """Return the first place of a fix that is in a file of this machine, or None: a pasted text has no file."""
    return next((place for place in fix.places if Path(place.path).is_file()), None)


def place_lines(fix: Fix) -> list[str]:
    """Return the places of a fix as aligned lines: ``train.py:34  if rank == 0:  (the condition)``."""
    width = max((len(place.shown) for place in fix.places), default=0)
    return [
        f"{place.shown:<{width}}  {place.text}" + (f"   ({place.label})" if place.label else "") for place in fix.places
    ]


def done_text(fix: Fix, paths: str) -> str:
    """Return what applying a fix did: a file of the user's was changed, or a new file was written."""
    if fix.patches:
        return f"Applied to {paths}"
    kind = "Example" if all(name.endswith(".py") for name in fix.files) else "File"
    return f"{kind} written: {paths}; your script is unchanged"


def commands_text(fix: Fix) -> str:
    """Return the line before the commands of a fix that are to be run in another directory than the working one."""
    return f"In {fix.directory}:"


def start_again_text(fix: Fix) -> str:
    """Return the line before the command that starts the job again."""
    return f"Then start it again, in {fix.directory}:" if fix.directory else "Then start it again:"


def safety_text(fix: Fix) -> tuple[Status | None, str]:
    """Return how far a fix can be trusted, with its status mark, or None if nothing can be applied."""
    if fix.safety == "safe":
        return "ok", "safe: fixes the fault and changes nothing else"
    if fix.safety == "unsafe":
        return "warn", f"may change behaviour: {fix.why_unsafe}"
    if fix.files or fix.commands:
        return None, "no automatic patch: commands and files for this machine"
    return None, "no automatic patch. What to change:"
