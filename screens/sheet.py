"""A page of text over the present screen: help, reasons, stacks."""

from collections.abc import Iterable

from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from .base import WizardScreen


class Sheet(WizardScreen):
    """Text to read and leave."""

    CSS_PATH = "sheet.tcss"
    AUTO_FOCUS = "VerticalScroll"
    ABOUT = "A page to read. The arrow keys scroll it; escape leaves it."

    def __init__(self, title: str, content: Content, facts: str = "") -> None:
        super().__init__()
        self.title, self._content, self._facts = title, content, facts

    def body(self) -> Iterable[Widget]:
        with VerticalScroll():
            yield Static(self._content)

    def on_mount(self) -> None:
        self.head(self.title, ", ".join(filter(None, [self._facts, "esc leaves"])))
