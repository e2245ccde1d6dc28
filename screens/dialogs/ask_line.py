"""A question that is answered with one line of text. Dismisses with the line, or None on escape."""

from collections.abc import Iterable
from pathlib import Path

from textual import on
from textual.widget import Widget
from textual.widgets import Input, Static

from ..shell.base import WizardScreen
from ..widgets.formatting import safe_content
from ..widgets.line_input import LineInput

NOTHING_TYPED = "The line is empty: type it, or press esc to cancel."


class AskLineDialog(WizardScreen):
    """Ask for one line; enter gives it, escape leaves."""

    CSS_PATH = Path(__file__).with_name("ask_line.tcss")
    TITLE = "Question"
    ABOUT = "Type the line and press enter. Escape cancels."
    AUTO_FOCUS = "#line"

    def __init__(self, question: str, *, details: str = "", value: str = "", placeholder: str = "") -> None:
        super().__init__()
        self._question, self._details = question, details
        self._value, self._placeholder = value, placeholder

    def body(self) -> Iterable[Widget]:
        yield Static(safe_content(self._question, "bold"), classes="asked")
        if self._details:
            yield Static(safe_content(self._details), classes="asked")
        yield LineInput(value=self._value, placeholder=self._placeholder, closes=True, id="line")

    @on(Input.Submitted, "#line")
    def _given(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self.dismiss(event.value.strip())
        else:
            self.show_status(NOTHING_TYPED)

    async def action_back(self) -> None:
        self.dismiss(None)
