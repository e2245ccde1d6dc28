"""Hear what a person's own words say: clues, answers given unasked, and likeness to the causes' symptoms.

SQLite's full-text search does the reading (FTS5: Porter stems, phrases, BM25), so nothing a person types is a pattern:
every term is quoted, and the time is linear in the text. Most of what is listened for has a word that the text does not
have at all, and is not searched for.
"""

import re
import sqlite3
from bisect import bisect_left
from collections.abc import Iterator

from ...knowledge.schema import Cause, Knowledge
from ...knowledge.stemming import TOKENIZER, protect_one, quote_phrase
from ..evidence import Evidence, answer_id, clue_id, similar_text_id

WORD = re.compile(r"[a-z][a-z0-9]+")
HAN = r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]+"
# The table torchrun ends with.
SUMMARY = re.compile(
    r"\s*(?:\[\d+\]:|[=-]{20,}|(?:time|host|rank|exitcode|error_file|traceback)\s{1,20}: |Root Cause \()"
)
# A frame of a Python traceback with its line of code: what was called is not what somebody says.
FRAME = re.compile(r'(?m)^.{0,40}File "[^"\n]{1,400}", line \d+(?:, in .{1,120})?\n?.{0,300}$')
# An option of a shell command with its value.
OPTION = re.compile(r"(?<!\S)--?[a-zA-Z][\w-]{0,60}(?:[= ][^\s-]\S{0,200})?")
COMMAND_OPTIONS = 3  # a line with so many is a command, and what a command asks for is not what went wrong
APART = re.compile(r"\b(o)nne\b", re.IGNORECASE)  # what ``stemmed_apart`` made of "one"
WINDOW_CHARACTERS = 700  # what "close together" means
WINDOW_STEP = 350
HEARD_STRENGTH = 0.6  # an answer taken from a text may be misheard
COMPARED = 10  # a likeness is what a cause has before the one in this place
FULL_LEAD_BM25 = 20.0
LEAST_STRENGTH = 0.1
MOST_TOKENS = 400
STOP_WORDS = """
a an and are as at be been but by can could do does for from get gets had has have how i if in into is it its just me my
no not of on or our so some than that the their then there they this to too up us was we what when which while why will
with would you your after all also always any very same still use using used error run runs running trying try code file
line most recent call last traceback python self
"""
STOP = frozenset(STOP_WORDS.split())


def match_free_text(text: str, origin: str, knowledge: Knowledge) -> list[Evidence]:
    """What a short text says by its words, each piece with the line it stands in."""
    text = _without_machine_lines(translate_glossary(text, knowledge), knowledge)
    said = _Said(text, knowledge)
    try:
        return [
            *_clues(said, origin, knowledge),
            *_answers(said, origin, knowledge),
            *_likeness(text, origin, knowledge),
        ]
    finally:
        said.close()


def translate_glossary(text: str, knowledge: Knowledge) -> str:
    """The text with the terms of the glossary replaced by the words they mean; what is left of Chinese goes."""
    if text.isascii():
        return text
    for term in sorted(knowledge.glossary, key=len, reverse=True):
        text = text.replace(term, f" {knowledge.glossary[term]} ")
    return re.sub(HAN, " ", text)


def mentions_multiple_ranks(text: str, knowledge: Knowledge) -> bool:
    """Whether anything in the text hints at several ranks, GPUs or machines."""
    return any(re.search(pattern, text, re.IGNORECASE) for pattern in knowledge.several)


def _without_machine_lines(text: str, knowledge: Knowledge) -> str:
    """The text with blank lines for what no person says: stack frames, launchers' summaries, messages that are known
    to follow from something else or to mean nothing."""
    for message in knowledge.messages.values():
        if message.literal in text:
            text = re.sub(message.pattern, " ", text)
    lines = FRAME.sub("\n", text).split("\n")
    return "\n".join("" if SUMMARY.match(line) else line for line in lines)


def split_words(text: str) -> set[str]:
    """The lower-case words of a text, as they stand."""
    return set(re.findall(r"[a-z][a-z0-9_]+", text.lower()))


