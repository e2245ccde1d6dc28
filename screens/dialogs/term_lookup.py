"""One key looks up the terms of the glossary in the text that a screen shows."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.visual import VisualType
from textual.widget import Widget
from textual.widgets import Static

from ...app.diagnosis.term_text import terms_in_text
from ..shell.base import WizardScreen
from ..widgets.base import BaseWidget
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import safe_content
from ..widgets.header_footer import Footer
from ..widgets.long_text import LongText
from ..widgets.term import term_paragraphs


class LookupMixin(WizardScreen):
    """A screen of text, on which t does what f3 does on every screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "look_up", "terms", id="look-up", tooltip="Explain the terms of the field in this text"),
    ]


def show_terms(screen: WizardScreen) -> None:
    """List the terms of the glossary in the text of a screen."""
    names = terms_in_text(screen.state.knowledge, "\n".join(_texts(screen)))
    if names:
        screen.app.push_screen(TermsScreen(names))
    else:
        screen.show_status("No term of the glossary is in this text.")


def _texts(screen: WizardScreen) -> Iterator[str]:
    """Yield what the widgets of a screen show."""
    for widget in screen.query("*"):
        if not widget.display or isinstance(widget, Footer):
            continue
        if isinstance(widget, Choices):
            yield from (f"{item.label.plain} {item.note.plain}" for item in widget.items)
        elif isinstance(widget, Static):
            yield _plain_text(widget.content)
        elif isinstance(widget, LongText):
            yield widget.plain
        elif isinstance(widget, BaseWidget):
            yield "\n".join(strip.text for strip in widget.render_lines(widget.size.region))


class TermsScreen(WizardScreen):
    """The terms that a text has, with the text of the marked one; enter opens it in the knowledge base."""

    CSS_PATH = Path(__file__).with_name("term_lookup.tcss")
    TITLE = "Terms of this text"
    ABOUT = "The terms of the text, in the order in which they appear in it. Enter opens a term; escape goes back."

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self._names = names

    def body(self) -> Iterable[Widget]:
        yield Choices(
            [Choice(name, safe_content(name)) for name in self._names], numbered=False, verb="more", id="terms"
        )
        yield LongText(id="term")

    def on_mount(self) -> None:
        self._show()

    @on(Choices.Marked)
    def _show(self) -> None:
        if marked := self.query_one("#terms", Choices).marked:
            self.query_one("#term", LongText).show(*term_paragraphs(marked.id, self.state.knowledge))

    @on(Choices.Picked)
    async def _picked(self, event: Choices.Picked) -> None:
        await self.wizard.open("browse", words=event.id)


def _plain_text(content: VisualType) -> str:
    return content.plain if isinstance(content, Content) else str(content)
