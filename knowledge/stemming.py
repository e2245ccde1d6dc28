"""Word stems as in SQLite's full-text search (FTS5): Porter's stems of Unicode words.

SQLite computes the stems of all phrases when the knowledge is loaded, so that a text is only searched for phrases whose
words it contains.
"""

import re
import sqlite3
from collections.abc import Iterable

from .schema import Cause, Question

TOKENIZER = "tokenize='porter unicode61 remove_diacritics 2'"
# Porter's stems make "on" of "one": "one gpu" would be heard in "on GPU 0".
ONE = re.compile(r"\b(o)ne\b", re.IGNORECASE)


def protect_one(text: str) -> str:
    """Rewrite "one" so that its stem differs from that of "on"."""
    return ONE.sub(r"\1nne", text) if "one" in text.lower() else text


def quote_phrase(phrase: str) -> str:
    """Quote a phrase of a clue as a query: only a final ``*``, for any ending, is syntax."""
    bare = phrase.strip()
    return f'"{_words(bare)}"' + "*" * bare.endswith("*")


def clue_stems(
    causes: Iterable[Cause], questions: Iterable[Question], synonyms: Iterable[Iterable[str]]
) -> dict[str, str]:
    """Return the stems of each phrase of the clues, of the answers and of the synonyms, with its final ``*``."""
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
