"""Search a program for words of a launch on several ranks: a trainer of a library runs in one process as well."""

import re

from ..project_imports import read_module
from .evaluated import Evaluated
from .users import readers

OF_LAUNCH = re.compile(
    r"local_?rank|world_?size|deepspeed|fsdp|\bddp|torchrun|torch\.distributed|process_index|process_zero|main_process"
    r"|global_(?:rank|zero)|num_nodes|strategy\s*=",
    re.IGNORECASE,
)


def means_several_ranks(evaluated: Evaluated) -> bool:
    """Return whether a script, a module that it reads or a script that uses it says something of a launch."""
    if OF_LAUNCH.search(evaluated.text):
        return True
    path = evaluated.path
    others = (*sorted(evaluated.modules - {path}), *(readers(path) if path.is_absolute() else ()))
    return any(OF_LAUNCH.search(read_module(each) or "") for each in others)
