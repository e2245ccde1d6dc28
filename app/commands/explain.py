"""``ddpwizard explain ID``: explain one cause, rule, chapter or term, or list the entries on a word."""

from collections.abc import Mapping, Sequence

import click
import msgspec

from ...knowledge.chapters import Chapter
from ...knowledge.schema import Knowledge
from ..diagnosis.cause_text import cause_lines, fill_fallbacks, matching_causes
from ..diagnosis.term_text import find_term, term_lines, term_spellings
from ..errors import UserError
from ..exit_codes import ExitCode
from ..labs.chapter_text import chapter_lines
from ..labs.course import CourseLab, read_course
from ..options import Options, chapters_for, knowledge_directories, knowledge_for
from ..review.rule_descriptions import matching_rules, rule_lines
from ..text.json_output import print_json, public_document
from ..text.suggestions import closest, did_you_mean
from ..text.terminal import align_columns, print_line
from ..text.units import count_text
from .common import common_options
from .completed_ids import completed_by, explained_ids

Entry = tuple[str, dict[str, object], list[str]]  # kind and body of a document, and the same as lines

CUTOFF = 0.7  # difflib's ratio to a name that is suggested: among this many, some are alike by chance


@click.command(name="explain")
@click.argument("words", metavar="ID", nargs=-1, required=True, shell_complete=completed_by(explained_ids))
@common_options
def command(words: tuple[str, ...], options: Options) -> int:
    """Explain one cause: what happens, its symptoms, its fixes, and the sources.

    ID may also be a rule of the review (DW401), a chapter (collectives), or a term (reduce-scatter, local rank).
    For any other words the entries that have them are listed.
    """
    knowledge = knowledge_for(options)
    typed = " ".join(words)
    if cause := knowledge.causes.get(typed.lower()):
        kind, body, lines = "cause", msgspec.to_builtins(fill_fallbacks(cause)), cause_lines(cause, knowledge)
    elif rule := knowledge.rules.get(typed.upper()):
        kind, body = "rule", {"id": typed.upper(), **msgspec.to_builtins(rule)}
        lines = rule_lines(typed.upper(), rule)
    else:
        chapters = chapters_for(options)
        if chapter := chapters.get("-".join(typed.lower().split())):
            labs = read_course(knowledge, knowledge_directories(options)).labs_of(chapter.id)
            kind, body, lines = _chapter(chapter, labs)
        elif name := find_term(knowledge, typed):
            kind, body = "term", {"id": name, **msgspec.to_builtins(knowledge.terms[name])}
            lines = term_lines(name, knowledge, chapters)
        else:
            kind, body, lines = _search(typed, knowledge, chapters)
    if options.json:
        print_json(public_document(kind, knowledge, body))
    else:
        for line in lines:
            print_line(line)
    return ExitCode.OK


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


def _search(typed: str, knowledge: Knowledge, chapters: Mapping[str, Chapter]) -> Entry:
    """Return the causes and rules on a term.

    Raises:
        UserError: There are none.
    """
    found = [(cause.id, cause.title) for cause in matching_causes(knowledge, typed)]
    found += [(id_, knowledge.rules[id_].title) for id_ in matching_rules(knowledge, typed)]
    if not found:
        names = [*knowledge.causes, *knowledge.rules, *chapters, *term_spellings(knowledge)]
        hint = did_you_mean(closest(typed, names, cutoff=CUTOFF))
        problem = f"no cause, rule, chapter or term {typed!r}"
        raise UserError(problem, hint or "ddpwizard kb list shows all causes")
    entries = [{"id": id_, "title": title} for id_, title in found]
    heading = f"{count_text(len(found), 'result')} for {typed}; ddpwizard explain ID shows one:"
    return "explain-search", {"term": typed, "entries": entries}, [heading, "", *align_columns(found)]