class _Said:
    """A text laid out for searching, in overlapping passages."""

    def __init__(self, text: str, knowledge: Knowledge) -> None:
        self._text = text
        self._synonyms = {word: group for group in knowledge.synonyms for word in group}
        self._base = sqlite3.connect(":memory:")
        self._base.execute(f"CREATE VIRTUAL TABLE said USING fts5(body, {TOKENIZER})")
        self._base.execute("CREATE VIRTUAL TABLE stems USING fts5vocab(said, row)")
        starts = range(0, max(1, len(text) - WINDOW_STEP), WINDOW_STEP)
        passages = [(protect_one(text[start : start + WINDOW_CHARACTERS]),) for start in starts]
        self._base.executemany("INSERT INTO said(body) VALUES (?)", passages)
        self._missing = _missing(knowledge.stems, {stem for (stem,) in self._base.execute("SELECT term FROM stems")})

    def find(self, terms: list[str]) -> tuple[str, int] | None:
        """Where all terms (``a|b``: either) stand close together: the words around them, the number of their line."""
        search: list[str] = []
        for term in terms:
            phrases = self._alternatives(term)
            if not phrases:
                return None
            search.append(f"({' OR '.join(map(quote_phrase, phrases))})")
        row = self._base.execute(
            "SELECT snippet(said, 0, '', '', '', 12) FROM said WHERE said MATCH ? LIMIT 1", (" AND ".join(search),)
        ).fetchone()
        if row is None:
            return None
        words = APART.sub(r"\1ne", row[0])
        start = max(0, self._text.find(words))
        return " ".join(words.split()), self._text.count("\n", 0, start) + 1

    def close(self) -> None:
        self._base.close()

    def _alternatives(self, term: str) -> list[str]:
        """The phrases of a term, and their synonyms, that may stand in the text."""
        return [
            phrase
            for part in term.split("|")
            for phrase in self._synonyms.get(part.strip().lower(), (part,))
            if phrase not in self._missing
        ]


def _missing(listened_for: dict[str, str], said: set[str]) -> set[str]:
    """The phrases of which not all stems are among those of a text."""
    in_order = sorted(said)

    def begun(stems: str) -> bool:
        *whole, start = stems.removesuffix("*").split()
        at = bisect_left(in_order, start)
        return said.issuperset(whole) and at < len(in_order) and in_order[at].startswith(start)

    return {
        phrase
        for phrase, stems in listened_for.items()
        if not (begun(stems) if stems.endswith("*") else said.issuperset(stems.split()))
    }


def _clues(said: _Said, origin: str, knowledge: Knowledge) -> Iterator[Evidence]:
    for cause in knowledge.causes.values():
        for index, clue in enumerate(cause.clues):
            if found := said.find(clue.all):
                words, line = found
                what = f"the text says “{words}”"
                yield Evidence(clue_id(cause, index), "description", what, where=f"{origin}:{line}")


def _answers(said: _Said, origin: str, knowledge: Knowledge) -> Iterator[Evidence]:
    for id_, question in knowledge.questions.items():
        for answer, ways in question.heard.items():
            if found := next(filter(None, map(said.find, ways)), None):
                words, line = found
                what = f"{question.ask} {question.answers[answer]} (the text says “{words}”)"
                where = f"{origin}:{line}"
                yield Evidence(answer_id(id_, answer), "description", what, where=where, strength=HEARD_STRENGTH)


def _likeness(text: str, origin: str, knowledge: Knowledge) -> list[Evidence]:
    """The causes whose symptoms are most like the text; ``strength`` grows with BM25's lead before the field."""
    said = _without_options(text).lower()
    asked = list(dict.fromkeys(word for word in WORD.findall(said) if word not in STOP))[:MOST_TOKENS]
    if not asked:
        return []
    index = sqlite3.connect(":memory:")
    try:
        index.execute(f"CREATE VIRTUAL TABLE causes USING fts5(id UNINDEXED, title, symptoms, {TOKENIZER})")
        rows = [
            (cause.id, protect_one(cause.title), protect_one("\n".join(cause.symptoms)))
            for cause in knowledge.causes.values()
        ]
        index.executemany("INSERT INTO causes VALUES (?, ?, ?)", rows)
        found = index.execute(
            "SELECT id, -bm25(causes, 0, 1.0, 1.0) FROM causes WHERE causes MATCH ? ORDER BY 2 DESC LIMIT ?",
            (" OR ".join(quote_phrase(word) for word in asked), COMPARED),
        ).fetchall()
    finally:
        index.close()
    field = found[-1][1] if len(found) == COMPARED else 0.0
    leads = [(knowledge.causes[id_], min(1.0, (score - field) / FULL_LEAD_BM25)) for id_, score in found]
    return [
        Evidence(similar_text_id(cause), "description", _told(cause, asked), where=origin, strength=round(lead, 2))
        for cause, lead in leads
        if lead >= LEAST_STRENGTH
    ]


def _without_options(text: str) -> str:
    """The text without the options of the commands in it (also those continued with a backslash)."""
    lines = text.replace("\\\n", " ").split("\n")
    return "\n".join(OPTION.sub(" ", ln) if len(OPTION.findall(ln)) >= COMMAND_OPTIONS else ln for ln in lines)


def _told(cause: Cause, asked: list[str]) -> str:
    """The cause's symptom that shares most words with what was said."""
    phrase = max(cause.symptoms, key=lambda symptom: len(set(WORD.findall(symptom.lower())).intersection(asked)))
    return f"the words are like “{phrase}”"
