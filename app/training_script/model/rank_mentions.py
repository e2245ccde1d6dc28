"""Search a text for words of distributed training: a module without one is not reviewed.

In a reviewed file comments do not count: the licence of most says how it is distributed. What others import is followed
if it mentions them anywhere.
"""

import re
from collections.abc import Iterator

from ..rank_names import NOT_OWN_RANK

WORDS = (
    "Distributed",
    *("distributed", "dist.", "accelerat", "deepspeed", "horovod", "mpi4py", "fabric", "fsdp", "FSDP", "DDP"),
    *("barrier", "reduce", "gather", "broadcast", "rank", "RANK", "is_main", "is_master", "main_process"),
    *("world_size", "map_location"),
)
# Where these are part of another word: ``latent_dist.``, ``DDPMScheduler``.
WHOLE = {"dist.": re.compile(r"(?<!\w)dist\."), "DDP": re.compile(r"DDP(?![A-Z](?![a-z]))")}
NAME = re.compile(r"\w*")


def mentions_ranks(text: str) -> bool:
    """Return whether the text of a module has such a word anywhere."""
    return any(word in text for word in WORDS)


def concerns_ranks(text: str) -> bool:
    """Return whether the code of a module mentions anything of distributed training."""
    return any(word in text and any(_is_meant(text, word, place) for place in _places(text, word)) for word in WORDS)


def _places(text: str, word: str) -> Iterator[int]:
    place = text.find(word)
    while place >= 0:
        yield place
        place = text.find(word, place + 1)


def _is_meant(text: str, word: str, place: int) -> bool:
    """Return whether a word at a place is code, and none that only begins or ends like it."""
    line = text.rfind("\n", 0, place) + 1
    if text[line:place].lstrip().startswith("#"):
        return False
    if word in WHOLE:
        return bool(WHOLE[word].match(text, place))
    return word != "rank" or not NOT_OWN_RANK.fullmatch(_name_at(text, line, place).lower())


def _name_at(text: str, line: int, place: int) -> str:
    """Return the name that has its part in a line at a place."""
    start = place
    while start > line and (text[start - 1].isalnum() or text[start - 1] == "_"):
        start -= 1
    found = NAME.match(text, start)
    return found[0] if found else ""
