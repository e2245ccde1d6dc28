"""A page to paste an error or a log into, to describe a problem, or to give the path of a log or a script."""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static, TextArea

from ...app.diagnosis.given_text import classify_given
from ...app.diagnosis.symptoms import symptom_of
from ...app.errors import UserError
from ...app.system.path_completion import complete_path
from ...app.system.paths import relative_to_cwd
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import safe_content
from .given_text import GivenTextMixin

ORIGIN = "pasted text"


class PasteArea(TextArea):
    """A text area in which a single line may be a path: tab completes it, enter reads it."""

    class PathEntered(Message):
        """Enter was pressed on a line that is the path of a file."""

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter" and self._holds_path():
            event.prevent_default()
            event.stop()
            self.post_message(self.PathEntered())
        elif event.key == "tab" and "\n" not in self.text and (longer := complete_path(self.text)) != self.text:
            event.prevent_default()
            event.stop()
            self.text = longer
            self.move_cursor((0, len(longer)))
        else:
            await super()._on_key(event)

    def _holds_path(self) -> bool:
        try:
            return bool(self.text.strip()) and classify_given(self.text).kind in ("log", "script")
        except UserError:
            return True  # reading it reports the problem


class PasteScreen(GivenTextMixin):
    """A text area; ctrl+d reads it into the case."""

    CSS_PATH = Path(__file__).with_name("paste.tcss")
    TITLE = "Read an error or a log"
    AUTO_FOCUS = "TextArea"
    ABOUT = (
        "Paste the end of the log, or the error alone, and press ctrl+d. Or type the path of a log or of a script: tab "
        "completes it, and enter reads it. On an empty page tab goes to the list of recent logs. A description in your "
        "own words also works. Nothing leaves this machine."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+d", "read", "read it", priority=True, id="paste.read", tooltip="Read the text"),
        Binding("ctrl+n", "ask", "no log: ask me", priority=True, id="paste.ask", tooltip="Continue with questions"),
        Binding("ctrl+l", "clear", "clear", priority=True, id="paste.clear", tooltip="Clear the text"),
    ]

    def body(self) -> Iterable[Widget]:
        yield Static("Paste the error or the log and press ctrl+d; or type a path and press enter.", classes="asked")
        area = PasteArea(compact=True, highlight_cursor_line=False, id="text")
        area.cursor_blink = False
        yield area
        yield Static("Recent logs (tab)", classes="asked", id="recent-title")
        yield Choices(id="recent", verb="read")

    def on_mount(self) -> None:
        if self.state.has_case:
            if begun := symptom_of(self.state.case.answers):
                self.show_header(begun.label)
            self.state.record_navigation("paste")
        logs = self.state.recent_logs()
        self.query_one("#recent", Choices).set_items(
            [Choice(str(path), safe_content(relative_to_cwd(str(path)))) for path in logs]
        )
        for name in ("#recent-title", "#recent"):
            self.query_one(name).display = bool(logs)

    async def action_read(self) -> None:
        await self.take(self.query_one(TextArea).text, ORIGIN)

    @on(PasteArea.PathEntered)
    async def _path_entered(self) -> None:
        await self.action_read()

    @on(Choices.Picked, "#recent")
    async def _recent_picked(self, event: Choices.Picked) -> None:
        await self.take(event.id, ORIGIN)

    async def action_ask(self) -> None:
        await self.wizard.open("step")

    def action_clear(self) -> None:
        self.query_one(TextArea).clear()
