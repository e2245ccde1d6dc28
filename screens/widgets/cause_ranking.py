"""The ranking of the causes, with the reasons for the first."""

from collections.abc import Sequence

from textual.content import Content

from ...app.evidence import Diagnosis, RankedCause, ReasonLine
from ...app.system.paths import relative_to_cwd
from .base import BaseWidget
from .formatting import join_lines, probability_cell, safe_content, share_bar, truncate_middle

BAR_WIDTH = 6
BAR_FROM = 36  # columns from which titles leave room for a bar
SHOWN_CAUSES = 4
SHOWN_REASONS = 4
LEAST_REASONS = 3  # rows of reasons: fewer causes are shown to have room for them
SOURCE_WIDTH = 7
SOURCES = {"description": "words"}


class CauseRanking(BaseWidget):
    """Bars, titles and shares; then the reasons for the first."""

    DEFAULT_CSS = "CauseRanking { height: 1fr; width: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self._diagnosis: Diagnosis | None = None

    def show(self, diagnosis: Diagnosis) -> None:
        """Show a ranking."""
        if diagnosis != self._diagnosis:
            self._diagnosis = diagnosis
            self.refresh()

    def render(self) -> Content:
        diagnosis, width = self._diagnosis, self.size.width
        if diagnosis is None:
            return Content("")
        named = diagnosis.named(SHOWN_CAUSES)
        if not named:
            return join_lines(
                Content.styled("Most likely", "bold"),
                *safe_content("No evidence yet. Each answer updates this list.", "$muted").wrap(max(8, width)),
            )
        reasons = [row for reason in named[0].because[:SHOWN_REASONS] for row in reason_rows(reason, width)]
        least = min(len(reasons), LEAST_REASONS)
        fitting = [_causes(diagnosis, named[:count], width) for count in range(len(named), 0, -1)]
        rows = next((rows for rows in fitting if len(rows) + least + 2 <= self.size.height), fitting[-1])
        room = max(1, self.size.height - len(rows) - 2)
        gap = [Content("")] if room > len(reasons) else []
        if len(reasons) > room:
            reasons = [*reasons[: room - 1], Content.styled("… d shows all", "$muted")]
        return join_lines(
            Content.styled("Most likely", "bold"), *rows, *gap, Content.styled("Because", "bold"), *reasons
        )


def _causes(diagnosis: Diagnosis, named: Sequence[RankedCause], width: int) -> list[Content]:
    """Render causes, and the probability of all others."""
    rows = [row for cause in named for row in _rows(cause.confidence, cause.title, width, "$accent")]
    return rows + _rows(diagnosis.rest(named), "something else", width, "$muted")


def reason_rows(reason: ReasonLine, width: int, most: int = 2) -> list[Content]:
    """Render a reason: its source, the observation (at most ``most`` rows), and its place."""
    room = max(12, width - SOURCE_WIDTH)
    what = safe_content(reason.what).wrap(room)
    shown = what[:most]
    if len(what) > most:
        shown[-1] = Content.assemble(shown[-1].truncate(room - 1), "…")
    if reason.where:
        shown.append(safe_content(truncate_middle(relative_to_cwd(reason.where), room), "$muted"))
    source = SOURCES.get(reason.source, reason.source)
    heads = [safe_content(source.ljust(SOURCE_WIDTH), "$muted"), *[Content(" " * SOURCE_WIDTH)] * (len(shown) - 1)]
    return [Content.assemble(head, row) for head, row in zip(heads, shown, strict=True)]


def _rows(share: float, title: str, width: int, style: str) -> list[Content]:
    """Render a cause: share, bar if there is room, title (wrapped if long)."""
    bar = f"{share_bar(share, BAR_WIDTH)} " if width >= BAR_FROM else ""
    figure = f"{probability_cell(share)} "
    lead = len(bar) + len(figure)
    first, *more = safe_content(title).wrap(max(8, width - lead))
    head = Content.assemble((bar, style), (figure, "bold"), first)
    return [head, *(Content.assemble(" " * lead, row) for row in more)]
