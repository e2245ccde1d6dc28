"""``ddpwizard explain ID``: explain one cause, rule, chapter, lab or term, or list the entries on a word."""

import re
from collections.abc import Mapping, Sequence

import click
import msgspec

from ...knowledge.chapters import Chapter
from ...knowledge.schema import Knowledge
from ..diagnosis.cause_text import cause_lines, fill_fallbacks
from ..diagnosis.entry_search import entry_names, find_entries
from ..diagnosis.term_text import find_term, term_lines
from ..errors import UserError
from ..exit_codes import ExitCode
from ..labs.chapter_text import chapter_lines, lab_lines
from ..labs.course import Course, CourseLab, load_course
from ..options import Options, chapters_for, knowledge_for
from ..review.rule_descriptions import rule_lines
from ..text.json_output import print_json, public_document
from ..text.suggestions import closest_by_word, did_you_mean
from ..text.terminal import align_columns, print_line
from ..text.units import count_text
from .common import common_options
from .completed_ids import completed_by, explained_ids

Entry = tuple[str, dict[str, object], list[str]]  # kind and body of a document, and the same as lines

OPTION = re.compile("-+[A-Za-z]")  # that click does not know; -11 is an exit code
NUMBER = re.compile(r"\d{1,2}(\.\d{1,2})?")  # of a chapter or lab
ALL_ENTRIES = "ddpwizard kb list shows all causes, ddpwizard learn --list all chapters and labs"


@click.command(name="explain", context_settings={"ignore_unknown_options": True})
@click.argument("words", metavar="ID", nargs=-1, required=True, shell_complete=completed_by(explained_ids))
@common_options
def command(words: tuple[str, ...], options: Options) -> int:
    """Explain one cause: what happens, its symptoms, its fixes, and the sources.

    ID may also be a rule of the review (DW401), a chapter (collectives, or its number), a lab (7.2), or a term
    (reduce-scatter, local rank). For any other words the entries that have them are listed.
    """
    if unknown := next(filter(OPTION.match, words), ""):
        raise click.NoSuchOption(unknown, ctx=click.get_current_context())
    knowledge = knowledge_for(options)
    kind, body, lines = _entry(" ".join(words), knowledge, options)
    if options.json:
        print_json(public_document(kind, knowledge, body))
    else:
        for line in lines:
            print_line(line)
    return ExitCode.OK


def _entry(typed: str, knowledge: Knowledge, options: Options) -> Entry:
    """Return what is typed: one entry, or those that have its words.

    Raises:
        UserError: There is none.
    """
    if cause := knowledge.causes.get(typed.lower()):
        return "cause", msgspec.to_builtins(fill_fallbacks(cause)), cause_lines(cause, knowledge)
    if rule := knowledge.rules.get(typed.upper()):
        body = {"id": typed.upper(), **msgspec.to_builtins(rule)}
        return "rule", body, rule_lines(typed.upper(), rule)
    chapters = chapters_for(options)
    if chapter := chapters.get("-".join(typed.lower().split())):
        return _chapter(chapter, load_course(options).labs_of(chapter.id))
    if name := find_term(knowledge, typed):
        body = {"id": name, **msgspec.to_builtins(knowledge.terms[name])}
        return "term", body, term_lines(name, knowledge, chapters)
    course = load_course(options)
    if entry := _of_course(typed, course):
        return entry
    return _search(typed, knowledge, chapters, course)


def _of_course(typed: str, course: Course) -> Entry | None:
    """Return the chapter or lab with a number, or the lab without a cause with an id.

    Raises:
        UserError: There is no chapter or lab with this number.
    """
    measuring = {each.lab.id: each for each in course.labs if each.lab.question}
    if lab := measuring.get(typed.lower()) or course.lab(typed):
        body: dict[str, object] = {"id": lab.number, "title": lab.lab.title, "story": lab.lab.story}
        body["failure"] = lab.lab.failure
        return "lab", body, lab_lines(lab)
    if not NUMBER.fullmatch(typed):
        return None
    found = course.chapter(typed)
    if found and "." in typed:
        numbers = f"{found.number}.1 to {found.number}.{len(found.labs)}"
        problem = f"the labs of chapter {found.number} are {numbers}" if found.labs else f"chapter {typed} has no lab"
        raise UserError(f"no lab {typed!r}: {problem}", "ddpwizard learn --list shows all")
    if found is None:
        raise UserError(f"no chapter {typed!r}: there are {len(course.chapters)}", "ddpwizard learn --list shows all")
    return _chapter(found.chapter, found.labs)


def _chapter(chapter: Chapter, labs: Sequence[CourseLab]) -> Entry:
    body = {
        "id": chapter.id,
        "order": chapter.order,
        "title": chapter.title,
        "summary": chapter.summary,
        "pages": chapter.pages,
        "labs": [{"number": each.number, "title": each.lab.title} for each in labs],
    }
    return "chapter", body, chapter_lines(chapter, labs)


def _search(typed: str, knowledge: Knowledge, chapters: Mapping[str, Chapter], course: Course) -> Entry:
    """Return the terms, causes and rules on a word.

    Raises:
        UserError: There are none.
    """
    found = [(each.id, "term" if each.kind == "term" else each.title) for each in find_entries(knowledge, typed)]
    if not found:
        names = entry_names(knowledge) | {name: name for name in chapters}
        names |= {each.lab.id: each.lab.id for each in course.labs if each.lab.question}
        hint = did_you_mean(closest_by_word(typed, names))
        raise UserError(f"no cause, rule, chapter, lab or term {typed!r}", hint or ALL_ENTRIES)
    entries = [{"id": id_, "title": title} for id_, title in found]
    heading = f"{count_text(len(found), 'result')} for {typed}; ddpwizard explain ID shows one:"
    return "explain-search", {"term": typed, "entries": entries}, [heading, "", *align_columns(found)]
