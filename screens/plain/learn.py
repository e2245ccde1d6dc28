"""Chapters and labs in the plain wizard: numbered questions, the output of the ranks line by line."""

import asyncio
import subprocess

from ...app.errors import UserError
from ...app.exit_codes import ExitCode
from ...app.fixes.fix_text import fix_lines
from ...app.labs.course import Course, CourseChapter, CourseLab, read_course
from ...app.labs.lab_session import LabSession
from ...app.labs.phrases import FAILURE_TEXT, evidence_lines, numbered_code
from ...app.labs.progress import load_progress, save_progress
from ...app.labs.rank_output import printed_line
from ...app.options import knowledge_directories, target_python
from ...app.system.editor import editor_command
from ...app.text.terminal import align_columns
from ...app.triage import rank_groups
from ..shell.state import WizardState
from .prompt import Prompt, Quit


def run_learn(state: WizardState, prompt: Prompt, number: str) -> int:
    """Show the chapters, or the chapter or lab with this number, until the learner leaves.

    Raises:
        EndOfInput: Standard input has ended.
    """
    course = read_course(state.knowledge, knowledge_directories(state.options))
    prompt.write(*course.left_out)
    try:
        if lab := course.lab(number):
            run_lab_plain(state, prompt, lab)
        elif number and (chapter := course.chapter(number)):
            _show_chapter(state, prompt, chapter)
        while True:
            _choose_chapter(state, prompt, course)
    except Quit:
        return ExitCode.OK


def _choose_chapter(state: WizardState, prompt: Prompt, course: Course) -> None:
    prompt.write("", "Learn distributed training", "")
    listing = course.listing(load_progress())
    rows = []
    for each in listing:
        repaired = sum(lab.repaired for lab in each.labs)
        labs = f"{repaired} of {len(each.labs)} labs repaired" if each.labs else ""
        rows.append((each.title, labs))
    given = prompt.choose(align_columns(rows), {"q": "quit"}, "Which chapter? ")
    if given == "q":
        raise Quit
    _show_chapter(state, prompt, course.chapters[int(given) - 1])


def _show_chapter(state: WizardState, prompt: Prompt, chapter: CourseChapter) -> None:
    """Show the pages of a chapter, then offer its labs."""
    pages = chapter.chapter.pages
    for number, page in enumerate(pages, 1):
        heading = f"{chapter.number}  {chapter.chapter.title}   page {number} of {len(pages)}"
        prompt.write("", heading, "", *page.rstrip().splitlines())
        progress = load_progress()
        progress.pages[chapter.chapter.id] = max(number, progress.pages.get(chapter.chapter.id, 0))
        save_progress(progress)
        if number < len(pages) and prompt.ask("Enter shows the next page, s goes to the labs: ").strip() == "s":
            break
    while chapter.labs:
        done = load_progress()
        rows = [(each.lab.title, "repaired" if done.of(each.lab.cause).repaired else "") for each in chapter.labs]
        prompt.write("", f"Labs of {chapter.chapter.title}", "")
        given = prompt.choose(align_columns(rows), {"b": "chapters", "q": "quit"}, "Which lab? ")
        if given == "q":
            raise Quit
        if given == "b":
            return
        run_lab_plain(state, prompt, chapter.labs[int(given) - 1])


def run_lab_plain(state: WizardState, prompt: Prompt, entry: CourseLab) -> None:
    """Go through one lab: story and code, the failing run, the learner's guess, the evidence, the repair, the proof."""
    try:
        session = LabSession(entry.lab, state.knowledge, target_python(state.options))
        _show_story(prompt, entry, session)
        if session.lab.launch:
            _run_until_failed(prompt, session)
        else:
            session.read_log()
        _guess(prompt, session)
        _show_answer(prompt, session)
        if session.lab.launch:
            _repair(prompt, session)
    except UserError as error:
        prompt.write(f"  {prompt.status_sign('fail')} {error}")


def _show_story(prompt: Prompt, entry: CourseLab, session: LabSession) -> None:
    lab = entry.lab
    prompt.write("", f"Lab {entry.number}  {lab.title}", "", *lab.story.rstrip().splitlines(), "")
    for path in lab.files:
        copy = session.directory / path.relative_to(lab.directory)
        prompt.write(f"--- {copy}", *numbered_code(copy.read_text(encoding="utf-8", errors="replace")), "")


def _run_until_failed(prompt: Prompt, session: LabSession) -> None:
    while True:
        given = prompt.choose(
            [f"Run it: {session.lab.launch}", "Restore its files"], {"q": "leave the lab"}, "What next? "
        )
        if given == "q":
            raise Quit
        if given == "2":
            session.reset()
            continue
        if asyncio.run(session.start(lambda line: _show_line(prompt, line))):
            break
        prompt.write("  It did not fail this time. Restore its files if you have changed them, and run it again.")
    run = session.run
    assert run
    prompt.write("", FAILURE_TEXT[session.lab.failure])
    if run.report:
        header, rows = rank_groups.rank_table(rank_groups.rank_groups(run.report))
        prompt.write("", *(f"  {line}".rstrip() for line in align_columns([header, *rows])))


def _show_line(prompt: Prompt, line: str) -> None:
    if shown := printed_line(line):
        prompt.write(f"  {'rank ' + str(shown.rank) if shown.rank is not None else 'launcher':<9} {shown.text}")


def _guess(prompt: Prompt, session: LabSession) -> None:
    titles = [session.knowledge.causes[id_].title for id_ in session.choices]
    while True:
        prompt.write("", "What is the cause?", "")
        given = prompt.choose(titles, {"h": "a hint", "s": "show the answer"}, "Which one? ")
        if given == "h":
            hint = session.next_hint()
            prompt.write(f"  Hint {session.progress.hints}: {hint}")
            continue
        if given == "s":
            return
        if session.guess(session.choices[int(given) - 1]):
            prompt.write(f"  {prompt.status_sign('ok')} Right.")
            return
        prompt.write(f"  {prompt.status_sign('fail')} No, it is another one.")


def _show_answer(prompt: Prompt, session: LabSession) -> None:
    prompt.write("", *evidence_lines(session))


def _repair(prompt: Prompt, session: LabSession) -> None:
    """Repair the lab by the wizard's fix or the learner's own edit, and prove it."""
    while True:
        repair = session.repair() if not session.is_edited else None
        options = ["Repair it with the fix of the wizard"] if repair else []
        options += [f"Edit it: {session.directory}", "Run it again, as the files are now"]
        prompt.write("")
        given = options[int(prompt.choose(options, {}, "How do you repair it? ")) - 1]
        if given.startswith("Edit"):
            subprocess.run(editor_command(str(session.script), 1), check=False)
            continue
        if repair and given == options[0]:
            prompt.write("", *fix_lines(repair.fix))
            prompt.show_patch(repair.fix.diff())
            if not prompt.confirm("Write it to your copy of the lab?", True):
                continue
            session.apply(repair)
        proof = asyncio.run(session.prove(lambda line: _show_line(prompt, line)))
        sign = prompt.status_sign("ok" if proof.outcome == "proved" else "fail")
        prompt.write("", f"  {sign} {proof.outcome}: {proof.what}")
        if proof.outcome == "proved":
            return
        if session.is_edited and prompt.confirm("Restore the files of the lab?", False):
            session.reset()
            _run_until_failed(prompt, session)
