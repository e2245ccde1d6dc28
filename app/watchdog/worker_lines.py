"""The lines of workers as torchrun prefixes them; a line that it has read in parts is put together again."""

import re
from itertools import pairwise

PREFIX = re.compile(r"\[default\d+\]:")


class WorkerLines:
    """torchrun prefixes each part of a line that it reads before the end of the line is written.

    Such a line has its prefix again in the middle, or is followed by a line of another rank.
    """

    def __init__(self) -> None:
        self._begun: dict[str, str] = {}  # by prefix: the parts of a line whose end has not come yet

    def add(self, line: str) -> list[str]:
        """Return the lines that end with this line of output."""
        starts = [found.start() for found in PREFIX.finditer(line)]
        if not starts:
            return [line]
        complete = [line[: starts[0]]] if starts[0] else []
        *begun, last = [line[start:end] for start, end in pairwise([*starts, len(line)])]
        for part in begun:
            prefix, text = _split(part)
            self._begun[prefix] = self._begun.get(prefix, prefix) + text
        prefix, text = _split(last)
        return [*complete, self._begun.pop(prefix, prefix) + text]

    def rest(self) -> list[str]:
        """Return the lines that have no end, once the output has ended."""
        lines = [*self._begun.values()]
        self._begun.clear()
        return lines


def _split(part: str) -> tuple[str, str]:
    """Return the prefix of a part and its text."""
    prefix, colon, text = part.partition("]:")
    return prefix + colon, text
