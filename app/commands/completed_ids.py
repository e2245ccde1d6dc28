"""Ids that a shell completes: sessions, applied fixes, entries of the knowledge base, chapters and labs.

They are read at every press of the tab key, so each function imports what it needs. An error completes nothing.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import click
from click.shell_completion import CompletionItem

from ..errors import UserError

MOST_OFFERED = 50  # sessions or fixes, the newest
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completed_by(ids: Callable[[str], Iterable[tuple[str, str]]]) -> Complete:
    """Return the callback of a click parameter that completes ``ids``: each id with its description.

    ``ids`` gets what is typed so far, and may yield others too. zsh and fish show the descriptions.
    """

    def complete(_ctx: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
        try:
            return [CompletionItem(id_, help=_one_line(text)) for id_, text in ids(typed) if id_.startswith(typed)]
        except (UserError, OSError):
            return []

    return complete


def session_ids(typed: str) -> Iterator[tuple[str, str]]:
    """Yield the ids of the newest sessions, each with its subject."""
    from ..diagnosis.session_subject import subject_text
    from ..session import all_sessions

    for session in islice(all_sessions(typed), MOST_OFFERED):
        yield session.id, subject_text(session)


def applied_fix_ids(_typed: str) -> Iterator[tuple[str, str]]:
    """Yield the ids of the fixes that ``undo`` can revert, the newest first."""
    from ..fixes.undo import applied_fixes

    applied = (each.applied for each in applied_fixes() if each.applied and each.state == "applied")
    for each in islice(applied, MOST_OFFERED):
        yield each.id, f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(each.at))} {each.title or each.fix}"


def explained_ids(_typed: str) -> Iterator[tuple[str, str]]:
    """Yield the ids of causes, rules, chapters and terms, each with its title."""
    from ..options import Options, chapters_for, knowledge_for

    knowledge = knowledge_for(Options())
    yield from ((id_, cause.title) for id_, cause in knowledge.causes.items())
    yield from ((id_, rule.title) for id_, rule in knowledge.rules.items())
    yield from ((id_, chapter.title) for id_, chapter in chapters_for(Options()).items())
    yield from ((name, "term") for name in knowledge.terms if " " not in name)


def course_numbers(_typed: str) -> Iterator[tuple[str, str]]:
    """Yield the numbers of the chapters and labs, each with its title."""
    from ..labs.course import load_course
    from ..options import Options

    for chapter in load_course(Options()).chapters:
        yield chapter.number, chapter.chapter.title
        yield from ((each.number, each.lab.title) for each in chapter.labs)


def _one_line(text: str) -> str:
    """Return a description that fish and zsh show whole: fish cuts it at a comma, both at a line break."""
    return " ".join(text.replace(",", " ·").split())
