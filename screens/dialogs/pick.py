"""A short list to choose from; dismisses with the id of the row, or None."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from textual import on
from textual.widget import Widget

from ..shell.base import WizardScreen
from ..widgets.choices import Choice, Choices


class PickDialog(WizardScreen):
    """Choose one row, or leave with escape."""

    CSS_PATH = Path(__file__).with_name("pick.tcss")
    TITLE = "Choose"
    ABOUT = "Choose by number or with enter. Escape cancels."

    def __init__(self, title: str, rows: Sequence[Choice]) -> None:
        super().__init__()
        self._title, self._rows = title, rows

    def body(self) -> Iterable[Widget]:
        yield Choices(self._rows, verb="choose")

    def on_mount(self) -> None:
        self.show_header(self._title)
        if not self._rows:
            self.show_status("Nothing to choose from. esc goes back.")

    async def action_back(self) -> None:
        self.dismiss(None)

    @on(Choices.Picked)
    def _picked(self, event: Choices.Picked) -> None:
        self.dismiss(event.id)
