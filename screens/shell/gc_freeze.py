"""Exclude loaded modules from garbage collection."""

import gc
from functools import cache


@cache
def freeze_garbage(what: str) -> None:
    """Exclude all current objects from later collections, once for each ``what`` that was loaded.

    A full collection took 60 ms in the middle of a keystroke.
    """
    gc.freeze()
