"""How words are compared: as SQLite's full-text search (FTS5) does, by Porter's stems of Unicode's words.

The stems of all that is listened for are worked out when the knowledge is loaded, by SQLite itself; so a text need only
be searched for what it has the words of.
"""

import re
import sqlite3
from collections.abc import Iterable

from .schema import Cause, Question

TOKENIZER = "tokenize='porter unicode61 remove_diacritics 2'"
# Porter's stems make "on" of "one": "one gpu" would be heard in "on GPU 0".
ONE = re.compile(r"\b(o)ne\b", re.IGNORECASE)


def protect_one(text: str) -> str:
    """The text with "one" so written that its stem is not that of "on"."""
    return ONE.sub(r"\1nne", text) if "one" in text.lower() else text


def quote_phrase(phrase: str) -> str:
    """A phrase of a clue as a search: nothing in it is syntax but a final ``*``, for any ending."""
    bare = phrase.strip()
    return f'"{_words(bare)}"' + "*" * bare.endswith("*")


def clue_stems(
    causes: Iterable[Cause], questions: Iterable[Question], synonyms: Iterable[Iterable[str]]
) -> dict[str, str]:
    """The stems of each phrase of a clue, of what an answer is heard by, and of the synonyms, with its final ``*``."""
    clues = [clue.all for cause in causes for clue in cause.clues]
    heard = [terms for question in questions for ways in question.heard.values() for terms in ways]
    phrases = {phrase for terms in (*clues, *heard, *synonyms) for term in terms for phrase in term.split("|")}
    return _stems(sorted(phrases))


def _stems(phrases: list[str]) -> dict[str, str]:
    base = sqlite3.connect(":memory:")
    try:
        base.execute(f"CREATE VIRTUAL TABLE phrases USING fts5(words, {TOKENIZER})")
        base.execute("CREATE VIRTUAL TABLE stems USING fts5vocab(phrases, instance)")
        rows = [(number, _words(phrase.strip())) for number, phrase in enumerate(phrases)]
        base.executemany("INSERT INTO phrases(rowid, words) VALUES (?, ?)", rows)
        stems: list[list[str]] = [[] for _ in phrases]
        for number, stem in base.execute("SELECT doc, term FROM stems ORDER BY doc, offset"):
            stems[number].append(stem)
    finally:
        base.close()
    return {
        phrase: " ".join(found) + "*" * phrase.strip().endswith("*")
        for phrase, found in zip(phrases, stems, strict=True)
        if found
    }


def _words(phrase: str) -> str:
    return protect_one(phrase.removesuffix("*").replace('"', " "))
