"""Suggestions for mistyped names."""

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher, get_close_matches
from functools import partial

LONGEST = 80  # letters of a name that are compared
CUTOFF = 0.6  # of difflib's ratio
WORD_CUTOFF = 0.75  # of a word among all words of the knowledge base, of which some are alike by chance
SPREAD = 0.15  # below the most similar name, others are alike by chance too
SHORTEST_WORD = 4  # letters of a word that is compared for itself


def closest(name: str, names: Iterable[str], most: int = 3, cutoff: float = CUTOFF) -> list[str]:
    """Return the most similar names, best first, ignoring case and punctuation. ``cutoff``: the least ratio."""
    by_key: dict[str, str] = {}
    for each in names:
        by_key.setdefault(normalise(each), each)
    return [by_key[key] for key in get_close_matches(normalise(name[:LONGEST]), by_key, most, cutoff)]


def closest_by_word(name: str, names: Mapping[str, str], most: int = 5) -> list[str]:
    """Return the names that are similar as a whole or in one of their words, best first.

    ``names`` maps each name to what it is a name of; of the names of one thing only the most similar is returned.
    """
    key = normalise(name[:LONGEST])
    alike = {each: max(map(partial(_ratio, key), _parts(each)), default=0.0) for each in names}
    least = max(WORD_CUTOFF, max(alike.values(), default=0.0) - SPREAD)
    found: dict[str, str] = {}
    for each in sorted(names, key=lambda other: (-alike[other], len(other))):
        if alike[each] >= least:
            found.setdefault(names[each], each)
    return [*found.values()][:most]


def _parts(name: str) -> set[str]:
    """Return the letters of a name and of each of its words."""
    words = re.split(r"[^A-Za-z0-9]+", name)
    return {normalise(name), *(normalise(word) for word in words if len(word) >= SHORTEST_WORD)}


def _ratio(key: str, other: str) -> float:
    if 2 * min(len(key), len(other)) < WORD_CUTOFF * (len(key) + len(other)):
        return 0.0  # by their lengths alone
    return SequenceMatcher(None, key, other).ratio()


def did_you_mean(found: list[str]) -> str:
    """Return ``did you mean A, B or C?``, or "" if no name is similar."""
    if not found:
        return ""
    *first, last = found
    return f"did you mean {', '.join(first)}{' or ' * bool(first)}{last}?"


def normalise(name: str) -> str:
    """Return the letters and digits of a name: ``zero3`` for ``ZeRO-3``."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
