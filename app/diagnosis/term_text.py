"""A term as text for people, the term with a spelling, and the terms in a text."""

import re
import textwrap
from collections.abc import Mapping
from functools import lru_cache

from ...knowledge.chapters import COLUMNS, Chapter
from ...knowledge.schema import Knowledge
from ..text.suggestions import normalise
from ..text.terminal import align_columns


def find_term(knowledge: Knowledge, typed: str) -> str | None:
    """Return the term with this spelling, in any case, with or without hyphens and blanks, or in the plural."""
    spellings = {normalise(other): name for name, term in knowledge.terms.items() for other in term.also}
    spellings |= {normalise(name): name for name in knowledge.terms}
    key = normalise(typed)
    return spellings.get(key) or spellings.get(key.removesuffix("s"))


def term_spellings(knowledge: Knowledge, *names: str) -> list[str]:
    """Return every spelling of the terms with these names, or of all."""
    return [spelling for name in names or knowledge.terms for spelling in (name, *knowledge.terms[name].also)]


def term_lines(name: str, knowledge: Knowledge, chapters: Mapping[str, Chapter]) -> list[str]:
    """Return a term as plain lines with headings in capitals."""
    term = knowledge.terms[name]
    lines = [name, " / ".join(["term", *term.also]), "", *textwrap.wrap(term.text, COLUMNS)]
    if chapter := chapters.get(term.chapter):
        lines += ["", "CHAPTER", f"  {chapter.title}: ddpwizard explain {chapter.id}"]
    if term.causes:
        rows = [(id_, knowledge.causes[id_].title) for id_ in term.causes]
        lines += ["", "CAUSES", *(f"  {row}" for row in align_columns(rows))]
    return lines


def terms_in_text(knowledge: Knowledge, text: str) -> list[str]:
    """Return the terms that a text has, in the order of their first place in it."""
    names = {normalise(each): name for name, term in knowledge.terms.items() for each in (*term.also, name)}
    found: dict[str, None] = {}
    for match in _any_of(tuple(term_spellings(knowledge))).finditer(text):
        found.setdefault(names[normalise(match[1])])
    return list(found)


@lru_cache(maxsize=2)
def _any_of(spellings: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern for any of these spellings as words of a text, also in the plural."""
    longest_first = sorted(spellings, key=len, reverse=True)  # "global rank" before "rank"
    return re.compile(rf"(?<![\w.])({'|'.join(map(_loose, longest_first))})s?(?!\w)", re.IGNORECASE)


def _loose(spelling: str) -> str:
    """Return a pattern for a spelling with any blanks or hyphens between its words."""
    return r"[-\s]+".join(map(re.escape, re.split(r"[-\s]+", spelling)))
