"""A list to choose from. An arrow key repaints two rows, not the whole list, to save bytes over SSH."""

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import zip_longest
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content, Span
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.style import Style

from .base import BaseWidget
from .segments import segments
from .wrapping import Wrapped, wrap_indented, wrap_later

NOTE_GAP = 2
TYPING_S = 1.0  # between the digits of one number
DIGITS = 10  # rows that a digit picks: 1 to 9, and 0 for the tenth


class Choice:
    """One item, on several rows if it is long. ``note`` is shown to the right of the label if there is room.

    A label may be a function: such an item is one row, rendered when it comes into view. ``key`` is a key of the
    screen that chooses the item, shown in place of a number. ``indent``: the column of the further rows of a label.
    """

    def __init__(
        self,
        id_: str,
        label: Content | str | Callable[[], Content],
        note: Content | str = "",
        key: str = "",
        indent: int = 0,
    ) -> None:
        self.id, self.key, self.indent = id_, key, indent
        self._label = label
        self.note = Content(note) if isinstance(note, str) else note

    @property
    def is_one_row(self) -> bool:
        """True if the item is known to be one row before its label is rendered."""
        return callable(self._label)

    @cached_property
    def label(self) -> Content:
        """The rendered label."""
        made = self._label() if callable(self._label) else self._label
        return Content(made) if isinstance(made, str) else made


