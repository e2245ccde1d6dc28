"""The order of search results: words that are typed together and found together come first."""

import re
from collections.abc import Sequence

SCATTERED = 4  # the words are found, but in different texts, or within other words
BEGINS = "(?<![a-z0-9])"  # a word


class WordSearch:
    """The words that were typed, to be searched in the texts of many entries."""

    def __init__(self, typed: str) -> None:
        words = typed.lower().split()
        self._words = [re.compile(BEGINS + re.escape(word) + r"(?![0-9])" * word[-1].isdigit()) for word in words]
        parts = [re.escape(word) for word in re.findall(r"\w+", typed.lower())]
        self._phrase = re.compile(BEGINS + r"[\W_]+".join(parts))
        self._apart = [re.compile(BEGINS + word) for word in parts]

    def has_words(self, texts: Sequence[str]) -> bool:
        """Return whether each typed word begins a word of these texts; a number is a whole one."""
        text = " ".join(texts).lower()
        return bool(self._words) and all(word.search(text) for word in self._words)

    def order(self, texts: Sequence[str]) -> tuple[int, int]:
        """Return the sort key of an entry. ``texts``: those of the entry, its title first.

        The typed words side by side come before the same words apart, and those in the title before those in another
        text. The last word may be the beginning of one.
        """
        lower = [text.lower() for text in texts]
        together = next((place for place, text in enumerate(lower) if self._phrase.search(text)), None)
        if together is not None:
            return (0 if together == 0 else 1), together
        apart = (place for place, text in enumerate(lower) if all(word.search(text) for word in self._apart))
        in_one = next(apart, None)
        if in_one is not None:
            return (2 if in_one == 0 else 3), in_one
        return SCATTERED, 0
