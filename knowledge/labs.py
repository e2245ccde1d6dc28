"""The labs: small jobs that really fail or measure something, one directory each."""

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
    """A prediction before a job measures the result: the right answer, the wrong ones, and the reason."""

    text: str
    right: str
    wrong: list[str]
    why: str


class LabCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number that the repaired job leaves, and which a proof checks.

    ``pattern`` finds it in what the job prints, or in ``file``, which the job writes (a name, or a pattern of names, as
    ``loss-?.txt``). It is the group ``value`` of the last match; without that group, how often the pattern matches.
    ``within`` is the tolerance, as versions of torch and the ways to repair a lab differ in the last digits. ``what``
    names the number and ``why`` says why it is that one, both for a learner whose job leaves another one.
    """

    what: str
    pattern: str
    value: float
    within: float = 0.0
    file: str = ""
    why: str = ""

    @property
    def has_value(self) -> bool:
        """True if the pattern has the number as a group."""
        return "(?P<value>" in self.pattern


class Lab(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One lab, as its ``lab.yaml`` describes it. Its id is the name of its directory.

    ``failure`` is what the learner sees: the job hangs, a rank is slow, the job ends with an error, or the job
    ends well with a wrong result; ``log``: the files are the log of a job that this machine cannot run; ``measure``:
    nothing is wrong, the job measures what ``question`` asks. ``launch`` is the command line as typed, ``environ``
    variables of the user's shell. ``cause`` is the cause that the lab shows, by default the one with its id.

    ``shows`` is a pattern in the output of the failing job, ``repaired`` one in that of the repaired job; a repaired
    job shows the second and not the first, and passes the ``checks`` of numbers that it leaves. ``fix`` is the
    id of the fix of the cause that repairs it, or a rule of the review whose patch does. ``edits`` are what that fix
    asks for, where it is a text. ``hints`` come one at a time, ``guesses`` are the causes among which the learner
    chooses, without the right one; ``nearly`` says of those that are also true, but more general, what they leave open.
    ``answers`` are those that the output of the failing run gives to questions of the
    wizard, by question. ``why`` is what the files or the run show, to be read after the answer. ``within_s`` limits the
    failing run, and the repaired one.
    """

    title: str
    story: str
    failure: Failure
    hints: list[str]
    guesses: list[str] = []
    nearly: dict[str, str] = {}
    why: str = ""
    question: LabQuestion | None = None
    plot: LabPlot | None = None
    launch: str = ""
    environ: dict[str, str] = {}
    shows: str = ""
    repaired: str = ""
    checks: list[LabCheck] = []
    fix: str = ""
    edits: list[LabEdit] = []
    answers: dict[str, str] = {}
    within_s: int = 20
    cause: str = ""
    id: str = ""
    directory: Path = Path()

    @property
    def files(self) -> list[Path]:
        """The files of the lab without its description, by name."""
        return files_of_lab(self.directory)


def files_of_lab(directory: Path) -> list[Path]:
    """Return the files in the directory of a lab without its description, by name."""
    found = (path for path in directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(path for path in found if path != directory / DESCRIPTION)


def lab_ids(*extra: Path) -> set[str]:
    """Return the ids of all labs, read or not."""
    return {path.parent.name for path in _descriptions(extra)}


def read_labs(*extra: Path) -> dict[str, Lab]:
    """Return the built-in labs and those of further knowledge directories, by id.

    Raises:
        KnowledgeError: A description is not valid.
    """
    return {path.parent.name: read_lab(path) for path in _descriptions(extra)}


def read_valid_labs(knowledge: Knowledge, *extra: Path) -> tuple[dict[str, Lab], list[KnowledgeError]]:
    """Read as ``read_labs`` does, but leave out invalid labs and those that do not fit the entries; return their errors
    too.

    A built-in lab is left out without an error if its cause is not among these entries.
    """
    labs: dict[str, Lab] = {}
    problems: list[KnowledgeError] = []
    for path in _descriptions(extra):
        try:
            lab = read_lab(path)
            if path.is_relative_to(BUILT_IN):
                if lab.cause and lab.cause not in knowledge.causes:
                    continue
            elif problem := problem_of_links(lab, knowledge):
                raise _error(path, problem)
        except KnowledgeError as error:
            problems.append(error)
        else:
            labs[lab.id] = lab
    return labs, problems


def read_lab(path: Path) -> Lab:
    """Return the lab that a ``lab.yaml`` describes.

    Raises:
        KnowledgeError: It is not valid.
    """
    text = read_foreign_bytes(path)
    read = convert(path, text, Lab)
    id_ = path.parent.name
    cause = "" if read.question else read.cause or id_
    lab = msgspec.structs.replace(read, id=id_, cause=cause, directory=path.parent)
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


def _unfinished(lab: Lab, text: bytes) -> tuple[str, str] | None:
    """Return the parts of a draft that are still to be written."""
    mark = UNFINISHED.encode()
    keys = [key for key in Lab.__struct_fields__ if UNFINISHED in str(getattr(lab, key))] if mark in text else []
    keys += [path.name for path in lab.files if mark in path.read_bytes()]
    return (keys[0], f"still to be written: {', '.join(keys)}") if keys else None


def _problem_of_patterns(lab: Lab) -> tuple[str, str] | None:
    patterns = [("shows", lab.shows), ("repaired", lab.repaired), *(("checks", check.pattern) for check in lab.checks)]
    for key, pattern in patterns:
        try:
            if has_nested_repeat(pattern):
                return key, "a repeat inside a repeat, as in (a+)+, may take for ever on a long line"
        except re.error as error:
            return key, f"invalid regular expression: {error}"
    if any(Path(check.file).is_absolute() or ".." in Path(check.file).parts for check in lab.checks):
        return "checks", "a file is named from the directory of the lab"
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


def problem_of_links(lab: Lab, knowledge: Knowledge) -> tuple[str, str] | None:
    """Return the key under which a lab names what these entries do not have, and why it is not valid."""
    if lab.question:
        return None
    cause = knowledge.causes.get(lab.cause)
    if cause is None:
        key = "title" if lab.cause == lab.id else "cause"
        return key, f"no cause {lab.cause!r}: name the directory for one, or name one with cause:"
    if lab.fix and lab.fix not in {*knowledge.rules, *(fix.id for fix in cause.fixes)}:
        return "fix", f"neither a fix of {lab.cause} nor a rule of the review: {lab.fix!r}"
    if unknown := next((guess for guess in lab.guesses if guess not in knowledge.causes), None):
        return "guesses", f"no cause {unknown!r}"
    if unknown := next((guess for guess in lab.nearly if guess not in lab.guesses), None):
        return "nearly", f"{unknown!r} is not among the guesses"
    for question, answer in lab.answers.items():
        if question not in knowledge.questions or answer not in knowledge.questions[question].answers:
            return "answers", f"no answer {answer!r} to a question {question!r}"
    return None


def _plot_problem(plot: LabPlot) -> str:
    try:
        groups = re.compile(plot.pattern).groupindex
    except re.error as error:
        return f"the pattern of the plot is no regular expression: {error}"
    return "" if "y" in groups and ("x" in groups) != ("label" in groups) else "the pattern needs y, and x or label"
