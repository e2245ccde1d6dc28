"""The words of a lab, the same on the screen and in plain mode."""

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...knowledge.chapters import COLUMNS
from ...knowledge.labs import Failure
from ..evidence import ReasonLine, Source
from ..fixes.fix_text import fix_lines
from ..fixes.records import AppliedFix
from ..fixes.types import Fix, safety_text
from ..system.paths import relative_to
from ..text.diff import unified_diff
from ..text.paragraphs import reflow
from ..text.terminal import Verbatim, align_columns
from ..text.units import probability_text
from .lab_diagnosis import OUTPUT, Repair
from .lab_session import LabSession
from .rank_output import TRACEBACK, printed_line, printer_name

FAILURE_TEXT: dict[Failure, str] = {
    "hang": "The job hangs. The table of the ranks shows where each of them waits.",
    "slow": "The job goes on, but one rank holds the others up. The table of the ranks shows what each of them does.",
    "crash": "The job has ended with an error.",
    "wrong": "The job has ended well. Is its result right?",
    "log": "The files above are all that is left of the job.",
    "measure": "The job has measured it.",
}
NOT_FAILED = "The job did not fail this time. Run it again."
WELL_AFTER_CHANGE = "The job does not fail: your copy is changed."
RUN_ORIGINAL = "run the original, to see it fail"
ORIGINAL_FIRST = "the original runs first, as it was not seen to fail"
RESTORE_IT = "Restore the files of the lab?"
OWN_FAILURE = "Edit your copy, or restore its files."
NOT_MEASURED = "The job did not end well. Restore its files if you have changed them, and run it again."
RANK_PREFIX = "[default0]:"
WRITE_IT, START_SO = "Write it to your copy of the lab?", "Start your copy with this command from now on?"
UNDOABLE = "Applied to your copy; ddpwizard undo takes it back."
RESTORED_TEXT = "The files of the lab are restored."
BACKUP_TEXT = "The files of the lab are restored; ddpwizard undo brings your changes back."
STARTED_SO = "Your copy starts with this command from now on. Restoring the lab takes that back."
EDIT_WHAT, EDIT_COMMAND = "Edit what?", "the command that starts it"
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")
EXAMPLES = re.compile(r" \([^()]*\)")
MOST_OF_A_SUMMARY = 190  # characters, so that a status line of 80 columns has room for it
MOST_OF_AN_OBSERVATION = 90
# Not the answers of a person, nor the review, which names the fault.
OBSERVED: tuple[Source, ...] = ("log", "job", "probe")
LOG_PREFIX = re.compile(r"^[EWIF]\d{4} [\d:.]+ +\d+ \S+:\d+\] +")  # of a line that the launcher logs
REFUSED = "not this one"
MOST_REASONS = 4  # of the evidence
NUMBER_WIDTH = 6  # columns before a line of code


def numbered_code(text: str, width: int) -> list[str]:
    """Return the lines of a file with their numbers; one longer than ``width`` goes on below its text (0: never)."""
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        lines += _wrap_code(f"{number:>4}  {line}".rstrip(), NUMBER_WIDTH + len(line) - len(line.lstrip()), width)
    return [Verbatim(line) for line in lines]


def _wrap_code(line: str, indent: int, width: int) -> list[str]:
    """Return a numbered line wrapped between words, what continues it four columns to the right of its ``indent``."""
    if not width or len(line) <= width:
        return [line]
    return textwrap.wrap(
        line, width, subsequent_indent=" " * (indent + 4), break_on_hyphens=False, break_long_words=False
    )


def rank_prefix_text(session: LabSession) -> str:
    """Return what the prefix of lines in the files of a lab means; "" if they have none."""
    if session.lab.launch:
        return ""
    has_prefix = any(RANK_PREFIX in path.read_text(encoding="utf-8", errors="replace") for path in session.lab.files)
    return f"{RANK_PREFIX} is the prefix that torchrun gives to lines of local rank 0." if has_prefix else ""


def question_text(session: LabSession) -> str:
    """Return the question that the learner answers."""
    return session.lab.question.text if session.lab.question else "What is the cause?"


def wrong_answer_text(session: LabSession, choice: str) -> str:
    """Return why a choice is not the answer, without the answer."""
    if nearly := session.lab.nearly.get(choice):
        return f"Nearly: {nearly}"
    summary = " ".join(session.knowledge.causes[choice].summary.split())
    against = _observed_against(session, choice)
    if len(summary) > MOST_OF_A_SUMMARY or against:
        summary = SENTENCE_END.split(EXAMPLES.sub("", summary))[0]
    return f"No. That would be: {summary}{f' Against it: {against}' if against else ''}"


def _observed_against(session: LabSession, choice: str) -> str:
    """Return an observation of the job against a cause that names no other one; "" if none does."""
    ranked = session.found.diagnosis.causes if session.found else []
    titles = [cause.title for cause in session.knowledge.causes.values()]
    lines = [line for each in ranked if each.id == choice for line in each.against if line.source in OBSERVED]
    named = (line.what for line in lines if not any(title in line.what for title in titles))
    return textwrap.shorten(next(named, ""), MOST_OF_AN_OBSERVATION, placeholder="…")


def not_shown_text(session: LabSession) -> str:
    """Return the message after a run that did not show what the lab is about."""
    if session.lab.question:
        return NOT_MEASURED
    if session.other_failure:
        return f"Not the failure of the lab: {session.other_failure.removesuffix('.')}. {OWN_FAILURE}"
    return WELL_AFTER_CHANGE if session.is_changed else NOT_FAILED


def resumed_text(session: LabSession) -> str:
    """Return what was done before in a lab that is opened again; "" if nothing was."""
    if not session.lab.launch or session.lab.question:
        return ""
    if session.progress.answered:
        named = f"The cause is named: {session.knowledge.causes[session.lab.cause].title}."
        return f"{named} A repair was proved." if session.progress.repaired else named
    return "The job was seen to fail; its output is kept." if session.found else ""


