"""The result of a lab after its repair, and what a run that is not repaired shows instead."""

import re
import textwrap
from difflib import SequenceMatcher
from pathlib import Path
from typing import Literal

import msgspec

from ...knowledge.labs import Lab
from ...knowledge.schema import Knowledge
from ..diagnosis.job_evidence import review_script
from ..logs.analyse import analyse_logs
from ..logs.first_failure import first_error, first_error_text
from ..logs.read import source_of_text
from ..text.units import count_text
from .lab_checks import failed_check, failed_check_text, measured_value
from .lab_diagnosis import OUTPUT
from .lab_run import LabRun, missing_ranks, shows_failure
from .rank_output import lines_by_rank
from .workspace import script_of

# "still there": the failure of the lab; the last two: its end is neither that nor the one of the repaired lab.
Outcome = Literal["proved", "not shown here", "still there", "another error", "another result"]
LEAST_LIKENESS = 0.5  # of a line that is printed in place of the expected one
MOST_OF_A_LINE = 70
OPEN_PART = re.compile(r"(?:(?<!\\)\[[^\]]+\][+*?]?|\([^()]*\)|(?:\\[d1][+*?]?)+|(?<!\\)\.[+*])")  # what may differ


class LabProof(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the run after the repair, and why."""

    outcome: Outcome
    what: str


def right_end(lab: Lab, run: LabRun) -> str:
    """Return what proves a repair: the line that the job printed, and the checked numbers that are not in it."""
    line = _line_of(lab.repaired, run)
    ends = f'every rank ends well and prints "{textwrap.shorten(line, MOST_OF_A_LINE, placeholder="…")}"'
    others = [check for check in lab.checks if check.file or not re.search(check.pattern, line)]
    values = [f"{check.what} is {measured_value(check, run.output, run.files):g}" for check in others]
    return "; ".join([ends, *values])


def what_is_missing(lab: Lab, directory: Path, knowledge: Knowledge) -> str:
    """Return what the review finds in the repaired script and did not find in that of the lab; "" if nothing."""
    before = {each.rule for each in review_script(script_of(lab, lab.directory), knowledge)}
    found = [each for each in review_script(script_of(lab, directory), knowledge) if each.rule not in before]
    named = [f"{each.message.removesuffix('.')} ({each.rule}, line {each.line})" for each in found]
    return f"The review finds in it: {'; '.join(named)}" if named else ""


def missed_repair(lab: Lab, run: LabRun, knowledge: Knowledge) -> LabProof:
    """Return what a run shows that does not end as the repaired job does."""
    if shows_failure(lab, run):
        line = _line_of(lab.shows, run) if lab.failure in ("crash", "wrong") else ""
        return LabProof(outcome="still there", what=f"it fails as before: {line}" if line else "it fails as before")
    if run.ending != "ended":
        return LabProof(outcome="still there", what=f"it did not end within {lab.within_s} s")
    if run.code:
        return LabProof(outcome="another error", what=f"it ended with code {run.code}. {_error_text(run, knowledge)}")
    if missing := missing_ranks(lab, run):
        what = f"every rank ends well, but the job was started with {count_text(missing, 'rank')} fewer than the lab"
        return LabProof(outcome="another result", what=what)
    if re.search(lab.repaired, run.output) and (check := failed_check(lab, run.output, run.files)):
        what = f"every rank ends well, but {failed_check_text(check, run.output, run.files)}"
        return LabProof(outcome="another result", what=what)
    return LabProof(outcome="another result", what=f"every rank ends well, but {_line_instead(lab, run)}")


def _line_of(pattern: str, run: LabRun) -> str:
    """Return the line of the output that a pattern matches first, or ""."""
    lines = [line.strip() for lines in lines_by_rank(run.output).values() for line in lines]
    return next((line for line in lines if re.search(pattern, line)), "")


def _line_instead(lab: Lab, run: LabRun) -> str:
    """Return the expected line, and the printed one that differs from it."""
    if (line := _line_of(lab.shows, run) if lab.shows else "") and _line_of(lab.repaired, run):
        return f'one line is still "{line}"'
    lines = _lines(run)
    likeness = {line: SequenceMatcher(None, lab.repaired, line, autojunk=False).ratio() for line in lines}
    nearest = max(lines, key=likeness.__getitem__, default="")
    if line or (nearest and likeness[nearest] >= LEAST_LIKENESS):
        return f'a line reads "{line or nearest}"; expected: "{_readable(lab.repaired)}"'
    last = f'; the last line is "{lines[-1]}"' if lines else " and nothing else either"
    return f'"{_readable(lab.repaired)}" is not printed{last}'


def _readable(pattern: str) -> str:
    """Return a pattern as a line to read, with … for what may differ."""
    open_parts = OPEN_PART.sub("…", pattern)
    return re.sub("…+", "…", re.sub(r"\\(.)", r"\1", open_parts))


def _error_text(run: LabRun, knowledge: Knowledge) -> str:
    """Return the exception that ended a job, with its line; without one, the last line that was printed."""
    timeline = analyse_logs([source_of_text(run.output, OUTPUT)], knowledge).timeline
    if timeline and (found := first_error(timeline)):
        return first_error_text(found)
    lines = _lines(run)
    return f"The last line: {lines[-1]}" if lines else "It printed nothing."


def _lines(run: LabRun) -> list[str]:
    """Return the lines of the ranks; those of the launcher only where no rank has printed."""
    found = lines_by_rank(run.output)
    ranks = [line.strip() for rank, lines in found.items() if rank is not None for line in lines]
    return ranks or [line.strip() for line in found[None]]
