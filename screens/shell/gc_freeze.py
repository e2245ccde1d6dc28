"""Python's garbage collector, kept out of keystrokes."""

import gc
from functools import cache


@cache
def freeze_garbage(what: str) -> None:
    """From now on pass over all there is, as ``what`` is loaded and stays: looking through it took 60 ms in the middle
    of a keystroke. Once for each name."""
    gc.freeze()