def restore_details(session: LabSession) -> str:
    """Return what a restore does with the learner's copy."""
    lines = ["Your changes are kept: ddpwizard undo brings them back."] if session.is_edited else []
    if session.progress.launch or session.progress.environ:
        lines.append(f"It starts with the command of the lab again: {session.lab.launch}")
    return "\n".join(lines)


def restored_text(backup: AppliedFix | None) -> str:
    """Return the message after a restore."""
    return BACKUP_TEXT if backup else RESTORED_TEXT


def repair_title_lines(repair: Repair, directory: Path) -> list[str]:
    """Return what a repair is and which lines of the learner's directory it changes, without its patches."""
    fix = repair.fix
    if repair.advice:
        places = [(f"  {relative_to(each.path, directory)}:{each.line}", each.text) for each in fix.places]
        lines = [fix.title, "  written for this lab; the advice of the wizard is below", *align_columns(places)]
    else:
        lines = [fix.title, f"  {safety_text(fix)[1]}"]
    if fix.start or fix.environ:
        lines += ["", "Your copy starts with this command from now on:", f"  $ {repair.command}"]
    return lines


def repair_diff(repair: Repair, directory: Path) -> str:
    """Return the patches of a repair as one diff, with paths relative to the learner's directory."""
    patches = repair.fix.patches
    return "".join(unified_diff(each.before, each.after, relative_to(each.path, directory)) for each in patches)


def repair_advice_lines(repair: Repair) -> list[str]:
    """Return the prose of a repair: the fix of the wizard, after which the job of the lab was changed."""
    if advice := repair.advice:
        return ["", f"What the wizard advises for the job that ran, which has ended: {advice.title}", *_prose(advice)]
    return ["", *_prose(repair.fix)]


def _prose(fix: Fix) -> list[str]:
    reflowed = msgspec.structs.replace(fix, text=reflow(fix.text), note=reflow(fix.note))
    return fix_lines(reflowed)[2:]  # without title and safety


def repair_question(repair: Repair) -> str:
    """Return the question before a repair is applied."""
    return WRITE_IT if repair.fix.patches or repair.fix.files else START_SO


def applied_text(applied: AppliedFix | None) -> str:
    """Return the message after a repair: what was written, or that only the command line of the copy changed."""
    return UNDOABLE if applied else STARTED_SO


def evidence_lines(session: LabSession) -> list[str]:
    """Return the answer of a lab and the reasons: of a cause, the evidence that the wizard has for it."""
    if question := session.lab.question:
        given = session.progress.guess
        yours = [f"Your prediction: {given}", "It is right." if given == question.right else "It is not right."]
        return [f"Measured: {question.right}", *(yours if given else []), "", *textwrap.wrap(question.why, COLUMNS)]
    cause = session.knowledge.causes[session.lab.cause]
    lines = [f"Cause: {cause.title}", *cause.summary.strip().splitlines()]
    lines += ["", *textwrap.wrap(session.lab.why, COLUMNS)] if session.lab.why else []
    ranked = session.found.diagnosis.causes if session.found else []
    for number, own in enumerate(ranked, 1):
        if own.id != cause.id:
            continue
        of_all = f"Of {len(ranked)} possible causes the wizard ranks it as number {number}"
        place = of_all if ranked[1:] else "The wizard finds only this cause"
        lines += ["", f"{place}, with {probability_text(own.confidence)}, because:"]
        lines += [f"  {line}" for line in _reasons(session, own.because)]
    lines += ["", f"More: ddpwizard explain {cause.id}"]
    return lines


def _reasons(session: LabSession, because: Sequence[ReasonLine]) -> list[str]:
    """Return what the files and the run show for a cause, each line of the output once.

    The answers of the lab are not among it: the learner has not given them. In their place is what the job printed.
    """
    seen = {line.where: line for line in reversed(because) if line.where}
    shown = [line for line in because if line.source != "answer" and seen.get(line.where, line) is line]
    places = [_seen_at(session, line) if line.where else "" for line in shown]
    lines = [f"{line.what}   [{place}]" if place else line.what for line, place in zip(shown, places, strict=True)]
    of_launcher = f"output of {printer_name(None, session.shown_launch)}"
    from_launcher = [line for line, place in zip(lines, places, strict=True) if place.startswith(of_launcher)]
    lines = [line for line in lines if line not in from_launcher[1:]]  # a launcher repeats how the ranks ended
    if session.lab.answers and session.run and session.lab.shows:
        printed = [line for line in session.run.output.splitlines() if re.search(session.lab.shows, line)]
        lines[:0] = [f"the job prints: {_text_of(line)}" for line in printed[:1]]
    return lines[:MOST_REASONS]


def _text_of(line: str) -> str:
    """Return a line of the output without the name of its rank."""
    shown = printed_line(line)
    return LOG_PREFIX.sub("", shown.text if shown else line).strip()


def _seen_at(session: LabSession, reason: ReasonLine) -> str:
    """Return where evidence was seen; of the output, which is shown by rank and without numbers, the line itself."""
    origin, _, number = reason.where.rpartition(":")
    lines = session.run.output.splitlines() if session.run else []
    if origin != OUTPUT or not number.isdecimal() or not 0 < int(number) <= len(lines):
        return relative_to(reason.where, session.directory)
    line = lines[int(number) - 1]
    shown = printed_line(line)
    name = printer_name(shown.rank if shown else None, session.shown_launch)
    text = _text_of(line)
    is_named = text in reason.what or text.startswith(TRACEBACK)
    return f"output of {name}" if is_named else f"output of {name}: {text}"
