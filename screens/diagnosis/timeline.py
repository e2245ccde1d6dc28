"""The timeline of a log: one row for each rank, time to the right; below, the events of the marked ranks."""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from ...app.logs import timeline_chart
from ...app.logs.types import Timeline, TimelineEvent
from ...app.system.paths import relative_to_cwd
from ...app.text.units import count_text
from ..shell.base import WizardScreen
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import join_lines, safe_content, truncate_middle
from ..widgets.source import excerpt

NAME_WIDTH = 16
MARGINS = 8
STYLES = {"X": "$error", "!": "$warning", "#": "$muted"}
EVENT_STYLE = {"error": "$error", "consequence": "$warning"}


class TimelineScreen(WizardScreen):
    """The chart of ranks over time."""

    CSS_PATH = Path(__file__).with_name("timeline.tcss")
    TITLE = "Timeline"
    ABOUT = (
        "Each row is a rank, or several ranks with the same events. Time runs to the right. X: the rank's own error; "
        "!: a consequence of another rank's error; ·: a training step; #: the end. The highlighted row failed first."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "attempt", "next attempt", id="timeline.attempt", tooltip="Show the job's next start"),
    ]

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self._timeline = timeline
        self._at = len(timeline.attempts) - 1
        self._rows: list[timeline_chart.ChartRow] = []

    def body(self) -> Iterable[Widget]:
        yield Static(id="verdict")
        yield Choices(verb="show")
        with VerticalScroll(id="detail"):
            yield Static(id="shown")

    def on_mount(self) -> None:
        self._show()

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self._show()

    def _show(self) -> None:
        attempt = self._timeline.attempts[self._at]
        self._rows = timeline_chart.chart_rows(
            self._timeline, attempt, max(20, self.app.size.width - NAME_WIDTH - MARGINS)
        )
        headline = timeline_chart.first_failure_sentence(self._timeline) or "Which rank failed first is not known."
        self.query_one("#verdict", Static).update(safe_content(headline, "bold"))
        items = [Choice(str(place), _line(row)) for place, row in enumerate(self._rows)]
        self.query_one(Choices).set_items(items)
        of = f"attempt {self._at + 1} of {len(self._timeline.attempts)} · " if len(self._timeline.attempts) > 1 else ""
        self.show_header(facts=of + count_text(len(attempt.tracks), "row"))
        self._show_marked()

    @on(Choices.Marked)
    def _marked(self) -> None:
        self._show_marked()

    def _show_marked(self) -> None:
        marked = self.query_one(Choices).marked
        if marked is None:
            return
        row = self._rows[int(marked.id)]
        track, width = row.track, self.app.size.width - MARGINS
        shown = [_event_row(event, width) for event in timeline_chart.visible_events(track)]
        self.query_one("#detail", VerticalScroll).scroll_home(animate=False)
        first = next((event for event in track.events if event.kind == "error"), track.last)
        self.query_one("#shown", Static).update(
            join_lines(
                safe_content(f"Events of {row.name}", "bold"), *shown, *excerpt(first.where, self.state.texts, width)
            )
        )

    def action_attempt(self) -> None:
        self._at = (self._at + 1) % len(self._timeline.attempts)
        self._show()


def _line(row: timeline_chart.ChartRow) -> Content:
    name = truncate_middle(row.name, NAME_WIDTH).ljust(NAME_WIDTH + 1)
    cells = Content.assemble(*(Content.styled(cell, STYLES.get(cell, "$muted")) for cell in row.cells))
    return Content.assemble(safe_content(name, "bold $accent" if row.highlighted else ""), cells)


def _event_row(event: TimelineEvent, width: int) -> Content:
    times = f" ×{event.count}" if event.count > 1 else ""
    sign = Content.styled(f"{timeline_chart.SIGNS[event.kind]} ", EVENT_STYLE.get(event.kind, "$muted"))
    where = safe_content(f"  {truncate_middle(relative_to_cwd(event.where), width // 3)}", "$muted")
    text = Content.assemble(sign, safe_content(event.text + times)).truncate(width - where.cell_length, ellipsis=True)
    return Content.assemble(text, where)
