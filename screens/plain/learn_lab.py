"""One lab in the plain wizard: the next step of the session is asked, until the lab is done or left."""

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Mapping

from ...app.diagnosis.term_text import terms_in_text
from ...app.errors import UserError
from ...app.labs.course import CourseLab
from ...app.labs.lab_session import LabSession
from ...app.labs.phrases import (
    EDIT_COMMAND,
    EDIT_WHAT,
    FAILURE_TEXT,
    ORIGINAL_FIRST,
    REFUSED,
    RESTORE_IT,
    RUN_ORIGINAL,
    applied_text,
    evidence_lines,
    not_shown_text,
    numbered_code,
    question_text,
    rank_prefix_text,
    repair_advice_lines,
    repair_diff,
    repair_question,
    repair_title_lines,
    restore_details,
    restored_text,
    resumed_text,
    wrong_answer_text,
)
from ...app.labs.plot import table_lines
from ...app.labs.rank_lines import rank_lines
from ...app.options import target_python
from ...app.system.editor import editor_command
from ...app.text.paragraphs import reflow
from ...app.text.terminal import terminal_width
from ...knowledge.chapters import COLUMNS
from ..shell.state import WizardState
from .lab_output import run_job
from .prompt import Prompt

EDIT, RESTORE = "Edit your copy", "Restore its files"
LEAVE, HINT = {"b": "back to the chapter"}, {"h": "a hint"}
NO_LETTERS: Mapping[str, str] = {}
CHANGED = f'Your copy has your last changes. "{RESTORE}" begins the lab again.'
RANKS_WIDTH = 100  # of the table of the ranks
EDIT_KEY, RUN_KEY, ORIGINAL_KEY, TERMS_KEY = "e", "r", "o", "t"


class LabLeft(Exception):
    """The learner leaves the lab."""


def run_lab_plain(state: WizardState, prompt: Prompt, entry: CourseLab) -> None:
    """Go through one lab: story and code, the failing run, the learner's guess, the evidence, the repair, the proof.

    What was done is kept, so the lab goes on where it was left.
    """
    try:
        python = target_python(state.options)
        session = LabSession(entry.lab, state.knowledge, python, number=entry.first_number)
        _show_story(prompt, entry, session)
        if not session.lab.launch:
            asyncio.run(session.read_log())
        if session.stage == "done" and not session.lab.question:
            prompt.write(*evidence_lines(session))  # a log whose cause was named before
        while session.stage != "done":
            _next_step(prompt, session)
        _show_end(prompt, session)
    except LabLeft:
        return
    except UserError as error:
        prompt.write(f"  {prompt.status_sign('fail')} {error}")


def _next_step(prompt: Prompt, session: LabSession) -> None:
    match session.stage:
        case "run":
            _run(prompt, session)
        case "answer":
            _answer(prompt, session)
        case "repair":
            _repair(prompt, session)
        case _:
            _prove(prompt, session)


def _show_story(prompt: Prompt, entry: CourseLab, session: LabSession) -> None:
    """Show the code, then the story, which is read first and is above the question."""
    lab = entry.lab
    same_as = f"   (same as {entry.same_as})" if entry.same_as else ""
    prompt.write("", f"Lab {entry.number}  {lab.title}{same_as}", "")
    if prefix_text := rank_prefix_text(session):
        prompt.write(prefix_text, "")
    for path in lab.files:
        copy = session.directory / path.relative_to(lab.directory)
        code = copy.read_text(encoding="utf-8", errors="replace")
        prompt.write(f"--- {copy}", *numbered_code(code, terminal_width(sys.stdout)), "")
    width = min(COLUMNS, terminal_width(sys.stdout) or COLUMNS)
    for paragraph in reflow(lab.story).splitlines():
        prompt.write(*(textwrap.wrap(paragraph, width) or [""]))
    prompt.write("")
    if text := resumed_text(session):
        prompt.write(text)
    if session.stage == "prove":
        prompt.write(CHANGED)


def _choose(
    prompt: Prompt, options: list[str], question: str = "What next? ", letters: Mapping[str, str] = NO_LETTERS
) -> str:
    """Return the chosen option, or one of ``letters``.

    Raises:
        LabLeft: The learner leaves.
    """
    prompt.write("")
    given = prompt.choose(options, {**letters, **LEAVE}, question)
    if given in LEAVE:
        raise LabLeft
    return given if given in letters else options[int(given) - 1]


def _edit_or_restore(prompt: Prompt, session: LabSession, chosen: str) -> bool:
    """Do what was chosen if it is one of these two; return whether it is."""
    if chosen == EDIT:
        _edit(prompt, session)
    elif chosen == RESTORE:
        _restore(prompt, session)
    return chosen in (EDIT, RESTORE)


def _restore(prompt: Prompt, session: LabSession) -> None:
    if session.is_changed:
        prompt.write("", restore_details(session))
        if not prompt.confirm(RESTORE_IT, False):
            return
    prompt.write(f"  {restored_text(session.reset())}")


def _edit(prompt: Prompt, session: LabSession) -> None:
    """Open a file of the learner's copy in the editor, or ask for another command that starts it."""
    files = [str(path.relative_to(session.lab.directory)) for path in session.lab.files]
    chosen = _choose(prompt, [*files, f"{EDIT_COMMAND}: {session.command}"], f"{EDIT_WHAT} ")
    if chosen in files:
        subprocess.run(editor_command(str(session.directory / chosen), 1), check=False)
    elif line := prompt.ask("Which command starts it? (empty: as it is) ").strip():
        try:
            session.start_by(line)
        except UserError as error:
            prompt.write(f"  {prompt.status_sign('fail')} {error}")


