"""The planner's form: text fields and fields with a choice of words, on two pages."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from textual import events, on
from textual.binding import Binding, BindingType
from textual.containers import Container, Grid
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import Reactive
from textual.widget import Widget
from textual.widgets import Input, Static

from ...app.plan.form_fields import ALL, NAMES, PAGES
from ..widgets.base import BaseWidget
from ..widgets.choices import Choices
from ..widgets.formatting import safe_content
from ..widgets.line_input import LineInput

LIST = "#strategies"  # moved by up and down while a field has the focus
NEXT_WORD = Binding("space,right,pagedown", "take(1)", "next word", id="one-of.next", tooltip="Take the next word")


class ChoiceField(BaseWidget, can_focus=True):
    """A choice of words; space takes another, backspace restores the default, which is empty."""

    BINDINGS: ClassVar[list[BindingType]] = [
        NEXT_WORD,
        Binding("left,pageup", "take(-1)", "before", show=False, id="one-of.before", tooltip="Take the word before"),
        Binding("up", "move_list(-1)", "row above", show=False, id="one-of.up", tooltip="Go to the row above"),
        Binding("down", "move_list(1)", "row below", show=False, id="one-of.down", tooltip="Go to the row below"),
        Binding("backspace,delete", "reset", "default", show=False, id="one-of.reset", tooltip="Take the default"),
        Binding("escape,enter", "leave", "to the list", show=False, id="one-of.leave", tooltip="Go to the list"),
    ]
    DEFAULT_CSS = "ChoiceField { height: 1; width: 1fr; } ChoiceField:focus { text-style: bold; }"

    class Changed(Message):
        """Another word was taken."""

    def __init__(self, words: Sequence[str], value: str, id: str) -> None:
        super().__init__(id=id)
        self.words, self.value, self.placeholder = tuple(words), value, words[0]

    @property
    def shown(self) -> str:
        """Return the word that is taken, or the default."""
        return self.value or self.placeholder

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return 1

    def render(self) -> Content:
        word = safe_content(self.shown, "" if self.value else "$muted")
        return Content.assemble(("‹", "$accent"), word, ("›", "$accent")) if self.has_focus else word

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        self.action_take(1)

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Take letters for the words, so that they are no commands here, as in the text fields."""
        return bool(character) and character.isalnum()

    def on_key(self, event: events.Key) -> None:
        """Take the next word that begins with the letter."""
        letter = (event.character or "").lower()
        if not letter.isalnum():
            return
        event.stop()
        event.prevent_default()
        at = self._at() + 1
        found = next((word for word in (*self.words[at:], *self.words[:at]) if word.lower().startswith(letter)), "")
        if found and found != self.shown:
            self._set(found)

    def _at(self) -> int:
        return self.words.index(self.shown) if self.shown in self.words else 0

    def action_take(self, by: int) -> None:
        self._set(self.words[(self._at() + by) % len(self.words)])

    def action_reset(self) -> None:
        self._set("")

    def _set(self, word: str) -> None:
        self.value = word
        self.refresh()
        self.post_message(self.Changed())

    def action_move_list(self, by: int) -> None:
        self.screen.query_one(LIST, Choices).action_move(by)

    def action_leave(self) -> None:
        self.screen.query_one(LIST).focus()


class FieldInput(LineInput):
    """A line of text whose size does not depend on its content."""

    # Textual lays out the whole screen when a line of text grows; here that takes most of the time of a keystroke.
    virtual_size: Reactive[Size] = Reactive(Size(0, 0), layout=False)


class SuggestInput(FieldInput):
    """A text field with suggested names; page up and page down enter one of them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pagedown", "name(1)", "next name", show=False, id="known.next", tooltip="Write the next known name"),
        Binding("pageup", "name(-1)", "name before", show=False, id="known.before", tooltip="Write the name before"),
    ]

    def __init__(self, names: Sequence[str], value: str, id: str) -> None:
        super().__init__(value=value, id=id, moves=LIST)
        self.names = tuple(names)

    def action_name(self, by: int) -> None:
        begun = self.value.strip().lower()
        at = next((n for n, name in enumerate(self.names) if begun and name.lower() == begun), None)
        if at is None:  # the first that begins with the text
            at = next((n for n, name in enumerate(self.names) if begun and name.lower().startswith(begun)), 0)
        else:
            at = (at + by) % len(self.names)
        self.value = self.names[at]
        self.cursor_position = len(self.value)


class PlanForm(Container):
    """All fields; one page of them is shown."""

    class FieldChanged(Message):
        """A field has another value."""

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(id="form")
        self._first = dict(values)

    def compose(self) -> Iterable[Widget]:
        for id_, fields in PAGES.items():
            with Grid(id=id_, classes="page"):
                for name in fields:
                    yield Static(safe_content(ALL[name].label, "$muted"))
                    yield self._field(name)

    def on_mount(self) -> None:
        self.query_one("#more-fields").display = False

    def _field(self, name: str) -> Widget:
        field, value = ALL[name], self._first[name]
        if field.choices:
            return ChoiceField(field.choices, value, name)
        if name in NAMES:
            return SuggestInput(NAMES[name], value, name)
        return FieldInput(value=value, id=name, moves=LIST)

    def values(self) -> dict[str, str]:
        return {name: self._field_of(name).value.strip() for name in ALL}

    def set(self, name: str, value: str) -> None:
        field = self._field_of(name)
        field.value = value
        field.refresh()

    def show_placeholders(self, words: Mapping[str, str]) -> None:
        """Show the value of each empty field in grey."""
        for name, word in words.items():
            field = self._field_of(name)
            if field.placeholder != word:
                field.placeholder = word
                field.refresh()

    def toggle_page(self) -> None:
        """Show the other page, and focus its first field."""
        pages = [self.query_one("#usual"), self.query_one("#more-fields")]
        shown, hidden = pages if pages[0].display else reversed(pages)
        shown.display, hidden.display = False, True
        self._field_of(next(iter(PAGES[hidden.id or ""]))).focus()

    def _field_of(self, name: str) -> Input | ChoiceField:
        field = self.query_one(f"#{name}")
        assert isinstance(field, Input | ChoiceField)
        return field

    @on(Input.Changed)
    @on(ChoiceField.Changed)
    def _changed(self, event: Message) -> None:
        event.stop()
        self.post_message(self.FieldChanged())

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.screen.query_one(LIST).focus()
