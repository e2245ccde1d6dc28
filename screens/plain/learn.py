"""Chapters and labs in the plain wizard, as numbered questions."""

from ...app.exit_codes import ExitCode
from ...app.labs.course import QUIZ, QUIZ_TITLE, Course, CourseChapter, listed_lab
from ...app.labs.progress import load_progress, save_progress
from ...app.text.terminal import align_columns
from ..shell.state import WizardState
from .learn_lab import run_lab_plain
from .prompt import Prompt, Quit
from .quiz import run_quiz

CONTINUE = "c"


def run_learn(state: WizardState, prompt: Prompt, number: str) -> int:
    """Show the chapters, or the chapter or lab with this number, until the learner leaves.

    Raises:
        EndOfInput: Standard input has ended.
    """
    course = state.course
    prompt.write(*course.left_out)
    try:
        if number == QUIZ:
            run_quiz(state, prompt)
        elif lab := course.lab(number):
            run_lab_plain(state, prompt, lab)
            if chapter := course.chapter(number.partition(".")[0]):
                _choose_lab(state, prompt, chapter)
        elif number and (chapter := course.chapter(number)):
            _show_chapter(state, prompt, chapter)
        while True:
            _choose_chapter(state, prompt, course)
    except Quit:
        return ExitCode.OK


def _choose_chapter(state: WizardState, prompt: Prompt, course: Course) -> None:
    prompt.write("", "Learn distributed training", "")
    progress = load_progress()
    listing = course.listing(progress)
    rows = []
    for each in listing:
        solved = sum(lab.solved for lab in each.labs)
        labs = f"{solved} of {len(each.labs)} labs done" if each.labs else ""
        rows.append((each.title, labs))
    half_done = course.half_done(progress)
    letters = {CONTINUE: f"go on with lab {half_done.number}"} if half_done else {}
    given = prompt.choose(align_columns(rows), letters | {"q": "quit"}, "Which chapter? ")
    if given == "q":
        raise Quit
    if half_done and given == CONTINUE:
        run_lab_plain(state, prompt, half_done)
        return
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
        if number < len(pages):
            given = _ask_page(prompt)
            if given == "b":
                return
            if given == "s":
                break
    _choose_lab(state, prompt, chapter)


def _ask_page(prompt: Prompt) -> str:
    """Return what comes after a page: "" for the next one, s or b."""
    while (given := prompt.ask("Enter shows the next page, s goes to the labs, b to the chapters, q quits: ")) != "q":
        if given in ("", "s", "b"):
            return given
    raise Quit


def _choose_lab(state: WizardState, prompt: Prompt, chapter: CourseChapter) -> None:
    """Offer the labs of a chapter until the learner goes back to the chapters."""
    while chapter.labs:
        done = load_progress()
        rows = [(each.lab.title, listed_lab(each, done).note) for each in chapter.labs]
        prompt.write("", f"Labs of {chapter.chapter.title}", "")
        if chapter.chapter.quiz:
            rows.append((QUIZ_TITLE, ""))
        given = prompt.choose(align_columns(rows), {"b": "chapters", "q": "quit"}, "Which lab? ")
        if given == "q":
            raise Quit
        if given == "b":
            return
        if int(given) > len(chapter.labs):
            run_quiz(state, prompt)
        else:
            run_lab_plain(state, prompt, chapter.labs[int(given) - 1])
