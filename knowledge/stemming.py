"""Word stems as in SQLite's full-text search (FTS5): Porter's stems of Unicode words.

SQLite computes the stems of all phrases when the knowledge is loaded, so that a text is only searched for phrases whose
words it contains.
"""

import re
import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from .schema import Cause, Question

TOKENIZER = "tokenize='porter unicode61 remove_diacritics 2'"
WORD_TOKENIZER = "tokenize='unicode61 remove_diacritics 2'"  # whole words
WORD = re.compile(r"[^\W_]+")
# Porter's stems make "on" of "one": "one gpu" would be heard in "on GPU 0".
ONE = re.compile(r"\b(o)ne\b", re.IGNORECASE)


def protect_one(text: str) -> str:
    """Rewrite "one" so that its stem differs from that of "on"."""
    return ONE.sub(r"\1nne", text) if "one" in text.lower() else text


def quote_phrase(phrase: str) -> str:
    """Quote a phrase as a query, so that nothing in it is syntax; a final ``*`` is left out."""
    return f'"{_words(phrase.strip())}"'


def queries_of_phrase(phrase: str, words_of_text: Sequence[str]) -> list[str]:
    """Return the queries that find a phrase in a text with these words (sorted, lower case).

    With a final ``*`` the last word is searched in all its forms and as each word of the text that begins with it: the
    stem is no beginning ("exceed" has that of "exceptional").
    """
    queries = [quote_phrase(phrase)]
    if phrase.strip().endswith("*"):
        last = last_word(phrase)
        before = phrase[: phrase.lower().rindex(last)]
        queries += [quote_phrase(before + word) for word in words_that_begin(last, words_of_text)]
    return queries


def last_word(phrase: str) -> str:
    """Return the last word of a phrase in lower case, or ""."""
    return next(reversed(WORD.findall(phrase.lower())), "")


def words_that_begin(beginning: str, words: Sequence[str]) -> Iterator[str]:
    """Yield the words that begin so; ``words`` is sorted."""
    for word in words[bisect_left(words, beginning) :]:
        if not beginning or not word.startswith(beginning):
            return
        yield word


def clue_stems(
    causes: Iterable[Cause], questions: Iterable[Question], synonyms: Iterable[Iterable[str]]
) -> dict[str, str]:
    """Return the stems of each phrase of the clues, of the answers and of the synonyms.

    A final ``*`` adds ``|`` and the last word, with which a word of the text may begin.
    """
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
        phrase: " ".join(found) + (f"|{last_word(phrase)}" if phrase.strip().endswith("*") else "")
        for phrase, found in zip(phrases, stems, strict=True)
        if found
    }


def _words(phrase: str) -> str:
    return protect_one(phrase.removesuffix("*").replace('"', " "))
