"""A one-line text input without border and blinking cursor; escape leaves it, the arrow keys may move a list."""

from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

from .choices import Choices


class LineInput(Input):
    """A line of text. ``moves``: the list that up and down move; ``closes``: escape closes the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "leave the line", show=False, id="line.leave", tooltip="Leave the line of text"),
        Binding("up", "move_list(-1)", "row above", show=False, id="line.up", tooltip="Go to the row above"),
        Binding("down", "move_list(1)", "row below", show=False, id="line.down", tooltip="Go to the row below"),
    ]
    DEFAULT_CSS = """
    LineInput, LineInput:focus, LineInput:ansi, LineInput:ansi:focus {
        height: 1; border: none; padding: 0; background: $background; color: $foreground;
    }
    LineInput > .input--placeholder { color: $muted; }
    LineInput > .input--cursor { background: $foreground; color: $background; }
    """

    class PastedLines(Message):
        """Several lines were pasted; they are passed on unchanged."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, *, moves: str = "", closes: bool = False, **arguments: Any) -> None:
        super().__init__(select_on_focus=False, compact=True, **arguments)
        self._moves, self._closes = moves, closes
        self.cursor_blink = False

    def on_mount(self) -> None:
        self.cursor_position = 0

    def on_focus(self) -> None:
        self.cursor_position = len(self.value)

    def on_blur(self) -> None:
        """Show the start of a text that is too long."""
        self.cursor_position = 0

    def _on_paste(self, event: events.Paste) -> None:
        lines = event.text.strip()
        if len(lines.splitlines()) > 1:
            self.post_message(self.PastedLines(event.text))
            event.stop()
            event.prevent_default()
            return
        event.text = lines  # Textual passes the event on to Input, which takes the first line

    def complete_path(self) -> bool:
        """Complete a path that is typed, and return whether it grew."""
        from ...app.system.path_completion import complete_path

        longer = complete_path(self.value) if self.value.strip() else self.value
        if longer == self.value:
            return False
        self.value = longer
        self.cursor_position = len(longer)
        return True

    async def action_leave(self) -> None:
        if self._closes:
            await self.screen.run_action("back")
        else:
            self.screen.query(Choices).first().focus()

    def action_move_list(self, by: int) -> None:
        if self._moves:
            self.screen.query_one(self._moves, Choices).action_move(by)
