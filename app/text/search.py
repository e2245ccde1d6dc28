"""The order of search results: words that are typed together and found together come first."""

import re
from collections.abc import Sequence

SCATTERED = 4  # the words are found, but in different texts, or within other words


def has_words(typed: str, texts: Sequence[str]) -> bool:
    """Return whether each typed word begins a word of these texts; a number is a whole one."""
    text = " ".join(texts).lower()
    words = [re.escape(word) + r"(?![0-9])" * word[-1].isdigit() for word in typed.lower().split()]
    return bool(words) and all(re.search(rf"(?<![a-z0-9]){word}", text) for word in words)


def match_order(typed: str, texts: Sequence[str]) -> tuple[int, int]:
    """Return the sort key of an entry for what was typed. ``texts``: those of the entry, its title first.

    The typed words side by side come before the same words apart, and those in the title before those in another
    text. The last word may be the beginning of one.
    """
    words = [re.escape(word) for word in re.findall(r"\w+", typed.lower())]
    phrase = re.compile(r"(?<![a-z0-9])" + r"[\W_]+".join(words))
    apart = [re.compile(rf"(?<![a-z0-9]){word}") for word in words]
    lower = [text.lower() for text in texts]
    together = [place for place, text in enumerate(lower) if phrase.search(text)]
    in_one = [place for place, text in enumerate(lower) if all(word.search(text) for word in apart)]
    if together:
        return (0 if together[0] == 0 else 1), together[0]
    if in_one:
        return (2 if in_one[0] == 0 else 3), in_one[0]
    return SCATTERED, 0
