"""A line for a running task: its name, elapsed time and limit, updated twice a second."""

import time

from textual.content import Content
from textual.geometry import Region
from textual.timer import Timer

from .base import BaseWidget
from .formatting import safe_content, status_sign

TICK_S = 0.5
CLOCK_WIDTH = 20


class ProgressLine(BaseWidget):
    """The task that runs now; empty if none runs."""

    DEFAULT_CSS = "ProgressLine { height: 1; width: 1fr; padding: 0 1; }"

    def __init__(self, ascii_only: bool) -> None:
        super().__init__(id="running")
        self._ascii_only = ascii_only
        self._what, self._limit_s, self._since = "", 0.0, 0.0
        self._timer: Timer | None = None

    def begin(self, what: str, limit_s: float, since: float | None = None) -> None:
        """Show a task that may take ``limit_s`` seconds, begun now or at ``since`` (``time.monotonic``)."""
        self._what, self._limit_s, self._since = what, limit_s, since or time.monotonic()
        if self._timer is None:
            self._timer = self.set_interval(TICK_S, self._tick)
        self._timer.resume()
        self.refresh()

    def end(self) -> None:
        """Clear the line when the task has finished."""
        if self._timer:
            self._timer.pause()
        self._what = ""
        self.refresh()

    def _tick(self) -> None:
        name = 2 + 3 * self._ascii_only + len(self._what)
        self.refresh(Region(min(name, self.size.width - 1), 0, CLOCK_WIDTH, 1))

    def render(self) -> Content:
        if not self._what:
            return Content("")
        elapsed = f"{time.monotonic() - self._since:6.1f} s / {self._limit_s:.0f} s"
        room = self.size.width - len(elapsed) - 2 - 3 * self._ascii_only
        what = safe_content(self._what).truncate(max(8, room), ellipsis=True)
        return Content.assemble(status_sign("running", self._ascii_only), " ", what, (elapsed, "$muted"))
