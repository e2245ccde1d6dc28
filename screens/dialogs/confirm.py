"""A yes/no question before something is done. No is marked first."""

from collections.abc import Iterable
from pathlib import Path

from textual import on
from textual.widget import Widget
from textual.widgets import Static

from ..shell.base import WizardScreen
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import safe_content


class ConfirmDialog(WizardScreen):
    """Ask for confirmation. Dismisses with True for yes; escape is no."""

    CSS_PATH = Path(__file__).with_name("confirm.tcss")
    TITLE = "Confirm"
    ABOUT = "Nothing has been done yet. Choose, or cancel with escape."

    def __init__(self, question: str, *, yes: str, details: str = "") -> None:
        super().__init__()
        self._question, self._yes, self._details = question, yes, details

    def body(self) -> Iterable[Widget]:
        yield Static(safe_content(self._question, "bold"), classes="asked")
        if self._details:
            yield Static(safe_content(self._details), classes="asked")
        yield Choices([Choice("no", "No"), Choice("yes", self._yes)], verb="choose")

    @on(Choices.Picked)
    def _picked(self, event: Choices.Picked) -> None:
        self.dismiss(event.id == "yes")

    async def action_back(self) -> None:
        self.dismiss(False)
