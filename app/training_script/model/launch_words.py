"""Search a program for words of a launch on several ranks: a trainer of a library runs in one process as well."""

import re

from ..project_imports import read_module
from .evaluated import Evaluated
from .users import readers

# Not the options that scripts of one process pass as well.
OF_LAUNCH = re.compile(
    r"local_?rank|world_?size|deepspeed|fsdp|\bddp(?!_(?:find|timeout|bucket|broadcast|backend))|torchrun"
    r"|torch\.distributed|process_index|process_zero|main_process|global_(?:rank|zero)|num_nodes|strategy\s*=",
    re.IGNORECASE,
)
OF_TRAINER = re.compile(r"\b(?:transformers|trl|lightning|pytorch_lightning)\b")


def means_several_ranks(evaluated: Evaluated) -> bool:
    """Return whether a script, or what it reads or is used by for such a trainer, says something of a launch."""
    if OF_LAUNCH.search(evaluated.text):
        return True
    path = evaluated.path
    others = (*sorted(evaluated.modules - {path}), *(readers(path) if path.is_absolute() else ()))
    texts = (read_module(each) or "" for each in others)
    return any(OF_TRAINER.search(text) and OF_LAUNCH.search(text) for text in texts)
