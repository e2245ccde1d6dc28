"""Mixin for screens that wait for a child process, with a clock; escape and ctrl+c cancel it."""

from collections.abc import Coroutine
from typing import Any

from ..shell.base import WizardScreen
from ..widgets.progress_line import ProgressLine

CHILD = "child"  # group of the worker that waits


class ChildProcessMixin(WizardScreen):
    """The body of the screen holds ``running_line``, which is hidden while nothing runs."""

    def running_line(self) -> ProgressLine:
        """Return the line for the body."""
        running = ProgressLine(self.ascii_only)
        running.display = False
        return running

    def begin(self, what: str, limit_s: float, work: Coroutine[Any, Any, None]) -> None:
        """Wait for a child in a worker; it replaces one that runs."""
        running = self.query_one(ProgressLine)
        running.begin(what, limit_s)
        running.display = True
        self.run_worker(work, group=CHILD, exclusive=True)

    def child_done(self) -> None:
        """Hide the line: the child has answered or was cancelled."""
        running = self.query_one(ProgressLine)
        running.end()
        running.display = False

    def cancel_running(self) -> bool:
        cancelled = super().cancel_running()
        if cancelled:
            self.child_done()
        return cancelled

    async def action_back(self) -> None:
        if self.query_one(ProgressLine).display:
            self.workers.cancel_group(self, CHILD)
            self.child_done()
            self.show_status("Cancelled.")
        else:
            await super().action_back()
