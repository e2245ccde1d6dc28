"""One key looks up the terms of the glossary in the text that a screen shows."""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.visual import VisualType
from textual.widget import Widget
from textual.widgets import Static

from ...app.diagnosis.term_text import terms_in_text
from ..shell.base import WizardScreen
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import safe_content
from ..widgets.term import term_content


class LookupMixin(WizardScreen):
    """A screen on which t lists the terms of its text."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "look_up", "terms", id="look-up", tooltip="Explain the terms of the field in this text"),
    ]

    def action_look_up(self) -> None:
        text = "\n".join(_plain_text(each.content) for each in self.query(Static) if each.display)
        names = terms_in_text(self.state.knowledge, text)
        if names:
            self.app.push_screen(TermsScreen(names))
        else:
            self.show_status("No term of the glossary is in this text.")


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
        with VerticalScroll(id="term"):
            yield Static(id="text")

    def on_mount(self) -> None:
        self._show()

    @on(Choices.Marked)
    def _show(self) -> None:
        if marked := self.query_one("#terms", Choices).marked:
            self.query_one("#text", Static).update(term_content(marked.id, self.state.knowledge))

    @on(Choices.Picked)
    async def _picked(self, event: Choices.Picked) -> None:
        await self.wizard.open("browse", words=event.id)


def _plain_text(content: VisualType) -> str:
    return content.plain if isinstance(content, Content) else str(content)
