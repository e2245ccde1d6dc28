"""Sentences that launchers and libraries print in healthy runs (``notices.yaml``), wherever a text has them."""

import re
from collections.abc import Sequence
from functools import lru_cache

ANYTHING = ".{1,240}?"  # in place of * in a notice
VALUE = r"(?:True|False|[\d,.]{0,20})"  # in place of * at its end
WORD = re.compile(r"[A-Za-z]{2,}")
LEAST_WORDS = 3  # of a line that a person has written next to a notice
MOST_KEPT = 4  # lists of notices: that of the built-in knowledge, and those of teams


def without_notices(text: str, notices: Sequence[str]) -> str:
    """Return the text with spaces in place of all notices. Line breaks stay, and so do the places of all other words.

    Spaces and line breaks are not compared: a terminal may have wrapped a notice within a word. A line of which only
    a word or two is left (the name of a node or of a logger) is left out as well.
    """
    places = [place for place, letter in enumerate(text) if not letter.isspace()]
    packed = "".join(text[place] for place in places)
    letters = list(text)
    for start, pattern in _patterns(tuple(notices)):
        for found in re.finditer(pattern, packed) if start in packed else ():
            for place in places[found.start() : found.end()]:
                letters[place] = " "
    lines = zip(text.split("\n"), "".join(letters).split("\n"), strict=True)
    return "\n".join("" if rest != line and len(WORD.findall(rest)) < LEAST_WORDS else rest for line, rest in lines)


@lru_cache(maxsize=MOST_KEPT)
def _patterns(notices: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return for each notice the text by which it begins, and its pattern, both without spaces.

    Few texts have one, so a pattern is compiled when the text has the beginning.
    """
    found: list[tuple[str, str]] = []
    for notice in notices:
        packed = "".join(notice.split())
        parts = packed.removesuffix("*").split("*")
        pattern = ANYTHING.join(map(re.escape, parts)) + (VALUE if packed.endswith("*") else "")
        found.append((parts[0], pattern))
    return found
