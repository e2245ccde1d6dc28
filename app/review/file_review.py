"""The review of one file: a script or a notebook, with its comments that suppress findings and its settings."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ...knowledge.schema import Knowledge, Safety
from ..errors import UserError
from ..system.error_log import log_traceback
from ..system.paths import relative_to_cwd
from ..text.diff import unified_diff
from ..training_script.cells import Notebook, read_notebook
from ..training_script.source import NEWLINE, read_source
from .patches.apply_edits import apply_edits
from .review import apply_patches, review_script, review_text
from .rule_descriptions import UNUSED_IGNORE, rules_with_texts
from .settings import ReviewSettings
from .suppressions import suppressions_in, unsuppressed, unused_suppressions
from .types import (
    CellPlace,
    Patched,
    RelatedPlace,
    ReviewedFile,
    ReviewedSource,
    ReviewFinding,
    RuleFix,
    SkippedFile,
    SourceLine,
)

NOTEBOOK = ".ipynb"
LINES_OR_CODE = re.compile(r"`[^`]*`|\blines? \d+(?:, \d+)*")
NUMBER = re.compile(r"\d+")
LINES_AROUND = 2
MOST_LINES = 9


def review_file(path: Path, knowledge: Knowledge) -> list[ReviewFinding]:
    """Return the findings of all rules in a script or a notebook, as evidence: comments suppress none.

    Raises:
        UserError: It is missing, binary, not in its own encoding, or no Python.
    """
    return findings_in(read_source(path)[1], str(path), knowledge)


def findings_in(
    text: str, path: str, knowledge: Knowledge, rules: Collection[str] | None = None
) -> list[ReviewFinding]:
    """Return the findings of the rules (all, or those named) in the text of a script or a notebook.

    Raises:
        UserError: The text is not valid Python, or no notebook with Python code; or a rule failed.
    """
    with every_error_in_one_line(path):
        return [
            finding
            for code, notebook in _parts(text, path)
            for finding in _in_file(review_text(code, path, knowledge, rules), notebook)
        ]


@contextmanager
def every_error_in_one_line(path: str) -> Iterator[None]:
    """Raise every error, those of a rule too, as a ``UserError`` that names the file."""
    try:
        yield
    except UserError:
        raise
    except (RecursionError, MemoryError) as error:
        raise UserError(f"{path}: nested too deeply to be reviewed", "split its longest expression") from error
    except Exception as error:
        problem = f"{path}: an error of ddpwizard, {type(error).__name__}"
        raise UserError(problem, f"the traceback is in {log_traceback()}") from error


def review_or_skip(
    path: Path,
    settings: ReviewSettings,
    knowledge: Knowledge,
    safeties: Sequence[Safety] = (),
) -> ReviewedFile | SkippedFile:
    """Return the review of a file with its patches of these levels of safety, or why it could not be reviewed."""
    try:
        with every_error_in_one_line(str(path)):
            _, text, encoding = read_source(path)
            absolute = str(path.absolute())
            findings, excerpts, complete = review_source(text, absolute, settings, knowledge)
            patched = None
            if safeties and any(finding.fix for finding in findings):
                after, done = apply_patches(
                    text,
                    lambda changed: review_source(changed, absolute, settings, knowledge).findings,
                    safeties,
                    findings,
                )
                patched = Patched(before=text, after=after, encoding=encoding, done=done) if after != text else None
            return ReviewedFile(path=absolute, findings=findings, excerpts=excerpts, patched=patched, complete=complete)
    except UserError as error:
        return SkippedFile(str(path), error.message.replace(str(path.absolute()), str(path)), error.next_step)


def review_source(text: str, path: str, settings: ReviewSettings, knowledge: Knowledge) -> ReviewedSource:
    """Return the review of the text of a file.

    Raises:
        UserError: The text is not valid Python, or no notebook with Python code.
    """
    shown: list[tuple[ReviewFinding, list[SourceLine]]] = []
    complete = True
    for code, notebook in _parts(text, path):
        found, followed = _review_code(code, path, settings, knowledge)
        complete = complete and followed
        lines = notebook.lines if notebook else NEWLINE.split(text) if found else []
        excerpts = [_excerpt(finding, lines, notebook) for finding in found]
        shown += zip(_in_file(found, notebook), excerpts, strict=True)
    shown.sort(key=lambda each: each[0].line)
    return ReviewedSource([finding for finding, _ in shown], [excerpt for _, excerpt in shown], complete)


def _review_code(
    code: str, path: str, settings: ReviewSettings, knowledge: Knowledge
) -> tuple[list[ReviewFinding], bool]:
    """Return the findings in Python code by the settings, without those that a comment suppresses.

    The second part of the result: all calls could be followed.
    """
    every = rules_with_texts(knowledge)
    ran = settings.rules(every)
    findings, complete = review_script(code, path, knowledge, ran)
    if comments := suppressions_in(code):
        unused = unused_suppressions(findings, comments, path, ran=ran, known=every)
        findings = unsuppressed(findings, comments)
        findings += unused if UNUSED_IGNORE in ran else []
        findings.sort(key=lambda finding: (finding.line, finding.column, finding.rule))
    findings = [
        msgspec.structs.replace(finding, severity=settings.severity.get(finding.rule, finding.severity))
        for finding in findings
    ]
    return findings, complete


def _parts(text: str, path: str) -> list[tuple[str, Notebook | None]]:
    """Return the Python code of a file; of a notebook its own and that of each script it writes, with their cells."""
    if not path.endswith(NOTEBOOK):
        return [(text, None)]
    return [(notebook.code, notebook) for notebook in read_notebook(text, path)]


def _excerpt(finding: ReviewFinding, lines: Sequence[str], notebook: Notebook | None) -> list[SourceLine]:
    """Return the lines of a finding and of its condition, numbered as they are shown; distant ones are left out."""
    first = finding.branch or max(1, finding.line - LINES_AROUND)
    wanted = list(range(min(first, finding.line), min(len(lines), finding.line + LINES_AROUND) + 1))
    if len(wanted) > MOST_LINES:
        wanted = [n for n in wanted if abs(n - finding.line) <= LINES_AROUND or n == finding.branch]
    if not notebook:
        return [SourceLine(number, lines[number - 1]) for number in wanted]
    cell = notebook.place(finding.line).cell
    places = [(number, notebook.place(number)) for number in wanted]
    return [SourceLine(place.line, lines[number - 1]) for number, place in places if place.cell == cell]


def _in_file(findings: list[ReviewFinding], notebook: Notebook | None) -> list[ReviewFinding]:
    """Return findings in the code of a file as findings in the file."""
    return [_in_notebook(finding, notebook) for finding in findings] if notebook else findings


def _in_notebook(finding: ReviewFinding, notebook: Notebook) -> ReviewFinding:
    """Return a finding in the code of a notebook as a finding in its file."""
    place = notebook.place(finding.line)
    return msgspec.structs.replace(
        finding,
        line=place.file_line,
        end_line=notebook.place(finding.end_line).file_line,
        branch=finding.branch and notebook.place(finding.branch).file_line,
        related=[_related_in_notebook(each, finding.path, notebook) for each in finding.related],
        cell=CellPlace(place.cell, place.line),
        message=_with_cells(finding.message, notebook),
        fix=finding.fix and _fix_in_notebook(finding.fix, finding.path, notebook),
    )


def _related_in_notebook(related: RelatedPlace, path: str, notebook: Notebook) -> RelatedPlace:
    if related.path != path:
        return related
    place = notebook.place(related.line)
    return msgspec.structs.replace(related, line=place.file_line, cell=CellPlace(place.cell, place.line))


def _fix_in_notebook(fix: RuleFix, path: str, notebook: Notebook) -> RuleFix:
    why_unsafe = fix.why_unsafe and _with_cells(fix.why_unsafe, notebook)
    if not fix.edits:
        return msgspec.structs.replace(fix, why_unsafe=why_unsafe)
    try:
        edits = notebook.edits_of_file(fix.edits)
    except UserError as error:
        return RuleFix(id=fix.id, safety="display", why_unsafe=error.message, edits=[], diff="")
    after = apply_edits(notebook.text, edits)
    diff = unified_diff(notebook.text, after, relative_to_cwd(path))
    return RuleFix(id=fix.id, safety=fix.safety, why_unsafe=why_unsafe, edits=edits, diff=diff)


def _with_cells(text: str, notebook: Notebook) -> str:
    """Return a text of a rule with the lines that it names as lines of cells; code in backquotes stays."""

    def shown(found: re.Match[str]) -> str:
        if found[0].startswith("`"):
            return found[0]
        places = [notebook.place(int(number)) for number in NUMBER.findall(found[0])]
        return ", ".join(f"cell {place.cell} line {place.line}" for place in places)

    return LINES_OR_CODE.sub(shown, text)
