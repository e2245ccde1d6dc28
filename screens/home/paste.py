"""A page to paste an error or a log into, to describe a problem, or to give the path of a log file."""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static, TextArea

from ...app.errors import UserError
from ..shell.base import WizardScreen
from ..shell.take_text import take_text


class PasteScreen(WizardScreen):
    """A text area; ctrl+d reads it into the case."""

    CSS_PATH = Path(__file__).with_name("paste.tcss")
    TITLE = "It crashed"
    AUTO_FOCUS = "TextArea"
    ABOUT = (
        "Paste the end of the log, the error alone, or the path of a log file; or describe what you see in a "
        "sentence. ctrl+d reads it. Nothing leaves this machine."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+d", "read", "read it", priority=True, id="paste.read", tooltip="Read the text"),
        Binding("ctrl+n", "ask", "no log, ask me", priority=True, id="paste.ask", tooltip="Continue with questions"),
        Binding("ctrl+l", "clear", "clear", priority=True, id="paste.clear", tooltip="Clear the text"),
    ]

    def body(self) -> Iterable[Widget]:
        yield Static("Paste the error, the log or its path; ctrl+d reads it.", classes="asked")
        area = TextArea(compact=True, highlight_cursor_line=False, id="text")
        area.cursor_blink = False
        yield area

    def on_mount(self) -> None:
        if self.state.has_case:
            self.state.record_navigation("paste")

    async def action_read(self) -> None:
        try:
            take_text(self.state, self.query_one(TextArea).text, "pasted text")
        except UserError as error:
            self.wizard.show_error(error)
            return
        await self.wizard.open("diagnosis")

    async def action_ask(self) -> None:
        await self.wizard.open("step")

    def action_clear(self) -> None:
        self.query_one(TextArea).clear()
