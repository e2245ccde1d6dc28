"""A text that is scrolled, and says how many of its lines are out of view."""

from textual.geometry import Size
from textual.message import Message

from .long_text import LongText


class ScrolledText(LongText):
    """Posts ``Moved`` after each change of what is in view."""

    class Moved(Message):
        """The text was scrolled, or it or its view has another size."""

    @property
    def lines_above(self) -> int:
        """The number of lines above those that are shown."""
        return self.scroll_offset.y

    @property
    def lines_below(self) -> int:
        """The number of lines below those that are shown."""
        return max(0, self.max_scroll_y - self.scroll_offset.y)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._moved()

    def watch_virtual_size(self, _virtual_size: Size) -> None:
        self._moved()

    def on_resize(self) -> None:
        super().on_resize()
        self._moved()

    def _moved(self) -> None:
        self.call_after_refresh(self.post_message, self.Moved())  # Textual sets the size of the view after the text's
