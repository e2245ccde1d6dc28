"""The labs: small jobs that really fail or measure something, one directory each."""

import re
from pathlib import Path
from typing import Literal

import msgspec

from .schema import BUILT_IN
from .yaml_file import KnowledgeError, convert, line_of, read_foreign_bytes

LABS = "labs"
DESCRIPTION = "lab.yaml"
Failure = Literal["hang", "slow", "crash", "wrong", "log", "measure"]


class LabEdit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The replacement of a text that a file of the lab has once."""

    file: str
    old: str
    new: str


class LabPlot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A picture of numbers that the job prints.

    ``pattern`` has the group ``y`` and either ``x``, for a line plot, or ``label``, for one bar each. ``series``
    separates several lines of one run, such as those of the ranks. ``x`` and ``y`` name the axes.
    """

    title: str
    pattern: str
    y: str
    x: str = ""
    log: bool = False


class LabQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question to be answered before a job measures it: the right answer, the wrong ones, and the reason."""

    text: str
    right: str
    wrong: list[str]
    why: str


class Lab(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One lab, as its ``lab.yaml`` describes it. Its id is the name of its directory.

    ``failure`` is what the learner sees: the ranks stand still, a rank is slow, the job ends with an error, or the job
    ends well with a wrong result; ``log``: the files are the log of a job that this machine cannot run; ``measure``:
    nothing is wrong, the job measures what ``question`` asks. ``launch`` is the command line as typed, ``environ``
    variables of the user's shell. ``cause`` is the cause that the lab shows, by default the one with its id.

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
    guesses: list[str] = []
    question: LabQuestion | None = None
    plot: LabPlot | None = None
    launch: str = ""
    environ: dict[str, str] = {}
    shows: str = ""
    repaired: str = ""
    fix: str = ""
    edits: list[LabEdit] = []
    within_s: int = 20
    cause: str = ""
    id: str = ""
    directory: Path = Path()

    @property
    def files(self) -> list[Path]:
        """The files of the lab without its description, by name."""
        found = (path for path in self.directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return sorted(path for path in found if path != self.directory / DESCRIPTION)


def lab_ids(*extra: Path) -> set[str]:
    """Return the ids of all labs, read or not."""
    return {path.parent.name for path in lab_paths(*extra)}


def read_labs(*extra: Path) -> dict[str, Lab]:
    """Return the built-in labs and those of further knowledge directories, by id.

    Raises:
        KnowledgeError: A description is not valid.
    """
    return {path.parent.name: read_lab(path) for path in lab_paths(*extra)}


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
    id_ = path.parent.name
    cause = "" if lab.question else lab.cause or id_
    return msgspec.structs.replace(lab, id=id_, cause=cause, directory=path.parent)


def lab_paths(*extra: Path) -> list[Path]:
    """Return the descriptions of all labs, the built-in ones first."""
    return [path for root in (BUILT_IN, *extra) for path in sorted((root / LABS).glob(f"*/{DESCRIPTION}"))]


def _problem(lab: Lab) -> tuple[str, str] | None:
    """Return the key of a description that is not valid, and why."""
    if len(lab.hints) != 3:
        return "hints", "a lab has three hints"
    if lab.plot and (problem := _plot_problem(lab.plot)):
        return "plot", problem
    if (lab.failure == "measure") != bool(lab.question):
        return "failure", "a lab that measures has a question, and no other has one"
    if not lab.guesses and not lab.question:
        return "guesses", "a lab names other causes that the learner may suspect"
    if lab.failure == "log":
        return ("launch", "a lab of a log starts nothing") if lab.launch else None
    needed = ("launch", "repaired") if lab.question else ("launch", "fix", "repaired")
    missing = next((name for name in needed if not getattr(lab, name)), None)
    if missing:
        return missing, f"a lab that runs needs {missing!r}"
    if lab.failure in ("crash", "wrong") and not lab.shows:
        return "shows", "what the job prints shows the failure"
    return None


def _plot_problem(plot: LabPlot) -> str:
    try:
        groups = re.compile(plot.pattern).groupindex
    except re.error as error:
        return f"the pattern of the plot is no regular expression: {error}"
    return "" if "y" in groups and ("x" in groups) != ("label" in groups) else "the pattern needs y, and x or label"
