"""Rows of text that change while the user types; only changed rows are painted again."""

from collections.abc import Sequence

from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip

from ..widgets.base import BaseWidget
from ..widgets.segments import paint_line


class TextRows(BaseWidget):
    """Rows of text, as many as the style gives it height; rows that are too long are cut."""

    DEFAULT_CSS = "TextRows { width: 1fr; }"

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.rows: list[Content] = []

    def show(self, rows: Sequence[Content]) -> None:
        """Replace the rows."""
        before, self.rows = self.rows, list(rows)
        count = max(len(before), len(rows))
        same = [n < len(before) and n < len(rows) and before[n].is_same(rows[n]) for n in range(count)]
        if not all(same):
            self.refresh(*(Region(0, n, self.size.width, 1) for n in range(count) if not same[n]))

    def render_line(self, y: int) -> Strip:
        return paint_line(self, self.rows[y] if y < len(self.rows) else Content.empty())
