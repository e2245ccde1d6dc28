"""The search over causes, rules and terms together, and the names that mistyped words are compared with."""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from ...knowledge.schema import Knowledge
from ..text.search import SCATTERED, WordSearch
from ..text.suggestions import closest_by_word
from .term_text import find_term, term_spellings

KINDS = ("term", "cause", "rule")  # of equal matches, the first of these comes first
NUMBER = re.compile(r"\b\d+\b")


class FoundEntry(NamedTuple):
    """A term, a cause or a rule."""

    kind: Literal["term", "cause", "rule"]
    id: str
    title: str


def find_entries(knowledge: Knowledge, typed: str) -> list[FoundEntry]:
    """Return the entries that have every word typed, best first; all causes by family and title if nothing is typed.

    First the entry with this name, or that of the term when a number is left out ("rank 0"); then those with the words
    side by side, in the title before the text. Entries whose texts have the words only between them are returned where
    there are no better ones.
    """
    if not typed.strip():
        causes = sorted(knowledge.causes.values(), key=lambda cause: (cause.family, cause.title))
        return [FoundEntry("cause", cause.id, cause.title) for cause in causes]
    named = _named(knowledge, typed)
    search, texts = WordSearch(typed), dict(_texts(knowledge))
    found = [entry for entry, parts in texts.items() if entry in named or search.has_words(parts)]
    orders = {entry: (entry not in named, *search.order(texts[entry])) for entry in found}
    best = [entry for entry in found if entry in named or orders[entry][1] < SCATTERED] or found
    return sorted(best, key=lambda entry: (*orders[entry], KINDS.index(entry.kind), entry.title))


def _named(knowledge: Knowledge, typed: str) -> list[FoundEntry]:
    """Return the entries with the name that is typed."""
    term = find_term(knowledge, typed) or find_term(knowledge, NUMBER.sub("", typed))
    found = [FoundEntry("term", term, term)] if term else []
    if cause := knowledge.causes.get(typed.strip().lower()):
        found.append(FoundEntry("cause", cause.id, cause.title))
    if rule := knowledge.rules.get(typed.strip().upper()):
        found.append(FoundEntry("rule", typed.strip().upper(), rule.title))
    return found


def _texts(knowledge: Knowledge) -> Iterator[tuple[FoundEntry, list[str]]]:
    """Yield every entry with its texts, the names and the title first."""
    for name, term in knowledge.terms.items():
        yield FoundEntry("term", name, name), ["; ".join(term_spellings(knowledge, name)), term.text]
    for cause in knowledge.causes.values():
        texts = [f"{cause.title}; {cause.id}", cause.summary, *cause.symptoms, cause.family]
        yield FoundEntry("cause", cause.id, cause.title), texts
    for id_, rule in knowledge.rules.items():
        yield FoundEntry("rule", id_, rule.title), [f"{id_} {rule.title}", rule.why]


def entry_names(knowledge: Knowledge) -> dict[str, str]:
    """Return the causes, rules and terms by their names and spellings."""
    names = {name: name for name in (*knowledge.causes, *knowledge.rules)}
    for name in knowledge.terms:
        names |= dict.fromkeys(term_spellings(knowledge, name), name)
    return names


def nearest_entries(knowledge: Knowledge, typed: str) -> list[str]:
    """Return the causes, rules and terms with a name similar to what is typed, best first."""
    names = entry_names(knowledge)
    return [names[spelling] for spelling in closest_by_word(typed, names)]
