"""The labs: small jobs that really fail, one directory each, named for the cause that they show."""

import re
import shlex
from pathlib import Path
from typing import Literal

import msgspec

from .pattern_cost import has_nested_repeat
from .schema import BUILT_IN, UNFINISHED, Knowledge
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


def lab_ids(*extra: Path) -> set[str]:
    """Return the ids of the causes that have a lab, read or not."""
    return {path.parent.name for path in _descriptions(extra)}


def read_labs(*extra: Path) -> dict[str, Lab]:
    """Return the built-in labs and those of further knowledge directories, by the id of their cause.

    Raises:
        KnowledgeError: A description is not valid.
    """
    return {path.parent.name: read_lab(path) for path in _descriptions(extra)}


def read_valid_labs(knowledge: Knowledge, *extra: Path) -> tuple[dict[str, Lab], list[KnowledgeError]]:
    """Read as ``read_labs`` does, but leave out invalid labs and those that do not fit the entries; return their errors
    too."""
    labs: dict[str, Lab] = {}
    problems: list[KnowledgeError] = []
    for path in _descriptions(extra):
        try:
            lab = read_lab(path)
            if problem := _problem_of_links(lab, knowledge):
                raise _error(path, problem)
        except KnowledgeError as error:
            problems.append(error)
        else:
            labs[lab.cause] = lab
    return labs, problems


def read_lab(path: Path) -> Lab:
    """Return the lab that a ``lab.yaml`` describes.

    Raises:
        KnowledgeError: It is not valid.
    """
    text = read_foreign_bytes(path)
    read = convert(path, text, Lab)
    lab = msgspec.structs.replace(read, cause=path.parent.name, directory=path.parent)
    if problem := _unfinished(lab, text) or _problem(lab) or _problem_of_patterns(lab) or _problem_of_files(lab):
        raise _error(path, problem)
    return lab


def _descriptions(extra: tuple[Path, ...]) -> list[Path]:
    return [path for root in (BUILT_IN, *extra) for path in sorted((root / LABS).glob(f"*/{DESCRIPTION}"))]


def _error(path: Path, problem: tuple[str, str]) -> KnowledgeError:
    key, what = problem
    return KnowledgeError(path, line_of(path.read_bytes(), [key]), what)


def _problem(lab: Lab) -> tuple[str, str] | None:
    """Return the key of a description that is not valid, and why; so do the functions below."""
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


def _unfinished(lab: Lab, text: bytes) -> tuple[str, str] | None:
    """Return the parts of a draft that are still to be written."""
    mark = UNFINISHED.encode()
    keys = [key for key in Lab.__struct_fields__ if UNFINISHED in str(getattr(lab, key))] if mark in text else []
    keys += [path.name for path in lab.files if mark in path.read_bytes()]
    return (keys[0], f"still to be written: {', '.join(keys)}") if keys else None


def _problem_of_patterns(lab: Lab) -> tuple[str, str] | None:
    for key in ("shows", "repaired"):
        try:
            if has_nested_repeat(getattr(lab, key)):
                return key, "a repeat inside a repeat, as in (a+)+, may take for ever on a long line"
        except re.error as error:
            return key, f"invalid regular expression: {error}"
    return None


def _problem_of_files(lab: Lab) -> tuple[str, str] | None:
    if not lab.files:
        return "failure", "its directory has no other file"
    try:
        shlex.split(lab.launch)
    except ValueError as error:
        return "launch", f"no command line: {error}"
    for edit in lab.edits:
        path = lab.directory / edit.file
        if path not in lab.files:
            return "edits", f"no file {edit.file!r} in its directory"
        if (count := path.read_text(encoding="utf-8", errors="replace").count(edit.old)) != 1:
            return "edits", f"{edit.file} has the text to replace {count} times, not once"
    return None


def _problem_of_links(lab: Lab, knowledge: Knowledge) -> tuple[str, str] | None:
    cause = knowledge.causes.get(lab.cause)
    if cause is None:
        return "title", f"its directory is named {lab.cause!r}, and there is no such cause"
    if lab.fix and lab.fix not in {*knowledge.rules, *(fix.id for fix in cause.fixes)}:
        return "fix", f"neither a fix of {lab.cause} nor a rule of the review: {lab.fix!r}"
    if unknown := next((guess for guess in lab.guesses if guess not in knowledge.causes), None):
        return "guesses", f"no cause {unknown!r}"
    return None
