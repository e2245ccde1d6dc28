"""``ddpwizard learn``: chapters and labs for engineers who are new to distributed training."""

import click
import msgspec

from ...knowledge.schema import Knowledge
from ..diagnosis.entry_search import nearest_entries
from ..diagnosis.term_text import find_term
from ..errors import UserError
from ..exit_codes import ExitCode
from ..labs.course import QUIZ, Course, load_course
from ..labs.progress import load_progress
from ..labs.quiz import Quiz
from ..options import Options, knowledge_directories, knowledge_for
from ..text.json_output import print_json, public_document
from ..text.suggestions import closest, did_you_mean
from ..text.terminal import print_line, print_progress
from .common import ScreenRequested, common_options
from .completed_ids import completed_by, course_numbers


@click.command(name="learn")
@click.argument("wanted", metavar="[CHAPTER|LAB]", default="", shell_complete=completed_by(course_numbers))
@click.option("--list", "lists", is_flag=True, help="List the chapters and labs, with what is done.")
@click.option("--quiz", "quizzes", is_flag=True, help="Read logs of several ranks: which of them was first?")
@common_options
def command(wanted: str, lists: bool, quizzes: bool, options: Options) -> int:
    """Learn distributed training: short chapters, and jobs that really fail, to find and repair the fault.

    \b
    Examples:
      ddpwizard learn              the chapters
      ddpwizard learn 7            chapter 7
      ddpwizard learn 7.2          its second lab
      ddpwizard learn --list
      ddpwizard learn --quiz
    """
    if not (wanted or lists or options.json):
        raise ScreenRequested("learn", options, number=QUIZ if quizzes else "")
    knowledge = knowledge_for(options)
    course = load_course(options)
    number = course.number_of(wanted) if wanted else ""
    if wanted and not number:
        hint = did_you_mean(closest(wanted, course.names())) or _chapter_of_term(wanted, knowledge, course)
        raise UserError(f"no chapter or lab {wanted!r}", hint or "ddpwizard learn --list shows all")
    if not lists and not options.json:
        raise ScreenRequested("learn", options, number=QUIZ if quizzes else number)
    for line in course.left_out:
        print_progress(f"ddpwizard: {line}")
    progress = load_progress()
    if options.json:
        questions = Quiz(knowledge, knowledge_directories(options)).listing()
        body = {"chapters": msgspec.to_builtins(course.listing(progress)), "quiz": msgspec.to_builtins(questions)}
        print_json(public_document("learn", knowledge, body))
        return ExitCode.OK
    for line in course.lines(progress):
        print_line(line)
    print_line(f"{QUIZ:>8}  {Quiz(knowledge, knowledge_directories(options)).score_text()}")
    return ExitCode.OK


def _chapter_of_term(wanted: str, knowledge: Knowledge, course: Course) -> str:
    """Return which chapter explains the term that is named or almost named; "" if it is no term or has no chapter."""
    names = [find_term(knowledge, wanted), *nearest_entries(knowledge, wanted)]
    name = next((each for each in names if each in knowledge.terms), None)
    wanted_id = knowledge.terms[name].chapter if name else ""
    number = next((each.number for each in course.chapters if each.chapter.id == wanted_id), "")
    return f"chapter {number} explains {name}: ddpwizard learn {number}" if number else ""
