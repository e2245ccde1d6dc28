"""A line of progress on standard error, from the second second on: in place on a terminal, in a log now and then."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FIRST_AFTER_S = 1.0
REDRAW_S = 0.2
LOG_LINE_S = 5.0  # between two lines where standard error is no terminal


class ProgressLine:
    """The line of one task. ``text`` describes what is done so far; ``logged``: also where stderr is no terminal."""

    def __init__(self, text: Callable[[int], str], *, logged: bool = False) -> None:
        self.done = 0
        self._text = text
        self._in_place = sys.stderr is not None and sys.stderr.isatty()
        self._shown = sys.stderr is not None and (self._in_place or logged)
        self._next_s = time.monotonic() + FIRST_AFTER_S
        self._width = 0

    def draw(self, done: int) -> None:
        """Draw the line again, once work takes longer than a second and the last one has been there for a while."""
        now = time.monotonic()
        if not self._shown or now < self._next_s:
            return
        line = self._text(done)
        if self._in_place:
            self._next_s = now + REDRAW_S
            self._width = max(self._width, len(line))
            sys.stderr.write(f"\r{line:<{self._width}}")
        else:
            self._next_s = now + LOG_LINE_S
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line from a terminal."""
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
