"""The labs: small jobs that really fail, one directory each, named for the cause that they show."""

from pathlib import Path
from typing import Literal

import msgspec

from .schema import BUILT_IN
from .yaml_file import KnowledgeError, convert, line_of, read_foreign_bytes

LABS = "labs"
DESCRIPTION = "lab.yaml"
Failure = Literal["hang", "slow", "crash", "wrong", "log"]


class LabEdit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The replacement of a text that a file of the lab has once."""

    file: str
    old: str
    new: str


class Lab(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One lab, as its ``lab.yaml`` describes it.

    ``failure`` is what the learner sees: the ranks stand still, a rank is slow, the job ends with an error, or the job
    ends well with a wrong result; ``log``: the files are the log of a job that this machine cannot run. ``launch`` is
    the command line as typed, ``environ`` variables of the user's shell.

    ``shows`` is a pattern in the output of the failing job, ``repaired`` one in that of the repaired job; a repaired
    job shows the second and not the first. ``fix`` is the id of the fix of the cause that repairs it, or a rule of
    the review whose patch does. ``edits`` are what that fix asks for, where it is a text. ``hints`` come one at a
    time, ``guesses`` are the causes among which the learner chooses, without the right one. ``within_s`` limits the
    failing run, and the repaired one.
    """

    title: str
    story: str
    failure: Failure
    hints: list[str]
    guesses: list[str]
    launch: str = ""
    environ: dict[str, str] = {}
    shows: str = ""
    repaired: str = ""
    fix: str = ""
    edits: list[LabEdit] = []
    within_s: int = 20
    cause: str = ""  # the name of its directory
    directory: Path = Path()

    @property
    def files(self) -> list[Path]:
        """The files of the lab without its description, by name."""
        found = (path for path in self.directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return sorted(path for path in found if path != self.directory / DESCRIPTION)


def read_labs(*extra: Path) -> dict[str, Lab]:
    """Return the built-in labs and those of further knowledge directories, by the id of their cause.

    Raises:
        KnowledgeError: A description is not valid.
    """
    paths = [path for root in (BUILT_IN, *extra) for path in sorted((root / LABS).glob(f"*/{DESCRIPTION}"))]
    return {path.parent.name: read_lab(path) for path in paths}


def read_lab(path: Path) -> Lab:
    """Return the lab that a ``lab.yaml`` describes.

    Raises:
        KnowledgeError: It is not valid.
    """
    text = read_foreign_bytes(path)
    lab = convert(path, text, Lab)
    problem = _problem(lab)
    if problem:
        key, what = problem
        raise KnowledgeError(path, line_of(text, [key]), what)
    return msgspec.structs.replace(lab, cause=path.parent.name, directory=path.parent)


def _problem(lab: Lab) -> tuple[str, str] | None:
    """Return the key of a description that is not valid, and why."""
    if len(lab.hints) != 3:
        return "hints", "a lab has three hints"
    if not lab.guesses:
        return "guesses", "a lab names other causes that the learner may suspect"
    if lab.failure == "log":
        return ("launch", "a lab of a log starts nothing") if lab.launch else None
    missing = next((name for name in ("launch", "fix", "repaired") if not getattr(lab, name)), None)
    if missing:
        return missing, f"a lab that runs needs {missing!r}"
    if lab.failure in ("crash", "wrong") and not lab.shows:
        return "shows", "what the job prints shows the failure"
    return None
