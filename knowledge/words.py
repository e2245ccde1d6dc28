"""The terms of a text that the text model counts: words without their ending, and pairs of adjacent words.

Single letters, long numbers and hashes (of commits, addresses) are no words.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

WORD = re.compile(r"\b(?=[a-f]*\d)(?=\d*[a-f])[\da-f]{7,}\b|(?P<word>[a-z]{2,}|(?<!\d)\d{1,3}(?!\d))", re.IGNORECASE)
ENDINGS = ("ation", "ing", "ed", "es", "ly", "s")
NO_PLURAL = "ss"  # "process", "loss"
# Stems of what a text names by a number, which another text would choose otherwise: rank, GPU, node.
NUMBERED = ("rank", "gpu", "nod")
A_NUMBER = "#"  # in place of such a number, except that of the first one
FIRST = "0"
LEAST_STEM = 3  # letters that an ending leaves
DOUBLED = "bdfgkmnprtz"  # a consonant that an ending doubles: "stopped", "running"
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a an and are as at be been but by can could do does for from get gets had has have how i if in into is it its
        me my of on or our so than that the their then there they this to too up us was we were what when where which
        while who will with would you your""",
    )
)

# Words of any text, which no person would call typical of a cause. They count, but are not shown.
COMMON_WORDS = STOP_WORDS | frozenset(
    re.findall(
        r"\w+",
        """about above across actually add added after again all alone along already also always am another any anybody
        anyone anything around away back because become becomes been before begin begins behind being below between both
        bring bug but came certain change changed changes clear come comes complete completely correct correctly course
        day did different doing done down due during each either else end ended ends enough even ever every everything
        exactly example expect expected fact few fine first follow followed following found full fully further gave
        general get give given gives go goes going gone good got great half happen happened happens hard have having
        help here hour hours however instead issue itself just keep keeps kept kind know known last later least less
        let like likely line little long look looked looking looks lot made make makes making many may maybe me mean
        means might minute minutes more most much must need needed needs never new next nice no nobody none nor normal
        normally not note nothing notice noticed notices now nowhere off often okay old once one ones only other others
        otherwise out over own part people per perhaps place please point possible problem problems put question quite
        rather real really reason right same saw say says second see seem seems seen set setting several shall she
        should show shown shows similar simple simply since small some somebody someone something sometimes soon still
        stop such sure take takes tell ten thank thanks themselves these thing things think those though thought three
        through thus time times together took toward tried tries trouble true try trying turn two under understand
        unfortunately until upon use used useful uses using usual usually various very want wanted wants way ways week
        well went were whatever whenever whether whole whose within without work worked working works worse would wrong
        yes yesterday yet zero""",
    )
)


class Term(NamedTuple):
    """A term, and where its words begin and end in the text."""

    name: str
    begin: int
    end: int


def terms_of(text: str, same: Mapping[str, str]) -> list[Term]:
    """Return the terms of a text in order: each word, then each pair. ``all_reduce`` is two words.

    ``same``: as ``synonymous_stems`` returns it.
    """
    words: list[Term] = []
    for found in WORD.finditer(text):
        if not found["word"] or (word := found[0].lower()) in STOP_WORDS:
            continue
        stem = stem_of(word)
        if word.isdigit() and word != FIRST and words and words[-1].name in NUMBERED:
            stem = A_NUMBER
        words.append(Term(same.get(stem, stem), found.start(), found.end()))
    pairs = [Term(f"{first.name} {second.name}", first.begin, second.end) for first, second in pairwise(words)]
    return words + pairs


def synonymous_stems(groups: Iterable[Sequence[str]]) -> dict[str, str]:
    """Return the stem that replaces each other one of its group of synonyms; only single words are compared."""
    same: dict[str, str] = {}
    for group in groups:
        stems = [stem_of(phrase) for phrase in group if phrase.isalpha()]
        same |= {stem: stems[0] for stem in stems[1:] if stem not in same and stem != stems[0]}
    return same


def stem_of(word: str) -> str:
    """Return a word in lower case without the most common endings of English: freeze, freezes, freezing → freez."""
    if word.endswith(NO_PLURAL):
        return word
    ending = next((end for end in ENDINGS if word.endswith(end) and len(word) - len(end) >= LEAST_STEM), "")
    stem = word.removesuffix(ending)
    if len(stem) <= LEAST_STEM:
        return stem
    if stem[-1] == "e" or (stem[-1] == stem[-2] and stem[-1] in DOUBLED):
        stem = stem[:-1]
    return f"{stem[:-1]}y" if stem[-1] == "i" else stem
