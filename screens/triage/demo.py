"""The demo: the triage screen on a real job that hangs."""

from textual import on
from textual.message import Message
from textual.widgets import Static

from ..widgets.progress_line import ProgressLine
from .triage import TriageScreen

DEMO_LIMIT_S = 60.0
NEEDS_JOB = ("sample", "pause", "ask")
WHAT_HAPPENS = """\
A real job of four processes starts here. It has a bug, and will hang.
In about 10 seconds this screen shows which rank, which line, and why.

Then: f shows the fix, v proves it by running the job again, a applies it.
"""


class DemoScreen(TriageScreen):
    """The triage screen of a job that the wizard starts."""

    TITLE = "Demo"

    class Started(Message):
        """The job of the demo was started."""

        def __init__(self, pid: int) -> None:
            super().__init__()
            self.pid = pid

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in NEEDS_JOB and self._pid is None:
            return False
        return super().check_action(action, parameters)

    def begin(self) -> None:
        self.query_one("#verdict", Static).update(WHAT_HAPPENS)
        self.query_one(ProgressLine).begin("starting a real four-process job that will hang", DEMO_LIMIT_S)
        self.wizard.start_demo()

    @on(Started)
    def _started(self, event: Started) -> None:
        self._pid = event.pid
        self.keys_changed()
        self.action_sample()
