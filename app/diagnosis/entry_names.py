"""The names of the entries of the knowledge base, which mistyped words are compared with."""

from ...knowledge.schema import Knowledge
from ..text.suggestions import closest_by_word
from .term_text import term_spellings


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
