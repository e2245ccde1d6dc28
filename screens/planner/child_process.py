"""A screen of the planner that at times waits for a child: its clock while it does, escape and ctrl+c to end it."""

from collections.abc import Coroutine
from typing import Any

from ..shell.base import WizardScreen
from ..widgets.progress_line import ProgressLine

CHILD = "child"  # the group of the worker that waits


class ChildProcessMixin(WizardScreen):
    """Its body holds ``running_line``, which takes no room while nothing runs."""

    def running_line(self) -> ProgressLine:
        """The line, for the body."""
        running = ProgressLine(self.ascii_only)
        running.display = False
        return running

    def begin(self, what: str, limit_s: float, work: Coroutine[Any, Any, None]) -> None:
        """Wait for a child beside the screen; it takes the place of one that runs."""
        running = self.query_one(ProgressLine)
        running.begin(what, limit_s)
        running.display = True
        self.run_worker(work, group=CHILD, exclusive=True)

    def ended(self) -> None:
        """It has answered, or was cancelled."""
        running = self.query_one(ProgressLine)
        running.end()
        running.display = False

    def cancel_running(self) -> bool:
        cancelled = super().cancel_running()
        if cancelled:
            self.ended()
        return cancelled

    async def action_back(self) -> None:
        if self.query_one(ProgressLine).display:
            self.workers.cancel_group(self, CHILD)
            self.ended()
            self.show_status("Cancelled.")
        else:
            await super().action_back()