class Choices(BaseWidget, can_focus=True):
    """Rows with a marker. If they are numbered, a digit picks a row; else a number marks the row with this id."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False, id="list.up", tooltip="Go to the row above"),
        Binding("down,j", "move(1)", "Down", show=False, id="list.down", tooltip="Go to the row below"),
        Binding("pageup", "page(-1)", "Page up", show=False, id="list.page-up", tooltip="Go up by a screenful"),
        Binding("pagedown", "page(1)", "Page down", show=False, id="list.page-down", tooltip="Go down a screenful"),
        Binding("home", "move(-100000)", "First", show=False, id="list.first", tooltip="Go to the first row"),
        Binding("end", "move(100000)", "Last", show=False, id="list.last", tooltip="Go to the last row"),
        Binding("enter", "pick", "Choose", show=False, id="list.pick", tooltip="Choose the marked row"),
        *(
            Binding(
                str(n % 10),
                f"digit({n})",
                f"Choose {n}",
                show=False,
                id=f"list.pick-{n}",
                tooltip=f"Choose row {n} at once",
            )
            for n in range(1, DIGITS + 1)
        ),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {"choices--marker", "choices--number", "choices--marked"}
    DEFAULT_CSS = """
    Choices { height: auto; width: 1fr; }
    Choices .choices--marker { color: $accent; text-style: bold; }
    Choices .choices--number { color: $muted; }
    Choices .choices--marked { text-style: bold; }
    """

    highlighted: reactive[int] = reactive(0, repaint=False)

    class RowMessage(Message):
        """A message about one row."""

        def __init__(self, choices: "Choices", id_: str) -> None:
            super().__init__()
            self.choices, self.id = choices, id_

        @property
        def control(self) -> "Choices":
            return self.choices

    class Picked(RowMessage):
        """A row was chosen."""

    class Marked(RowMessage):
        """The marker moved to another row."""

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, Choices.Marked)

    def __init__(
        self,
        items: Sequence[Choice] = (),
        *,
        numbered: bool = True,
        verb: str = "choose",
        id: str | None = None,
        note_column: int = 0,
    ) -> None:
        super().__init__(id=id)
        self.items = list(items)
        self.numbered, self.verb, self.note_column = numbered, verb, note_column
        self.top = 0
        self._typed, self._typed_at = "", 0.0  # a number, and the time of its last digit
        self._rows: list[tuple[int, int]] = []  # item and line within the item of each row
        self._lines: dict[int, list[Content]] = {}  # rendered lines by item, once they come into view
        self._wrapping: list[Wrapped] = []  # of each item
        self._made_for = (-1, -1)  # width, version
        self._version = 0

    @property
    def marked(self) -> Choice | None:
        """The marked row, or None."""
        return self.items[self.highlighted] if 0 <= self.highlighted < len(self.items) else None

    def set_items(self, items: Sequence[Choice], *, first: bool = False) -> None:
        """Show other rows. Marker and scroll position stay if the marked id is still there.

        ``first``: mark the first row instead.
        """
        before, count = self._in_view(), len(self._all_rows())
        stay = self.marked.id if self.marked and not first else ""
        if bool(items) != bool(self.items) and self.is_attached:
            self.screen.query("Footer").refresh()  # it offers to choose a row
        self.items = list(items)
        self._version += 1
        at = next((n for n, item in enumerate(self.items) if item.id == stay), None)
        self.set_reactive(Choices.highlighted, at or 0)
        if at is None:
            self.top = 0
        self._scroll_into_view()
        grows = self.styles.height is None or self.styles.height.is_auto
        if not before or (grows and len(self._all_rows()) != count):
            self.refresh(layout=grows)
            return
        changed = [y for y, (old, new) in enumerate(zip_longest(before, self._in_view())) if old != new]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def mark(self, id_: str) -> None:
        """Mark the row with an id, if there is one."""
        if (at := next((n for n, item in enumerate(self.items) if item.id == id_), None)) is not None:
            self.highlighted = at

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, len(self._all_rows(width)))

    # -- keys

    def action_move(self, by: int) -> None:
        self.highlighted = max(0, min(len(self.items) - 1, self.highlighted + by))

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.size.height - 1))

    def action_pick(self) -> None:
        if self.marked:
            self.post_message(self.Picked(self, self.marked.id))

    def action_digit(self, number: int) -> None:
        if not self.numbered:
            self._go_to_number(str(number % 10))
        elif number <= len(self.items):
            self.highlighted = number - 1
            self.action_pick()

    def _go_to_number(self, digit: str) -> None:
        """Mark the row whose id is the number that is typed, a digit at a time."""
        ids = [item.id for item in self.items]
        before = self._typed if time.monotonic() - self._typed_at < TYPING_S else ""
        self._typed = before + digit if before + digit in ids else digit
        self._typed_at = time.monotonic()
        if self._typed in ids:
            self.highlighted = ids.index(self._typed)
            self._scroll_to_top()

    def on_click(self, event: events.Click) -> None:
        row = self.top + event.y
        if row < len(self._rows):
            self.highlighted = self._rows[row][0]
            self.action_pick()

    def on_mouse_scroll_down(self) -> None:
        self.action_move(1)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-1)

    def on_focus(self) -> None:
        self._refresh_rows(self.highlighted)

    def on_blur(self) -> None:
        self._refresh_rows(self.highlighted)

    def on_resize(self) -> None:
        before, self.top = self.top, 0  # show as many rows from the top as fit now
        self._scroll_into_view()
        if self.top != before:
            self.refresh()

    def watch_highlighted(self, old: int, new: int) -> None:
        if old == new or not self.items:
            return
        if self._scroll_into_view():
            self.refresh()
        else:
            self._refresh_rows(old, new)
        if self.marked:
            self.post_message(self.Marked(self, self.marked.id))

    # -- painting

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        base = self.visual_style
        rows = self._all_rows()
        row = self.top + y
        if row >= len(rows):
            return Strip.blank(width, base.rich_style)
        item, line = rows[row]
        marked = item == self.highlighted
        lead = self._row_prefix(item, not line, marked, base)
        if marked and self.has_focus:
            base = base + self.get_visual_style("choices--marked", partial=True)
        pieces = [*lead, *segments(self._wrapped(item)[line], base, self.app.theme_variables)]
        strip = Strip(pieces).extend_cell_length(width, base.rich_style).crop(0, width)
        if hidden := self._hidden_beyond(y):
            strip = self._with_sign(strip, hidden, (base + self.get_visual_style("choices--number", partial=True)))
        return strip.simplify()

    def _with_sign(self, strip: Strip, hidden: str, style: Style) -> Strip:
        """Return the row with the sign at its end, or with its arrow in front if the row has no room; text is kept."""
        width = strip.cell_length
        for text, start in ((f" {hidden}", width - len(hidden) - 1), (hidden[0], 0)):
            end = start + len(text)
            if start >= 0 and not strip.crop(start, end).text.strip():
                sign = Strip([Segment(text, style.rich_style)])
                return Strip.join([strip.crop(0, start), sign, strip.crop(end, width)])
        return strip

    def _hidden_beyond(self, y: int) -> str:
        """Return the sign at the end of the first or last row in view: how many items are hidden beyond it, or ""."""
        rows, end = self._all_rows(), self.top + self.size.height
        if y == self.size.height - 1 and end < len(rows):
            below = sum(line == 0 for _, line in rows[end:])
            return f"↓ {below} more" if below else "↓"
        if y == 0 and self.top > 0:
            above = rows[self.top][0]
            return f"↑ {above} more" if above else "↑"
        return ""

    def _row_prefix(self, item: int, first: bool, marked: bool, base: Style) -> list[Segment]:
        def styled(name: str) -> RichStyle:
            return (base + self.get_visual_style(name, partial=True)).rich_style

        number = f"{self._key_of(item) if first else ' '}  " if self.numbered else ""
        if not (first and marked):
            return [Segment("  " + number, styled("choices--number"))]  # one piece: fewer bytes
        lead = [Segment("▸ ", styled("choices--marker" if self.has_focus else "choices--number"))]
        if number:
            lead.append(Segment(number, styled("choices--number")))
        return lead

    def _key_of(self, item: int) -> str:
        """Return the key that chooses an item at once, or a space."""
        return self.items[item].key or (str((item + 1) % 10) if item < DIGITS else " ")

    def _all_rows(self, width: int = 0) -> list[tuple[int, int]]:
        width = width or self.size.width or 40
        if self._made_for != (width, self._version):
            self._made_for, self._lines = (width, self._version), {}
            room = max(8, width - 2 - 3 * self.numbered)
            self._wrapping = [self._wrap(item, room) for item in self.items]
            self._rows = [(n, line) for n, each in enumerate(self._wrapping) for line in range(each.height)]
        return self._rows

    def _wrapped(self, item: int) -> list[Content]:
        """Return the rendered lines of an item."""
        if item not in self._lines:
            self._lines[item] = self._wrapping[item].render()
        return self._lines[item]

    def _in_view(self) -> list[tuple[int, int, bool, str, list[Span]]]:
        """Return the content of the rows in view."""
        shown = self._all_rows()[self.top : self.top + self.size.height]
        lines = [(item, line, item == self.highlighted, self._wrapped(item)[line]) for item, line in shown]
        return [(item, line, marked, content.plain, list(content.spans)) for item, line, marked, content in lines]

    def _wrap(self, item: Choice, room: int) -> Wrapped:
        if not item.note:
            return Wrapped(1, lambda: [item.label]) if item.is_one_row else wrap_indented(item.label, room, item.indent)
        column = max(self.note_column, item.label.cell_length + NOTE_GAP)
        if column + item.note.cell_length <= room:
            gap = column - item.label.cell_length
            return Wrapped(1, lambda: [Content.assemble(item.label.pad_right(gap), item.note)])
        label, note = wrap_later(item.label, room), wrap_later(item.note, room)
        return Wrapped(label.height + note.height, lambda: [*label.render(), *note.render()])

    def _scroll_into_view(self) -> bool:
        """Scroll so that the marked rows are visible, and return whether it scrolled."""
        if not (height := self.size.height):
            return False
        of_item = [y for y, (item, _) in enumerate(self._all_rows()) if item == self.highlighted]
        if not of_item:
            return False
        before = self.top
        self.top = max(min(self.top, of_item[0]), of_item[-1] - height + 1, 0)
        self.top = max(0, min(self.top, len(self._rows) - height))
        return self.top != before

    def _scroll_to_top(self) -> None:
        """Scroll so that the marked row is the first in view, as far as there are rows after it."""
        first = next(y for y, (item, _) in enumerate(self._all_rows()) if item == self.highlighted)
        top = max(0, min(first, len(self._rows) - self.size.height))
        if top != self.top:
            self.top = top
            self.refresh()

    def _refresh_rows(self, *items: int) -> None:
        if not (width := self.size.width):
            return  # the first layout paints all rows
        regions = [
            Region(0, y - self.top, width, 1)
            for y, (item, _) in enumerate(self._all_rows())
            if item in items and 0 <= y - self.top < self.size.height
        ]
        if regions:
            self.refresh(*regions)
