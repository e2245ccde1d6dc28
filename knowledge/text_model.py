"""The text model: a linear classifier over TF-IDF of words and pairs of words, in plain Python.

``make text-model`` trains it from the texts of the knowledge base (``training_texts``) with scikit-learn and writes
``text_model.msgpack``. A weight is stored as an integer of 8 bits; most are zero and are left out. A term counts
(1 + log of its count) × its inverse document frequency, and a text has length 1, as in scikit-learn's
``TfidfVectorizer(sublinear_tf=True)``: a long text does not make the model surer than a short one. The fewer terms a
text has, the less sure the model is: in a few words, any of them may be typical by chance. A term that is only in lines
of code, settings or output counts half: what the person writes about them tells more.
"""

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import msgspec

from .schema import BUILT_IN
from .words import COMMON_WORDS, Term, terms_of

MODEL_FILE = BUILT_IN / "text_model.msgpack"
SHOWN_WORDS = 5
LEAST_TERMS = 3  # of the model in a text; of fewer it says nothing
TERMS_OF_HALF = 4  # a text with so many terms has half of the weight that a long one has
IDF_STEPS = 16  # an inverse document frequency is stored in steps of 1/16
A_WORD = re.compile(r"[^\W_]+")
BETWEEN_PHRASES = re.compile(r"[^\w\s./-]")  # in a pair of words: they are of two phrases, or of code
LEAST_PROSE = 0.7  # share of words of letters in a line of prose; others are code, settings or output
OTHER_LINE = 0.5  # weight of a term in such a line


class TextModel(msgspec.Struct, frozen=True, array_like=True):
    """The weights. ``labels``: causes, and "" for a text about something else.

    ``terms`` are in one string, one a line, in the order of ``idf``, ``counts`` (weights of each term), and, one after
    the other for all terms, ``columns`` (places in ``labels``) and ``weights`` (in units of ``scale``, from -127).
    """

    trained_from: str  # the digest of the training texts
    same: dict[str, str]  # stems that count as another one
    labels: list[str]
    bias: list[float]
    scale: float
    terms: str
    idf: bytes
    counts: bytes
    columns: bytes
    weights: bytes


class LabelShare(NamedTuple):
    """The probability of a label, and the parts of the text that support it most: (text, nats)."""

    label: str
    share: float
    because: list[str]


class TextClassifier:
    """A model made ready to be asked."""

    def __init__(self, model: TextModel) -> None:
        self._model = model
        places = [0, *accumulate(model.counts)]
        weights = zip(model.idf, places[:-1], places[1:], strict=True)
        # of a term: its idf (in steps, as a text has length 1) and the begin and end of its weights
        self._columns: dict[str, tuple[int, int, int]] = dict(zip(model.terms.split("\n"), weights, strict=True))

    @property
    def labels(self) -> set[str]:
        """The causes that the model knows, and ""."""
        return set(self._model.labels)

    @property
    def size(self) -> int:
        """The number of labels."""
        return len(self._model.labels)

    def shares(self, text: str, most: int) -> list[LabelShare]:
        """Return the most likely labels of a text, best first; nothing if it has few known terms."""
        found: dict[str, list[Term]] = defaultdict(list)
        for term in terms_of(text, self._model.same):
            if term.name in self._columns:
                found[term.name].append(term)
        if len(found) < LEAST_TERMS:
            return []
        lines = _LineWeights(text)
        values = {
            name: lines.best(terms) * (1 + math.log(len(terms))) * self._columns[name][0]
            for name, terms in found.items()
        }
        length = math.sqrt(sum(value * value for value in values.values()))
        values = {name: value / length for name, value in values.items()}
        model = self._model
        columns, weights = model.columns, model.weights
        scores = list(model.bias)
        for name, value in values.items():
            _, begin, end = self._columns[name]
            part = value * model.scale
            for place in range(begin, end):
                scores[columns[place]] += part * (weights[place] - 127)
        sureness = len(found) / (len(found) + TERMS_OF_HALF)
        scores = [score * sureness for score in scores]
        top = max(scores)
        exponentials = [math.exp(score - top) for score in scores]
        total = sum(exponentials)
        order = sorted(range(len(scores)), key=lambda at: -scores[at])[:most]
        parts = self._parts(order, values)
        return [
            LabelShare(model.labels[at], exponentials[at] / total, _shown_words(text, parts[at], found)) for at in order
        ]

    def _parts(self, labels: Iterable[int], values: Mapping[str, float]) -> dict[int, dict[str, float]]:
        """Return what each term adds to the score of each of these labels."""
        columns, weights = self._model.columns, self._model.weights
        parts: dict[int, dict[str, float]] = {label: {} for label in labels}
        for name, value in values.items():
            _, begin, end = self._columns[name]
            for place in range(begin, end):
                if columns[place] in parts:
                    parts[columns[place]][name] = value * (weights[place] - 127)
        return parts


class _LineWeights:
    """The weight of a term by its line: less where the line is no prose."""

    def __init__(self, text: str) -> None:
        lines = text.split("\n")
        self._starts = [0, *accumulate(len(line) + 1 for line in lines)][:-1]
        self._weights = [1.0 if _is_prose(line) else OTHER_LINE for line in lines]

    def best(self, terms: Iterable[Term]) -> float:
        """Return the weight of a term that occurs at these places."""
        return max(self._weights[bisect_right(self._starts, term.begin) - 1] for term in terms)


def _is_prose(line: str) -> bool:
    tokens = line.split()
    return sum(token.strip(".,;:!?()\"'`*").isalpha() for token in tokens) >= LEAST_PROSE * len(tokens)


def _shown_words(text: str, parts: dict[str, float], found: dict[str, list[Term]]) -> list[str]:
    """Return the words of the text that add most to a label and could be of no other text, none inside another."""
    shown: list[Term] = []
    for name in sorted(parts, key=lambda name: -parts[name]):
        if parts[name] <= 0 or len(shown) == SHOWN_WORDS:
            break
        term = found[name][0]
        is_apart = all(term.end <= other.begin or term.begin >= other.end for other in shown)
        if is_apart and _may_be_typical(text[term.begin : term.end]):
            shown.append(term)
    return [" ".join(text[term.begin : term.end].split()) for term in shown]


def _may_be_typical(words: str) -> bool:
    """Return whether words of one phrase begin and end with a word that is neither a number nor in any text."""
    parts = A_WORD.findall(words)
    ends = {parts[0].lower(), parts[-1].lower()}
    return not (any(part.isdigit() for part in parts) or ends & COMMON_WORDS or BETWEEN_PHRASES.search(words))


def read_text_model(path: Path = MODEL_FILE) -> TextModel:
    """Return the stored model."""
    return msgspec.msgpack.decode(path.read_bytes(), type=TextModel)


@cache
def built_in_classifier() -> TextClassifier:
    """Return the classifier of the built-in knowledge base; it is read once."""
    return TextClassifier(read_text_model())
