"""A long text that is scrolled, of which only the lines in view are rendered."""

from collections.abc import Callable, Sequence
from functools import cache

from textual.content import Content, Span
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from .segments import segments
from .wrapping import wrap_later


class LongText(ScrollView):
    """Paragraphs; each begins on its own line and may have line breaks."""

    DEFAULT_CSS = "LongText { overflow-x: hidden; overflow-y: auto; scrollbar-gutter: stable; }"

    # A text of another length is painted where its lines differ; only a scroll bar that appears needs a layout.
    virtual_size: Reactive[Size] = Reactive(Size(0, 0), layout=False, repaint=False)

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._paragraphs: Sequence[Content] = ()
        self._rows: list[tuple[Callable[[], list[Content]], int]] = []  # the lines of its paragraph, and its place
        self._made_for = 0  # a width

    @property
    def plain(self) -> str:
        """The text, one paragraph on each line."""
        return "\n".join(each.plain for each in self._paragraphs)

    def show(self, *paragraphs: Content, stay: bool = False) -> None:
        """Show another text from its beginning; ``stay``: from the line that is the first in view now."""
        before = self._in_view()
        self._paragraphs, self._made_for = paragraphs, 0
        self._wrap()
        if not stay:
            self.scroll_home(animate=False)
        self._repaint(before)

    def _repaint(self, before: list[tuple[str, list[Span]]]) -> None:
        """Paint the rows that differ from those that were in view before."""
        after = self._in_view()
        changed = [y for y in range(self.size.height) if before[y : y + 1] != after[y : y + 1]]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def _in_view(self) -> list[tuple[str, list[Span]]]:
        """Return the content of the rows in view."""
        first = self.scroll_offset.y
        shown = (lines()[place] for lines, place in self._rows[first : first + self.size.height])
        return [(line.plain, list(line.spans)) for line in shown]

    def on_resize(self) -> None:
        before = self._in_view()
        self._wrap()
        self._repaint(before)

    def _wrap(self) -> None:
        if (width := self.scrollable_content_region.width) in (0, self._made_for):
            return
        self._made_for, self._rows = width, []
        for paragraph in (line for each in self._paragraphs for line in each.split("\n", allow_blank=True)):
            height, lines = wrap_later(paragraph, width)
            once = cache(lines)
            self._rows += [(once, place) for place in range(height)]
        self.virtual_size = Size(width, len(self._rows))
        self._scroll_update(self.virtual_size)

    def render_line(self, y: int) -> Strip:
        base, width = self.visual_style, self.scrollable_content_region.width
        row = self.scroll_offset.y + y
        if row >= len(self._rows):
            return Strip.blank(width, base.rich_style)
        lines, place = self._rows[row]
        strip = Strip(segments(lines()[place], base, self.app.theme_variables))
        return strip.extend_cell_length(width, base.rich_style).crop(0, width).simplify()
