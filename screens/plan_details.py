"""Why a strategy needs what it needs: the formula of each part of its peak; and two strategies side by side."""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, NamedTuple

from textual import events
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from ..app.plan.choice.search import Row
from ..app.plan.memory.formula import size
from ..app.plan.memory.terms import PHASES, terms
from ..app.plan.types import GIB, MIB, Candidate, Change
from . import plan_answers as answers
from . import plan_bars as bars
from .base import WizardScreen
from .plan_changes import changes
from .widgets.words import lines, text

MARGINS = 4
PART_WIDTH, SIZE_WIDTH = 13, 10
LABEL_WIDTH, COLUMN_WIDTH, PAIR_BAR_WIDTH = 18, 14, 30
INDENT = "  "
MOMENTS = {"loss": "the loss", "backward": "backward", "step": "the step"}
OTHER_MOMENTS = "The peaks are at different moments, so a part may be larger in one for that alone."
LEAST_BYTES = 0.05 * MIB  # of a change, to be told
TINY = 0.005  # of the peak rate: less is not shown as a number


class PlanTermsScreen(WizardScreen):
    """One strategy: its figures, each with the product it comes from."""

    CSS_PATH = "plan.tcss"
    TITLE = "Why these numbers"
    AUTO_FOCUS = "VerticalScroll"
    ABOUT = (
        "What is in the memory of one GPU at the peak, part for part, each with the product it is computed from. Below "
        "it the time of a step, and what would make the peak smaller. The arrow keys scroll."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "step(1)", "next strategy", id="terms.next", tooltip="Show the next strategy of the table"),
        Binding("b", "step(-1)", "one before", id="terms.before", tooltip="Show the strategy before this one"),
    ]

    def __init__(self, rows: Sequence[Row], at: int) -> None:
        super().__init__()
        self._rows, self._at = list(rows), at

    def body(self) -> Iterable[Widget]:
        with VerticalScroll():
            yield Static(id="page")

    def on_mount(self) -> None:
        self._show()

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self._show()

    def action_step(self, by: int) -> None:
        self._at = (self._at + by) % len(self._rows)
        self._show()
        self.query_one(VerticalScroll).scroll_home(animate=False)

    def _show(self) -> None:
        row = self._rows[self._at]
        gpus = row.setting.gpus
        title = f"{answers.name(row)} on {gpus} GPU{'s' * (gpus > 1)}"
        self.head(title, f"{self._at + 1} of {len(self._rows)}, esc leaves")
        self.query_one("#page", Static).update(page(row, max(30, self.size.width - MARGINS), self.ascii_only))


def page(row: Row, width: int, ascii_only: bool) -> Content:
    """Everything that is known of one strategy."""
    found, setting = row
    memory_bytes = (setting.gpu_memory_gib or 0) * GIB
    shown = [
        bars.bar(found.breakdown, memory_bytes or 1, min(width, 60), ascii_only),
        *_wrapped(_used(row), width),
        *(line.stylize("$warning") for line in _wrapped(answers.uncounted(setting.model), width)),
        Content(""),
        text(f"On a GPU at the peak, {PHASES[found.peak_phase]}", "bold"),
    ]
    shown += _parts(row, width, ascii_only)
    shown += [Content(""), text("Time of a step, estimated", "bold")]
    shown += [line for said in _time(row) for line in _wrapped(said, width)]
    parts = (
        ("What it says", [found.why, found.lever]),
        ("What one change would buy", [_bought(change) for change in found.changes]),
        ("What is to be done", changes(setting)),
    )
    for title, said in parts:
        if any(said):
            shown += [Content(""), text(title, "bold")]
        shown += [line for each in said if each for line in _listed(each, width)]
    return lines(*shown)


def _used(row: Row) -> str:
    found, setting = row
    used, memory = found.device_used_bytes_per_gpu, (setting.gpu_memory_gib or 0) * GIB
    left = f"{size(memory - used)} free" if used <= memory else f"{size(used - memory)} too much"
    band = f"{found.band.low / GIB:.1f} to {found.band.high / GIB:.1f} GiB"
    return f"{size(used)} of {size(memory)} on a GPU, {left}. PyTorch is expected to hold {band}."


