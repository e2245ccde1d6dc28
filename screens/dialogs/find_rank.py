"""Search of a list of ranks by number or text."""

from typing import ClassVar

from textual import events, on
from textual.binding import Binding, BindingType
from textual.widgets import Input

from ...app.text.numbers import parse_count
from ..shell.base import WizardScreen
from ..widgets.choices import Choices
from ..widgets.line_input import LineInput

FIND_FROM = 8  # with fewer ranks the list is as fast as a search


class FindRankMixin(WizardScreen):
    """``/`` opens the search line; the marker moves while one types. A screen implements ``row_of_rank``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "slash", "find", "find rank", id="ranks.find", tooltip="Find a rank by its number, or a row by its words"
        ),
    ]

    def row_of_rank(self, rank: int) -> int | None:
        """Return the row that holds a rank, or None."""
        raise NotImplementedError

    def find_line(self) -> LineInput:
        """Return the search line, closed at first."""
        return LineInput(placeholder="a rank's number, or words of a row", moves="Choices", id="find")

    def action_find(self) -> None:
        line = self.query_one("#find", LineInput)
        line.clear()
        line.add_class("-open")
        line.focus()

    @on(Input.Changed, "#find")
    def _find(self, event: Input.Changed) -> None:
        wanted, choices = event.value.strip(), self.query_one(Choices)
        if not wanted:
            return
        rank = parse_count(wanted)
        if rank is not None:
            row = self.row_of_rank(rank)
        else:
            rows = enumerate(choices.items)
            row = next((n for n, item in rows if wanted.lower() in item.label.plain.lower()), None)
        if row is None:
            self.show_status(f"Nothing here has {wanted}.")
        else:
            self.show_status("")
            choices.highlighted = row

    @on(Input.Submitted, "#find")
    def _found(self) -> None:
        self.query_one(Choices).focus()

    @on(events.DescendantBlur)
    def _close_find(self, event: events.DescendantBlur) -> None:
        if event.widget.id == "find":
            event.widget.remove_class("-open")
