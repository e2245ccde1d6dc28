"""A page of text on top of the current screen: help, reasons, stacks, one rank."""

from collections.abc import Iterable
from pathlib import Path

from textual import events
from textual.content import Content
from textual.widget import Widget

from ..shell.base import WizardScreen
from ..widgets.long_text import LongText

MARGINS = 4  # padding and the scroll bar
LEAST_WIDTH = 30


class ScrollingPage(WizardScreen):
    """Text that scrolls, rendered for the current width. A subclass implements ``heading`` and ``page``."""

    CSS_PATH = Path(__file__).with_name("page.tcss")  # absolute, as subclasses are in other folders
    AUTO_FOCUS = "LongText"

    def heading(self) -> tuple[str, str]:
        """Return the title and the text to its right."""
        raise NotImplementedError

    def page(self, width: int) -> Content:
        """Return the text in lines of at most ``width`` columns."""
        raise NotImplementedError

    @property
    def page_width(self) -> int:
        return max(LEAST_WIDTH, self.size.width - MARGINS)

    def body(self) -> Iterable[Widget]:
        yield LongText()

    def on_mount(self) -> None:
        self.redraw()

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self.redraw()

    def redraw(self) -> None:
        """Show the current heading and page."""
        self.show_header(*self.heading())
        self.query_one(LongText).show(self.page(self.page_width), stay=True)

    def show_from_top(self) -> None:
        """Show the current page from its first line."""
        self.redraw()
        self.query_one(LongText).scroll_home(animate=False)


class TextDialog(ScrollingPage):
    """A page of fixed text."""

    ABOUT = "A page to read. The arrow keys scroll it; escape closes it."

    def __init__(self, title: str, content: Content, facts: str = "") -> None:
        super().__init__()
        self.title, self._content, self._facts = title, content, facts

    def heading(self) -> tuple[str, str]:
        return self.title or "", ", ".join(filter(None, [self._facts, "esc leaves"]))

    def page(self, width: int) -> Content:
        return self._content
