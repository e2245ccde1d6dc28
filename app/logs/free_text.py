"""Match a user's own words: clues, answers to questions, and words that are typical of causes."""

import math
import re
import sqlite3
from collections.abc import Iterator

from ...knowledge.schema import Cause, Knowledge
from ...knowledge.stemming import TOKENIZER, protect_one, quote_phrase
from ...knowledge.text_model import built_in_classifier
from ..evidence import OTHER_SUBJECT, Evidence, answer_id, clue_id, quoted_text_id, similar_text_id, typical_words_id
from .passages import PassageIndex
from .prose import ERROR, prose_of, without_expectations, without_options

WORD = re.compile(r"[a-z][a-z0-9]+")
PUNCTUATION = str.maketrans("，。、；：！？（）", ",.,;:!?()")  # of Chinese, and what ends the same clauses in English
HAN = r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]+"
ANSWER_STRENGTH = 0.6  # an answer inferred from a text may be wrong
MOST_LABELS = 10  # that the text model may name
COMPARED = 10  # similarity is the lead over the cause at this position
FULL_LEAD_BM25 = 20.0
LEAST_STRENGTH = 0.1
MOST_TOKENS = 400
LEAST_QUOTED_WORDS = 3  # of a symptom that a text may quote; a shorter one is in many texts
# In the message of an exception: what only processes that communicate have. The "rank" of a tensor is no such rank.
COMMUNICATES = re.compile(
    r"torch\.distributed\.(?!fsdp|tensor|checkpoint)|\bc10d\b|\bProcessGroup[A-Z]\w*(?:\.cpp)?:|gloo/transport"
    r"|connectFullMesh|monitoredBarrier|\bncclRemoteError\b|\bDeadLock detected from rank"
    r"|store based barrier|\bprocess group\b.{0,200}\brank\b"
    r"|(?<!of )(?<!be )(?<!is )(?<!to )\branks? ?\d+(?:,| has| is| successfully| and|\])|\bacross (?:all )?ranks\b"
)
STOP_WORDS = """
a an and are as at be been but by can could do does for from get gets had has have how i if in into is it its just me my
no not of on or our so some than that the their then there they this to too up us was we what when which while why will
with would you your after all also always any very same still use using used error run runs running trying try code file
line most recent call last traceback python self
"""
STOP = frozenset(STOP_WORDS.split())


def match_free_text(text: str, origin: str, knowledge: Knowledge) -> list[Evidence]:
    """Return the evidence in a short text, each piece with its line."""
    text = translate_glossary(text, knowledge)
    passages = PassageIndex(without_expectations(prose_of(text, knowledge)), knowledge)
    text = prose_of(text, knowledge, errors=True)
    try:
        return [
            *_clues(passages, origin, knowledge),
            *_answers(passages, origin, knowledge),
            *_typical_words(text, passages, origin, knowledge),
            *_similar_causes(text, origin, knowledge),
        ]
    finally:
        passages.close()


def translate_glossary(text: str, knowledge: Knowledge) -> str:
    """Replace the terms of the glossary by their meaning, and punctuation; other Chinese characters are removed."""
    if text.isascii():
        return text
    text = text.translate(PUNCTUATION)
    for term in sorted(knowledge.glossary, key=len, reverse=True):
        text = text.replace(term, f" {knowledge.glossary[term]} ")
    return re.sub(HAN, " ", text)


def mentions_multiple_ranks(text: str, knowledge: Knowledge) -> bool:
    """Return whether the text mentions several ranks, GPUs or machines.

    The message of an exception does only if processes that communicate raised it: a library words others alike for a
    single process.
    """
    rest = "\n".join(line for line in text.split("\n") if not ERROR.match(line) or COMMUNICATES.search(line))
    return any(re.search(pattern, rest, re.IGNORECASE) for pattern in knowledge.multi_rank_words)


def split_words(text: str) -> set[str]:
    """Return the words of a text in lower case."""
    return set(re.findall(r"[a-z][a-z0-9_]+", text.lower()))


