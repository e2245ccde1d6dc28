"""The terms of a text that the text model counts: words without their ending, and pairs of adjacent words."""

import re
from itertools import pairwise
from typing import NamedTuple

WORD = re.compile(r"[A-Za-z]+|\d{1,3}(?!\d)")
ENDINGS = ("ing", "ed", "es", "s")
LEAST_STEM = 3  # letters that an ending leaves
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a an and are as at be been but by can could do does for from get gets had has have how i if in into is it its
        me my of on or our so than that the their then there they this to too up us was we were what when where which
        while who will with would you your""",
    )
)


class Term(NamedTuple):
    """A term, and where its words begin and end in the text."""

    name: str
    begin: int
    end: int


def terms_of(text: str) -> list[Term]:
    """Return the terms of a text in order: each word, then each pair. ``all_reduce`` is two words."""
    words = [
        Term(stem, found.start(), found.end())
        for found in WORD.finditer(text)
        if (word := found[0].lower()) not in STOP_WORDS and (stem := stem_of(word))
    ]
    pairs = [Term(f"{first.name} {second.name}", first.begin, second.end) for first, second in pairwise(words)]
    return words + pairs


def stem_of(word: str) -> str:
    """Return a word in lower case without the most common endings of English."""
    ending = next((end for end in ENDINGS if word.endswith(end) and len(word) - len(end) >= LEAST_STEM), "")
    return word.removesuffix(ending)
