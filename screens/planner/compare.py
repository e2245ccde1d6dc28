"""Two strategies side by side: each part of the peak, the step time, and the changes that each needs."""

from collections.abc import Callable
from typing import NamedTuple

from textual.content import Content

from ...app.plan.memory.peak import PEAK_WORDS
from ...app.plan.script_changes import required_changes
from ...app.plan.strategies.evaluate import rate_text
from ...app.plan.types import Candidate, PlanRow
from ...app.text.units import GIB, gib_number, round_seconds, seconds_text
from ..dialogs.page import ScrollingPage
from ..widgets.formatting import join_lines, safe_content
from . import table
from .breakdown import indent_lines, wrap_lines

LABEL_WIDTH, COLUMN_WIDTH, PAIR_BAR_WIDTH = 18, 14, 30
PER_GPU, PER_STEP = "total per GPU", "time per step"
OTHER_MOMENTS = "The peaks are in different phases. This alone can make a part larger in one of them."


class CompareScreen(ScrollingPage):
    """Two strategies side by side."""

    TITLE = "Side by side"
    ABOUT = "Two strategies, part by part, and the difference of the second from the first. The arrow keys scroll."

    def __init__(self, first: PlanRow, second: PlanRow) -> None:
        super().__init__()
        self._pair = (first, second)

    def heading(self) -> tuple[str, str]:
        return "Side by side", "esc leaves"

    def page(self, width: int) -> Content:
        return side_by_side(*self._pair, width, self.ascii_only)


class ComparisonRow(NamedTuple):
    """A row of the comparison: two numbers, None if not known; ``to_text`` formats and ``rounded`` rounds them."""

    label: str
    first: float | None
    second: float | None
    to_text: Callable[[float], str]
    rounded: Callable[[float], float]

    @property
    def cells(self) -> tuple[str, str, str]:
        texts = tuple("–" if value is None else self.to_text(value) for value in (self.first, self.second))
        if self.first is None or self.second is None:
            return texts[0], texts[1], ""
        differs = self.rounded(self.second) - self.rounded(self.first)
        sign = "+" if differs > 0 else "-"
        return texts[0], texts[1], "same" if texts[0] == texts[1] else sign + self.to_text(abs(differs))


NumberFormat = tuple[Callable[[float], str], Callable[[float], float]]  # formats and rounds a number alike
GIBS: NumberFormat = (lambda value: f"{gib_number(value)} GiB", lambda value: round(value / GIB, 1) * GIB)
TIMES: NumberFormat = (seconds_text, round_seconds)
WHOLE: NumberFormat = (lambda value: f"{value:,.0f}", round)
RATE: NumberFormat = (rate_text, lambda value: float(f"{value:.3g}"))


def side_by_side(first: PlanRow, second: PlanRow, width: int, ascii_only: bool) -> Content:
    column = max(10, min(COLUMN_WIDTH, (width - LABEL_WIDTH) // 3))
    shown: list[Content] = []
    for letter, row in (("1", first), ("2", second)):
        memory = (row.setting.gpu_memory_gib or 1) * GIB
        bar = table.memory_bar(row.candidate.breakdown, memory, PAIR_BAR_WIDTH, ascii_only)
        name = f"{letter}  {row.candidate.full_name}"
        room = width - PAIR_BAR_WIDTH - 1
        if len(name) <= room:
            shown.append(Content.assemble(safe_content(f"{name:<{room}} ", "bold"), *bar))
        else:
            shown += [safe_content(name, "bold"), Content.assemble("   ", *bar)]
    shown += [Content(""), _line("", ("1", "2", "difference"), column, "$muted")]
    moment, other = (PEAK_WORDS[row.candidate.peak_phase] for row in (first, second))
    for figure in comparison_rows(first, second):
        style = "bold" if figure.label in (PER_GPU, PER_STEP) else ""
        shown.append(_line(figure.label, figure.cells, column, style))
        if figure.label == PER_GPU:
            shown.append(_line("peak in", (moment, other, "same" if moment == other else ""), column, ""))
    if moment != other:
        shown += [line.stylize("$muted") for line in wrap_lines(OTHER_MOMENTS, width)]
    for letter, row in (("1", first), ("2", second)):
        shown += [Content(""), safe_content(f"{letter}  Changes for {row.candidate.full_name}", "bold")]
        shown += [line for change in required_changes(row.setting) for line in indent_lines(change, width)]
    return join_lines(*shown)


def comparison_rows(first: PlanRow, second: PlanRow) -> list[ComparisonRow]:

    def both(label: str, of: Callable[[Candidate], float | None], number_format: NumberFormat) -> ComparisonRow:
        return ComparisonRow(label, of(first.candidate), of(second.candidate), *number_format)

    parts = [
        both(part.name, lambda found, part=part: table.segment_bytes(found.breakdown, part), GIBS)
        for part in table.PARTS
    ]
    return [
        *(figure for figure in parts if figure.first or figure.second),
        both(PER_GPU, lambda found: found.device_used_bytes_per_gpu, GIBS),
        both(PER_STEP, lambda found: found.step_seconds, TIMES),
        both("waiting per step", lambda found: found.exposed_comm_seconds, TIMES),
        both("tokens per second", lambda found: found.tokens_per_s, RATE),
        both("sent per step", lambda found: found.comm_bytes_per_step, GIBS),
        both("host memory", lambda found: found.host_bytes, GIBS),
        both("max. micro-batch", lambda found: found.largest_micro_batch, WHOLE),
    ]


def _line(label: str, cells: tuple[str, str, str], column: int, style: str) -> Content:
    return safe_content(f"{label:<{LABEL_WIDTH}}" + "".join(f"{cell:>{column}}" for cell in cells), style)