def _clues(passages: PassageIndex, origin: str, knowledge: Knowledge) -> Iterator[Evidence]:
    for cause in knowledge.causes.values():
        for number, clue in enumerate(cause.clues):
            if found := passages.find(clue.all):
                what = f"{clue.why.removesuffix('.')}: {found.quoted}"
                yield Evidence(clue_id(cause, number), "description", what, where=f"{origin}:{found.place}")


def _answers(passages: PassageIndex, origin: str, knowledge: Knowledge) -> Iterator[Evidence]:
    for id_, question in knowledge.questions.items():
        for answer, ways in question.heard.items():
            if found := next(filter(None, map(passages.find, ways)), None):
                what = f"{question.ask} {question.answers[answer]} (the text contains {found.quoted})"
                where = f"{origin}:{found.place}"
                yield Evidence(answer_id(id_, answer), "description", what, where=where, strength=ANSWER_STRENGTH)


def _typical_words(text: str, passages: PassageIndex, origin: str, knowledge: Knowledge) -> Iterator[Evidence]:
    """Yield the causes of which the text model finds the text typical, or that it is about something else.

    ``strength`` is 1 for certainty, and 0 for a probability that every label would have by chance.
    """
    model = built_in_classifier()
    for label, share, because in model.shares(without_options(text), MOST_LABELS):
        strength = round(1 + math.log(max(share, 1e-9)) / math.log(model.size), 2)
        words = f": {', '.join(f'“{word}”' for word in because)}" if because else ""
        if strength < LEAST_STRENGTH:
            continue
        place = passages.sentences.place_of_all(because)
        where = f"{origin}:{place}" if place else origin
        if not label:
            what = f"the words are typical of another subject{words}"
            yield Evidence(OTHER_SUBJECT, "description", what, where=where, strength=strength)
        elif label in knowledge.causes:
            what = f"the words are typical of it{words}"
            yield Evidence(typical_words_id(label), "description", what, where=where, strength=strength)


def _similar_causes(text: str, origin: str, knowledge: Knowledge) -> list[Evidence]:
    """Return the team's causes, which the text model does not know, with symptoms similar to the text.

    ``strength`` is the lead in BM25 over the other causes.
    """
    known = built_in_classifier().labels
    if known >= knowledge.causes.keys():
        return []
    words = without_options(text).lower()
    searched = list(dict.fromkeys(word for word in WORD.findall(words) if word not in STOP))[:MOST_TOKENS]
    if not searched:
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
            (" OR ".join(quote_phrase(word) for word in searched), COMPARED),
        ).fetchall()
    finally:
        index.close()
    field = found[-1][1] if len(found) == COMPARED else 0.0
    leads = [(knowledge.causes[id_], min(1.0, (score - field) / FULL_LEAD_BM25)) for id_, score in found]
    similar = [
        Evidence(
            similar_text_id(cause),
            "description",
            _similar_symptom(cause, searched),
            where=origin,
            strength=round(lead, 2),
        )
        for cause, lead in leads
        if lead >= LEAST_STRENGTH and cause.id not in known
    ]
    quoted = [
        Evidence(quoted_text_id(knowledge.causes[id_]), "description", f"the text says “{phrase}”", where=origin)
        for id_, phrase in quoted_causes(text, knowledge).items()
    ]
    return [*quoted, *similar]


def quoted_causes(text: str, knowledge: Knowledge) -> dict[str, str]:
    """Return the team's causes whose title or one of whose symptoms the text has word for word, with that sentence."""
    words = f" {_plain_words(text)} "
    own = [cause for cause in knowledge.causes.values() if cause.id not in built_in_classifier().labels]
    return {
        cause.id: phrase
        for cause in own
        for phrase in (cause.title, *cause.symptoms)
        if len((plain := _plain_words(phrase)).split()) >= LEAST_QUOTED_WORDS and f" {plain} " in words
    }


def _plain_words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def _similar_symptom(cause: Cause, searched: list[str]) -> str:
    """Return a sentence with the symptom of the cause that shares most words with the text."""
    phrase = max(cause.symptoms, key=lambda symptom: len(set(WORD.findall(symptom.lower())).intersection(searched)))
    return f"the text resembles the symptom “{phrase}”"
