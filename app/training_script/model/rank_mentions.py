"""Search a text for words of distributed training: a module without one is not reviewed; conditions for words of ranks.

In a reviewed file comments do not count: the licence of most says how it is distributed. What others import is followed
if it mentions them anywhere.
"""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from ..nodes import walk
from ..rank_names import MOST_NAMES, NOT_OWN_RANK
from ..syntax import last_name

WORDS = (
    "Distributed",
    *("distributed", "dist.", "accelerat", "deepspeed", "horovod", "mpi4py", "fabric", "fsdp", "FSDP", "DDP"),
    *("barrier", "reduce", "gather", "broadcast", "rank", "RANK", "is_main", "is_master", "main_process"),
    *("world_size", "map_location", "lightning", "global_zero", "process_zero", "TrainerCallback", "TrainingArguments"),
)
# Where these are part of another word: ``latent_dist.``, ``DDPMScheduler``.
WHOLE = {"dist.": re.compile(r"(?<!\w)dist\."), "DDP": re.compile(r"DDP(?![A-Z](?![a-z]))")}
NAME = re.compile(r"\w*")
# A condition with such words may be about ranks even where its value is not known.
OF_RANKS = re.compile(
    r"rank|main|master|primary|chief|lead|zero(?!_?\d|_grad)|coordinator|gpu|cuda_?id|proc|worker|node|writer|logger|saver|save_?r|distrib|dist(?:_|$)"
    r"|ddp|world|device|local|parallel|shard",
    re.IGNORECASE,
)

OF_KIND = re.compile(
    r"\w*(?:logger|writer|saver|backend)(?:_(?:type|name|kind))?", re.IGNORECASE
)  # what a text names one of several of


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


def may_ask_for_ranks(test: ast.expr) -> bool:
    """Return whether a condition reads a variable, an attribute or a key whose name may be about ranks."""
    nodes = walk(test)
    asked = (node.left for node in nodes if isinstance(node, ast.Compare) and _asks_for_kind(node))
    of_kinds = {id(inner) for left in asked for inner in walk(left)}
    return any(_is_of_ranks(name) for node in nodes if id(node) not in of_kinds for name in _read_names(node))


def _asks_for_kind(test: ast.Compare) -> bool:
    """Return whether a comparison with texts asks for the kind of something, such as the service of a logger."""
    if not OF_KIND.fullmatch(last_name(test.left)):
        return False
    texts = [part for each in test.comparators for part in getattr(each, "elts", [each])]
    return all(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in texts)


@lru_cache(MOST_NAMES)
def _is_of_ranks(name: str) -> bool:
    return bool(OF_RANKS.search(name))


def _read_names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str() as name)):
            yield name
        case _:
            pass