def _parts(row: Row, width: int, ascii_only: bool) -> list[Content]:
    """A row for each part with its sign, below it the products it is the sum of."""
    found, setting = row
    made = terms(setting, found)
    shown: list[Content] = []
    for part in bars.PARTS:
        sign = part.letter if ascii_only else part.sign
        of_part = [term for term in made if term.part in part.fields]
        if not of_part:
            continue
        whole = text(f"{bars.size_bytes(found.breakdown, part) / GIB:>{SIZE_WIDTH - 4}.2f} GiB")
        name = text(f" {part.name:<{PART_WIDTH - 2}}", "bold")
        shown.append(Content.assemble((sign, part.style), name, whole))
        for term in of_part:
            equals = "" if len(term.factors) == 1 else f" = {size(term.bytes)}"
            shown += _listed(f"{term.what}: {term.formula}{equals}", width)
    whole = f"  {'in all':<{PART_WIDTH - 2}}{found.device_used_bytes_per_gpu / GIB:>{SIZE_WIDTH - 4}.2f} GiB"
    return [*shown, text(whole, "bold")]


def _time(row: Row) -> list[str]:
    found = row.candidate
    if found.step_seconds is None:
        return ["not known"]
    waits = found.exposed_comm_seconds or 0.0
    said = [f"{answers.speed(row)}; {answers.seconds(waits)} of a step waits for links."]
    if found.slower_than_ideal is not None:
        share = f"{found.mfu:.0%}" if (found.mfu or 0.0) >= TINY else "less than 1%"
        used = f"; {share} of the GPU's peak rate does the model's own arithmetic" if found.mfu else ""
        times = 1 + found.slower_than_ideal
        longer = f"{times:,.1f} times" if times >= 2 else f"{found.slower_than_ideal:.0%} longer than"
        said.append(f"{longer} the arithmetic alone{used}.")
    if found.comm_bytes_per_step:
        said.append(f"Each rank sends {size(found.comm_bytes_per_step)} in a step.")
    if found.host_bytes:
        said.append(f"{size(found.host_bytes)} of host memory for each GPU.")
    if found.dominated_by:
        said.append(f"{found.dominated_by} is as fast, needs as little, and less of one of both.")
    return said


def _bought(change: Change) -> str:
    """A change with what it does to memory and time."""
    made: list[str] = []
    if abs(change.gpu_bytes) >= LEAST_BYTES:
        made.append(f"{'+' if change.gpu_bytes > 0 else '-'}{size(abs(change.gpu_bytes))} on a GPU")
    if change.step_seconds:
        made.append(f"{'+' if change.step_seconds > 0 else '-'}{answers.seconds(abs(change.step_seconds))} a step")
    if change.tokens_per_s:
        made.append(f"{change.tokens_per_s:,.0f} tokens/s")
    said = f"{change.change}: {', '.join(made)}" if made else change.change
    return said + {True: "; then it fits", "tight": "; then it only just fits", False: ""}.get(change.fits or False, "")


def _wrapped(said: str, width: int) -> list[Content]:
    return text(said).wrap(width) if said else []


def _listed(said: str, width: int) -> list[Content]:
    """Indented, with what is too long for a row indented further."""
    first, *more = text(said, "$muted").wrap(width - len(INDENT) - 2)
    return [Content.assemble(INDENT, first), *(Content.assemble(INDENT + "  ", line) for line in more)]


class PlanPairScreen(WizardScreen):
    """Two strategies side by side."""

    CSS_PATH = "plan.tcss"
    TITLE = "Side by side"
    AUTO_FOCUS = "VerticalScroll"
    ABOUT = "Two strategies, part for part, and by how much the second differs from the first. The arrow keys scroll."

    def __init__(self, first: Row, second: Row) -> None:
        super().__init__()
        self._pair = (first, second)

    def body(self) -> Iterable[Widget]:
        with VerticalScroll():
            yield Static(id="page")

    def on_mount(self) -> None:
        self._show()

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self._show()

    def _show(self) -> None:
        self.head("Side by side", "esc leaves")
        width = max(30, self.size.width - MARGINS)
        self.query_one("#page", Static).update(side_by_side(*self._pair, width, self.ascii_only))


