"""A list to choose from. It repaints two rows for an arrow key, not itself: over SSH that is the difference."""

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.markup import parse_style
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.style import Style

from .leaf import Leaf

NOTE_GAP = 2


class Choice:
    """One row, or several where it is long. ``note`` stands to the right of the label where there is room."""

    def __init__(self, id_: str, label: Content | str, note: Content | str = "") -> None:
        self.id = id_
        self.label = Content(label) if isinstance(label, str) else label
        self.note = Content(note) if isinstance(note, str) else note

    def is_same(self, other: "Choice") -> bool:
        """Whether it looks the same."""
        return self.id == other.id and self.label.is_same(other.label) and self.note.is_same(other.note)


class Choices(Leaf, can_focus=True):
    """Rows with a marker; digits pick where they are numbered."""

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
                str(n), f"digit({n})", f"Choose {n}", show=False, id=f"list.pick-{n}", tooltip=f"Choose row {n} at once"
            )
            for n in range(1, 10)
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

    class OfRow(Message):
        """Something happened to a row."""

        def __init__(self, choices: "Choices", id_: str) -> None:
            super().__init__()
            self.choices, self.id = choices, id_

        @property
        def control(self) -> "Choices":
            return self.choices

    class Picked(OfRow):
        """A row was chosen."""

    class Marked(OfRow):
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
        self._rows: list[tuple[int, Content]] = []
        self._rows_for: tuple[int, int] = (-1, -1)
        self._version = 0

    @property
    def marked(self) -> Choice | None:
        """The row the marker stands on."""
        return self.items[self.highlighted] if 0 <= self.highlighted < len(self.items) else None

    def set_items(self, items: Sequence[Choice], *, first: bool = False) -> None:
        """Show other rows; the marker stays on the same id, and the window where it is, where that is still there.
        With ``first`` the marker goes to the first row, whatever that is."""
        before, items = self.items, list(items)
        changed = [n for n, item in enumerate(items) if n >= len(before) or not item.is_same(before[n])]
        if not changed and len(items) == len(before):
            return
        stay = self.marked.id if self.marked and not first else ""
        rows = [n for n, _ in self._all_rows()]
        self.items = items
        self._version += 1
        at = next((n for n, item in enumerate(items) if item.id == stay), 0)
        same_place = bool(before) and at == self.highlighted and [n for n, _ in self._all_rows()] == rows
        self.set_reactive(Choices.highlighted, at)
        if same_place:
            self._refresh_rows(*changed)
            return
        if not any(item.id == stay for item in items):
            self.top = 0
        self._scroll_into_view()
        grows = self.styles.height is None or self.styles.height.is_auto
        self.refresh(layout=grows and (len(self._all_rows()) != len(rows) or not rows))

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
        if self.numbered and number <= len(self.items):
            self.highlighted = number - 1
            self.action_pick()

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
        before, self.top = self.top, 0  # with more room than before, more rows from the first on
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
        item, content = rows[row]
        first = row == 0 or rows[row - 1][0] != item
        marked = item == self.highlighted
        segments = self._lead(item, first, marked, base)
        if marked and self.has_focus:
            base = base + self.get_visual_style("choices--marked", partial=True)
        variables = self.app.theme_variables
        for piece, style in content.render(base, end="", parse_style=lambda s: _parse(s, variables)):
            segments.append(Segment(piece, (base + style).rich_style))
        return Strip(segments).extend_cell_length(width, base.rich_style).crop(0, width).simplify()

    def _lead(self, item: int, first: bool, marked: bool, base: Style) -> list[Segment]:
        def styled(name: str) -> RichStyle:
            return (base + self.get_visual_style(name, partial=True)).rich_style

        number = "" if not self.numbered else f"{item + 1}  " if first and item < 9 else "   "
        if not (first and marked):
            return [Segment("  " + number, styled("choices--number"))]  # one piece: fewer bytes
        lead = [Segment("▸ ", styled("choices--marker" if self.has_focus else "choices--number"))]
        if number:
            lead.append(Segment(number, styled("choices--number")))
        return lead

    def _all_rows(self, width: int = 0) -> list[tuple[int, Content]]:
        width = width or self.size.width or 40
        if self._rows_for != (width, self._version):
            room = max(8, width - 2 - 3 * self.numbered)
            self._rows = [(n, row) for n, item in enumerate(self.items) for row in self._wrap(item, room)]
            self._rows_for = (width, self._version)
        return self._rows

    def _wrap(self, item: Choice, room: int) -> list[Content]:
        if not item.note:
            return [item.label] if _is_short(item.label, room) else item.label.wrap(room)
        column = max(self.note_column, item.label.cell_length + NOTE_GAP)
        if column + item.note.cell_length <= room:
            return [Content.assemble(item.label.pad_right(column - item.label.cell_length), item.note)]
        return [*item.label.wrap(room), *item.note.wrap(room)]

    def _scroll_into_view(self) -> bool:
        """Move the window so that the marked rows are in it; whether it moved."""
        height = self.size.height
        of_item = [y for y, (item, _) in enumerate(self._all_rows()) if item == self.highlighted]
        if not of_item or not height:
            return False
        before = self.top
        self.top = max(min(self.top, of_item[0]), of_item[-1] - height + 1, 0)
        self.top = max(0, min(self.top, len(self._rows) - height))
        return self.top != before

    def _refresh_rows(self, *items: int) -> None:
        width = self.size.width
        regions = [
            Region(0, y - self.top, width, 1)
            for y, (item, _) in enumerate(self._all_rows())
            if item in items and 0 <= y - self.top < self.size.height
        ]
        if regions:
            self.refresh(*regions)


def _is_short(label: Content, room: int) -> bool:
    return "\n" not in label.plain and label.cell_length <= room


_STYLES: dict[tuple[str, int], Style] = {}


def _parse(style: str | Style, variables: dict[str, str]) -> Style:
    if isinstance(style, Style):
        return style
    key = (style, id(variables))
    if key not in _STYLES:
        _STYLES[key] = parse_style(style, variables)
    return _STYLES[key]
