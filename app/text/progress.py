"""A line of progress on a terminal, in place, from the second second on."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

FIRST_AFTER_S = 1.0
REDRAW_S = 0.2


class ProgressLine:
    """Progress of a known number of items: ``reviewed 120 of 1,389 files``. Nothing if stderr is no terminal."""

    def __init__(self, verb: str, total: int, items: str) -> None:
        self.verb, self.total, self.items = verb, total, items
        self.done = 0
        self._in_place = sys.stderr is not None and sys.stderr.isatty()
        self._began_s = time.monotonic()
        self._width = 0

    def draw(self, done: int) -> None:
        """Draw the line again, once work takes longer than a second."""
        if self._in_place and time.monotonic() - self._began_s > FIRST_AFTER_S:
            line = f"{self.verb} {done:,} of {self.total:,} {self.items}"
            self._width = max(self._width, len(line))
            sys.stderr.write(f"\r{line:<{self._width}}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line."""
        if self._width:
            sys.stderr.write(f"\r{'':<{self._width}}\r")
            sys.stderr.flush()
            self._width = 0

    @contextmanager
    def drawn_by_thread(self) -> Iterator[None]:
        """Draw the line from ``done`` while the block runs."""
        ended = threading.Event()

        def draw() -> None:
            while not ended.wait(REDRAW_S):
                self.draw(self.done)

        thread = threading.Thread(target=draw, daemon=True)
        if self._in_place:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            if self._in_place:
                thread.join()
            self.clear()