class Figure(NamedTuple):
    """A row of the comparison: two numbers, None where they are not known, how they are said, and as which numbers."""

    label: str
    first: float | None
    second: float | None
    say: Callable[[float], str]
    rounded: Callable[[float], float]

    @property
    def cells(self) -> tuple[str, str, str]:
        """First, second, and by how much the second is more."""
        said = tuple("–" if value is None else self.say(value) for value in (self.first, self.second))
        if self.first is None or self.second is None:
            return said[0], said[1], ""
        differs = self.rounded(self.second) - self.rounded(self.first)
        sign = "+" if differs > 0 else "-"
        return said[0], said[1], "same" if said[0] == said[1] else sign + self.say(abs(differs))


Said = tuple[Callable[[float], str], Callable[[float], float]]  # a number in words, and rounded as there
GIBS: Said = (lambda value: f"{value / GIB:,.1f} GiB", lambda value: round(value / GIB, 1) * GIB)
TIMES: Said = (answers.seconds, answers.rounded_s)
WHOLE: Said = (lambda value: f"{value:,.0f}", round)


def side_by_side(first: Row, second: Row, width: int, ascii_only: bool) -> Content:
    """The comparison, with what each needs changed."""
    column = max(10, min(COLUMN_WIDTH, (width - LABEL_WIDTH) // 3))
    shown: list[Content] = []
    for letter, row in (("1", first), ("2", second)):
        memory = (row.setting.gpu_memory_gib or 1) * GIB
        bar = bars.bar(row.candidate.breakdown, memory, PAIR_BAR_WIDTH, ascii_only)
        name = f"{letter}  {answers.name(row)}"
        room = width - PAIR_BAR_WIDTH - 1
        if len(name) <= room:
            shown.append(Content.assemble(text(f"{name:<{room}} ", "bold"), bar))
        else:
            shown += [text(name, "bold"), Content.assemble("   ", bar)]
    shown += [Content(""), _line("", ("1", "2", "difference"), column, "$muted")]
    moment, other = (MOMENTS[row.candidate.peak_phase] for row in (first, second))
    for figure in figures(first, second):
        style = "bold" if figure.label in ("on a GPU", "a step") else ""
        shown.append(_line(figure.label, figure.cells, column, style))
        if figure.label == "on a GPU":
            shown.append(_line("peak in", (moment, other, "same" if moment == other else ""), column, ""))
    if moment != other:
        shown += [line.stylize("$muted") for line in _wrapped(OTHER_MOMENTS, width)]
    for letter, row in (("1", first), ("2", second)):
        shown += [Content(""), text(f"{letter}  What {answers.name(row)} needs changed", "bold")]
        shown += [line for said in changes(row.setting) for line in _listed(said, width)]
    return lines(*shown)


def figures(first: Row, second: Row) -> list[Figure]:
    """What is compared."""

    def both(label: str, of: Callable[[Candidate], float | None], said: Said) -> Figure:
        return Figure(label, of(first.candidate), of(second.candidate), *said)

    parts = [
        both(part.name, lambda found, part=part: bars.size_bytes(found.breakdown, part), GIBS) for part in bars.PARTS
    ]
    return [
        *(figure for figure in parts if figure.first or figure.second),
        both("on a GPU", lambda found: found.device_used_bytes_per_gpu, GIBS),
        both("a step", lambda found: found.step_seconds, TIMES),
        both("waits of a step", lambda found: found.exposed_comm_seconds, TIMES),
        both("tokens a second", lambda found: found.tokens_per_s, WHOLE),
        both("sent in a step", lambda found: found.comm_bytes_per_step, GIBS),
        both("host memory a GPU", lambda found: found.host_bytes, GIBS),
        both("most sequences", lambda found: found.largest_micro_batch, WHOLE),
    ]


def _line(label: str, cells: tuple[str, str, str], column: int, style: str) -> Content:
    return text(f"{label:<{LABEL_WIDTH}}" + "".join(f"{cell:>{column}}" for cell in cells), style)