def _run(prompt: Prompt, session: LabSession) -> None:
    run_it = f"Run it: {session.command}"
    letters = NO_LETTERS if session.progress.answered else HINT
    chosen = _choose(prompt, [run_it, EDIT, RESTORE], letters=letters)
    if chosen in letters:
        _show_hint(prompt, session)
    elif not _edit_or_restore(prompt, session, chosen):
        _start(prompt, session)


def _start(prompt: Prompt, session: LabSession) -> None:
    shown = run_job(prompt, session.launch, session.start)
    if shown:
        _show_failure(prompt, session)
    elif shown is not None:
        prompt.write("", f"  {not_shown_text(session)}")


def _start_original(prompt: Prompt, session: LabSession) -> None:
    """Run the lab without the learner's changes."""
    try:
        run_job(prompt, session.lab.launch, session.start_original)
    except UserError as error:
        prompt.write(f"  {prompt.status_sign('fail')} {error}")
        return
    if session.found:
        _show_failure(prompt, session)


def _show_failure(prompt: Prompt, session: LabSession) -> None:
    prompt.write("", FAILURE_TEXT[session.lab.failure])
    if session.run and session.run.report:
        width = min(RANKS_WIDTH, terminal_width(sys.stdout) or RANKS_WIDTH) - 2
        prompt.write("", *(f"  {line}".rstrip() for line in rank_lines(session.run.report, width)))


def _answer(prompt: Prompt, session: LabSession) -> None:
    ids = list(session.choices)
    letters = {**HINT, TERMS_KEY: "terms in this text"}
    if not session.lab.question:
        letters["s"] = "show the answer"
        if session.lab.launch:
            letters |= {RUN_KEY: "run it again", EDIT_KEY: EDIT.lower()}
        if "run_original" in session.allowed:
            letters[ORIGINAL_KEY] = RUN_ORIGINAL
    letters |= LEAVE
    prompt.write("", question_text(session), "")
    refused = () if session.lab.question else session.progress.refused
    rows = [f"{session.choices[id_]}{f'   ({REFUSED})' if id_ in refused else ''}" for id_ in ids]
    given = prompt.choose(rows, letters, "Which one? ")
    if given in LEAVE:
        raise LabLeft
    if given in HINT:
        _show_hint(prompt, session)
        return
    if given == TERMS_KEY:
        _show_terms(prompt, session)
        return
    if given == RUN_KEY:
        _start(prompt, session)
        return
    if given == ORIGINAL_KEY:
        _start_original(prompt, session)
        return
    if given == EDIT_KEY:
        _edit_or_restore(prompt, session, EDIT)
        return
    if given == "s":
        session.show_answer()
    else:
        right = session.answer(ids[int(given) - 1])
        if session.lab.question:
            return
        sign = prompt.status_sign("ok" if right else "fail")
        prompt.write(f"  {sign} {'Right.' if right else wrong_answer_text(session, session.progress.guess)}")
    if session.progress.answered:
        prompt.write("", *evidence_lines(session))


def _show_hint(prompt: Prompt, session: LabSession) -> None:
    hint = session.next_hint()
    prompt.write(f"  Hint {session.progress.hints}: {hint}")


def _show_terms(prompt: Prompt, session: LabSession) -> None:
    """Explain the terms of the field in the story, the question and its answers."""
    text = "\n".join([session.lab.title, session.lab.story, question_text(session), *session.choices.values()])
    for name in terms_in_text(session.knowledge, text):
        prompt.write(
            "",
            name,
            *textwrap.wrap(session.knowledge.terms[name].text, COLUMNS, initial_indent="  ", subsequent_indent="  "),
        )


def _repair(prompt: Prompt, session: LabSession) -> None:
    by_fix = "Repair it with the fix of the wizard"
    if _edit_or_restore(prompt, session, chosen := _choose(prompt, [by_fix, EDIT, RESTORE], "How do you repair it? ")):
        return
    assert chosen == by_fix
    try:
        repair = session.repair()
    except UserError as error:
        prompt.write("", f"  {prompt.status_sign('fail')} {error}")
        return
    prompt.write("", *repair_title_lines(repair, session.directory))
    prompt.show_patch(repair_diff(repair, session.directory))
    prompt.write(*repair_advice_lines(repair), "")
    if prompt.confirm(repair_question(repair), True):
        prompt.write(f"  {applied_text(session.apply(repair))}")


def _prove(prompt: Prompt, session: LabSession) -> None:
    if _edit_or_restore(prompt, session, _choose(prompt, ["Prove it: run the repaired job", EDIT, RESTORE])):
        return
    if not session.progress.failed:
        prompt.write(f"  {ORIGINAL_FIRST}")
        _start_original(prompt, session)
        if not session.progress.failed:
            return
    proof = run_job(prompt, session.launch, session.prove)
    if proof:
        sign = prompt.status_sign("ok" if proof.outcome == "proved" else "fail")
        prompt.write("", f"  {sign} {proof.outcome}: {proof.what}")


def _show_end(prompt: Prompt, session: LabSession) -> None:
    """Show the numbers that were measured, and the answer of a lab that only measures."""
    if session.lab.plot and session.measured:
        prompt.write("", *table_lines(session.lab.plot, session.measured))
    if session.lab.question:
        prompt.write("", *evidence_lines(session))
