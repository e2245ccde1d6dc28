"""Bound the size of a dump before it is converted, which copies a shared value once for each reference to it.

A pickle of a thousand bytes may reference one list 10**12 times: that is plain data, and loading it takes no memory.
Every visit counts here, not every object. The entries are counted by column, in a few calls per dump: walking every
value would take as long as loading them.
"""

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from .safe_unpickle import DumpError

SIZE_PER_BYTE = 4  # of dumps of torch: below 2. A reference of two bytes replaces a text or a number of an entry
SIZE_ALWAYS = 100_000
SCALARS = {str, int, float, bool, type(None), bytes}
TEXTS = {str, bytes}
LISTS = {list, tuple}
NESTED = 2  # lists of sizes hold lists


class SizeBudget:
    """The values and letters that the rest of a dump may still unfold to."""

    def __init__(self, file_bytes: int) -> None:
        self.left = SIZE_PER_BYTE * file_bytes + SIZE_ALWAYS

    def take(self, count: int) -> None:
        """Count ``count`` more.

        Raises:
            DumpError: It is more than a dump of this size holds.
        """
        self.left -= count
        if self.left < 0:
            raise DumpError("refused: shared values in it unfold to more than a dump of its size holds")

    def take_value(self, value: object) -> None:
        """Count a value and all in it, once for each reference. A value that contains itself has no end."""
        pending = [value]
        while pending:
            each = pending.pop()
            if isinstance(each, (str, bytes, bytearray)):
                self.take(len(each))
            elif isinstance(each, dict):
                self.take(2 * len(each))
                pending += chain(each, each.values())
            elif isinstance(each, (list, tuple, set, frozenset)):
                self.take(len(each))
                pending += each

    def take_entries(self, entries: Sequence[dict[str, Any]], keys: Sequence[str], frames: str) -> None:
        """Count these columns of all entries; of the stacks only their lengths, as frames are converted once each.

        Raises:
            DumpError: A column holds what entries never hold.
        """
        if not entries:
            return
        for key in keys:
            self._take_column(list(map(itemgetter(key), entries)))
        stacks = [each[frames] for each in entries]
        if not set(map(type, stacks)) <= LISTS:
            raise DumpError("not a Flight Recorder dump (the frames of an entry are not a list)")
        self.take(sum(map(len, stacks)))

    def _take_column(self, column: Sequence[Any]) -> None:
        for _ in range(NESTED + 1):
            kinds = set(map(type, column))
            if kinds <= TEXTS:
                self.take(sum(map(len, column)))
                return
            if not kinds.isdisjoint(TEXTS):
                self.take(sum(len(each) for each in column if type(each) in TEXTS))
            if kinds <= SCALARS:
                return
            if not kinds <= SCALARS | LISTS:
                break
            lists = column if kinds <= LISTS else [each for each in column if type(each) in LISTS]
            self.take(sum(map(len, lists)))
            column = list(chain.from_iterable(lists))
        raise DumpError("not a Flight Recorder dump (a field of an entry is not a list of sizes)")
