"""A full-text index of a short text: where all terms of a clue occur close together.

SQLite's full-text search does the work (FTS5: Porter stems, phrases). All terms are quoted, so that no input is a
pattern, and the time is linear in the text. Most phrases contain a stem that the text lacks and are not searched.
"""

import re
import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...knowledge.schema import Knowledge
from ...knowledge.stemming import TOKENIZER, WORD_TOKENIZER, protect_one, queries_of_phrase, words_that_begin

WINDOW_CHARACTERS = 700  # within which words are close together
WINDOW_STEP = 350
MOST_SHOWN = 5  # terms of a match that are quoted
BEGIN, END = "\ue000", "\ue001"  # around a matched term; not in the text
MARKS = str.maketrans("", "", BEGIN + END)
APART = re.compile(r"\b(o)nne\b", re.IGNORECASE)  # "one" as changed by ``protect_one``
# The end of a sentence: a full stop before a space, an empty line, the next item of a list.
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]{0,3}\s+|\n[ \t]*\n\s*|\n(?=[ \t]*[-*•]\s)")


class TermMatch(NamedTuple):
    """The terms that matched, as the text has them, and the place of the sentence that holds the first:
    ``line``, or ``line:column`` if it begins within a line."""

    terms: list[str]
    place: str

    @property
    def quoted(self) -> str:
        """The terms in quotation marks."""
        return ", ".join(f"“{term}”" for term in self.terms)


class Sentences:
    """The sentences of a text and their places."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(found.end() for found in SENTENCE_END.finditer(text) if found.end() < len(text))]

    def place_at(self, offset: int) -> str:
        """Return the place of the sentence that holds this character."""
        start = self._starts[bisect_right(self._starts, offset) - 1]
        start += len(self._text[start:offset]) - len(self._text[start:offset].lstrip())
        line_start = self._text.rfind("\n", 0, start) + 1
        line = self._text.count("\n", 0, start) + 1
        return f"{line}:{start - line_start + 1}" if self._text[line_start:start].strip() else str(line)

    def place_of_all(self, words: Iterable[str]) -> str:
        """Return the place of the first sentence with all these words, its line if one line has them all, or ""."""
        wanted = list(words)
        for start, end in zip(self._starts, [*self._starts[1:], len(self._text)], strict=True):
            sentence = " ".join(self._text[start:end].split())
            if wanted and all(word in sentence for word in wanted):
                return self._line_of_all(wanted, start, end) or self.place_at(start)
        return ""

    def _line_of_all(self, words: list[str], start: int, end: int) -> str:
        """Return the number of the line of a sentence of several lines that has all the words, or ""."""
        first, *others = self._text[start:end].rstrip().split("\n")
        number = self._text.count("\n", 0, start) + 1
        lines = [first, *others] if others else []
        return next((str(number + n) for n, line in enumerate(lines) if all(word in line for word in words)), "")

    def windows(self) -> list[tuple[int, str]]:
        """Return overlapping windows of whole sentences with their offsets; a sentence that is too long is cut."""
        bounds = self._bounds()
        found: list[tuple[int, str]] = []
        start = 0
        while not found or found[-1][0] + len(found[-1][1]) < len(self._text):
            end = bounds[bisect_right(bounds, start + WINDOW_CHARACTERS) - 1]
            found.append((start, self._text[start:end]))
            start = bounds[bisect_right(bounds, start + WINDOW_STEP) - 1]
        return found

    def _bounds(self) -> list[int]:
        """Return the offsets at which windows may begin or end, none further apart than ``WINDOW_STEP``."""
        bounds = [0]
        for start in [*self._starts[1:], len(self._text)]:
            while start - bounds[-1] > WINDOW_STEP:
                limit = bounds[-1] + WINDOW_STEP
                space = self._text.rfind(" ", bounds[-1] + 1, limit)
                bounds.append(space if space > 0 else limit)
            bounds.append(start)
        return bounds


class PassageIndex:
    """The index of a text."""

    def __init__(self, text: str, knowledge: Knowledge) -> None:
        self._text = text.translate(MARKS)
        self.sentences = Sentences(self._text)
        self._windows = self.sentences.windows()
        self._synonyms = {word: group for group in knowledge.synonyms for word in group}
        self._base = sqlite3.connect(":memory:")
        self._base.execute(f"CREATE VIRTUAL TABLE passages USING fts5(body, {TOKENIZER})")
        self._base.execute(f"CREATE VIRTUAL TABLE whole USING fts5(body, {WORD_TOKENIZER})")
        self._base.executemany(
            "INSERT INTO passages(rowid, body) VALUES (?, ?)",
            [(number, protect_one(window)) for number, (_, window) in enumerate(self._windows)],
        )
        self._base.execute("INSERT INTO whole(body) VALUES (?)", (protect_one(self._text),))
        self._words = self._vocabulary("whole")
        self._missing = _missing(knowledge.stems, set(self._vocabulary("passages")), self._words)

    def find(self, terms: list[str]) -> TermMatch | None:
        """Return where all terms (``a|b``: either) occur close together, or None."""
        search: list[str] = []
        for term in terms:
            queries = [query for phrase in self._phrases(term) for query in queries_of_phrase(phrase, self._words)]
            if not queries:
                return None
            search.append(f"({' OR '.join(queries)})")
        row = self._base.execute(
            "SELECT rowid, highlight(passages, 0, ?, ?) FROM passages WHERE passages MATCH ? LIMIT 1",
            (BEGIN, END, " AND ".join(search)),
        ).fetchone()
        return self._match(*row) if row else None

    def close(self) -> None:
        """Release the index."""
        self._base.close()

    def _match(self, number: int, marked: str) -> TermMatch:
        before, *parts = APART.sub(r"\1ne", marked).split(BEGIN)
        terms = [" ".join(part.partition(END)[0].split()) for part in parts]
        distinct = {term.casefold(): term for term in reversed(terms)}
        shown = [term for term in dict.fromkeys(terms) if distinct[term.casefold()] == term]
        return TermMatch(shown[:MOST_SHOWN], self.sentences.place_at(self._windows[number][0] + len(before)))

    def _phrases(self, term: str) -> list[str]:
        """Return the phrases of a term and their synonyms that may occur in the text."""
        return [
            phrase
            for part in term.split("|")
            for phrase in self._synonyms.get(part.strip().lower(), (part,))
            if phrase not in self._missing
        ]

    def _vocabulary(self, table: str) -> list[str]:
        self._base.execute(f"CREATE VIRTUAL TABLE terms_of_{table} USING fts5vocab({table}, row)")
        return [term for (term,) in self._base.execute(f"SELECT term FROM terms_of_{table} ORDER BY term")]


def _missing(stems_of_phrases: dict[str, str], stems_of_text: set[str], words_of_text: Sequence[str]) -> set[str]:
    """Return the phrases that contain a stem the text does not have."""

    def may_occur(stem: str) -> bool:
        whole, _, beginning = stem.partition("|")
        return whole in stems_of_text or any(True for _ in words_that_begin(beginning, words_of_text))

    return {phrase for phrase, stems in stems_of_phrases.items() if not all(map(may_occur, stems.split()))}
