"""The memory of one strategy: the formula of each part of its peak, its step time, and the tracked peak on request."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from ...app.errors import UserError
from ...app.options import target_python
from ...app.plan import exact_comparison, exact_memory, summary
from ...app.plan.exact_memory import TrackedStrategy
from ...app.plan.memory.peak import PHASES, peak_terms
from ...app.plan.model_source import ModelSource
from ...app.plan.script_changes import required_changes
from ...app.plan.strategies.explain import slowdown_text
from ...app.plan.strategies.what_if import effect_text
from ...app.plan.types import PlanRow
from ...app.text.units import GIB, gib_number, gib_text, percent_text, seconds_text
from ..dialogs.page import ScrollingPage
from ..widgets.formatting import join_lines, safe_content
from . import table
from .build_model import ChildProcessMixin

PART_WIDTH, SIZE_WIDTH = 13, 10
INDENT = "  "
NAME_MODULE = "give as model the name of a language model, a config.json, or your own pkg.mod:build"


class MemoryBreakdownScreen(ScrollingPage, ChildProcessMixin):
    """The figures of one strategy, each with the product that it is computed from."""

    TITLE = "Why these numbers"
    ABOUT = (
        "The peak memory of one GPU, part by part, each with its formula. Below: the time of a step, and changes that "
        "would reduce the peak. x compares these figures with a measurement: your interpreter trains the model for two "
        "steps on fake tensors, which take no memory and use no GPU. The arrow keys scroll."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "step(1)", "next strategy", id="terms.next", tooltip="Show the next strategy of the table"),
        Binding(
            "b", "step(-1)", "previous strategy", id="terms.before", tooltip="Show the previous strategy of the table"
        ),
        Binding("x", "exact", "exact", id="terms.exact", tooltip="Track the peak of the model itself on fake tensors"),
    ]

    class TrackingDone(Message):
        """A strategy was tracked, or could not be; ``at`` is its index in the rows."""

        def __init__(self, at: int, found: TrackedStrategy) -> None:
            super().__init__()
            self.at, self.found = at, found

    def __init__(
        self, rows: Sequence[PlanRow], at: int, source: ModelSource, tracked: dict[str, TrackedStrategy]
    ) -> None:
        super().__init__()
        self._rows, self._at, self._source = list(rows), at, source
        self._tracked = tracked  # by full name; shared with the caller, which shows it again

    def heading(self) -> tuple[str, str]:
        row = self._rows[self._at]
        gpus = row.setting.gpus
        title = f"{row.candidate.full_name} on {gpus} GPU{'s' * (gpus > 1)}"
        return title, f"{self._at + 1} of {len(self._rows)}, esc leaves"

    def page(self, width: int) -> Content:
        row, best = self._rows[self._at], self._rows[0] if self._at else None
        tracked = self._tracked.get(row.candidate.full_name)
        return strategy_details(row, width, self.ascii_only, tracked, best)

    def body(self) -> Iterable[Widget]:
        yield from super().body()
        yield self.running_line()

    def action_step(self, by: int) -> None:
        self._at = (self._at + by) % len(self._rows)
        self.show_status("")
        self.show_from_top()

    def action_exact(self) -> None:
        """Track the strategy of the page, as ``plan --exact`` does."""
        row, model = self._rows[self._at], self._source
        try:
            if not (model.factory or model.config):
                raise UserError("not tracked: tracking needs the module itself", NAME_MODULE)
            source = exact_memory.resolve_module_source(target_python(self.state.options), model)
            if why := exact_memory.unsupported_reason(row.setting, source):
                raise UserError(f"not tracked: {why}", "n shows the next strategy")
        except UserError as error:
            self.wizard.show_error(error)
            return
        self.show_status(f"esc cancels it; 20 s for 7 B parameters. Importing {source.imports}")
        self.begin(f"tracking {row.candidate.full_name}", exact_memory.LIMIT_S, self._track(self._at, row, source))

    async def _track(self, at: int, row: PlanRow, source: exact_memory.ModuleSource) -> None:
        self.post_message(self.TrackingDone(at, await exact_memory.track_candidate(row, source)))

    @on(TrackingDone)
    def _tracking_done(self, event: TrackingDone) -> None:
        self.child_done()
        self._tracked[self._rows[event.at].candidate.full_name] = event.found
        if event.at == self._at:
            self.show_status("")
            self.show_from_top()
        else:
            self.show_status(f"{self._rows[event.at].candidate.full_name} is tracked: its page shows it.")


def strategy_details(
    row: PlanRow,
    width: int,
    ascii_only: bool,
    tracked: TrackedStrategy | None = None,
    best: PlanRow | None = None,
) -> Content:
    """Return all details of one strategy; ``best`` is the first choice if this is another one."""
    found, setting = row
    memory_bytes = (setting.gpu_memory_gib or 0) * GIB
    shown = [
        Content.assemble(*table.memory_bar(found.breakdown, memory_bytes or 1, min(width, 60), ascii_only)),
        *wrap_lines(_used(row), width),
        *(line.stylize("$warning") for line in wrap_lines(summary.missing_memory(setting.model), width)),
        Content(""),
        *([*tracked_comparison(tracked, width), Content("")] if tracked else []),
        safe_content(f"On a GPU at the peak, {PHASES[found.peak_phase]}", "bold"),
    ]
    shown += _parts(row, width, ascii_only)
    shown += [Content(""), safe_content("Time of a step, estimated", "bold")]
    shown += [line for sentence in _time(row) for line in wrap_lines(sentence, width)]
    compared = (f"Compared with {best.candidate.full_name}", [found.why_not]) if best else ("", [])
    parts = (
        compared,
        ("Why", [found.why, found.lever]),
        ("Effect of single changes", [effect_text(change, found) for change in found.changes]),
        ("Changes to your script", required_changes(setting)),
    )
    for title, sentences in parts:
        if any(sentences):
            shown += [Content(""), safe_content(title, "bold")]
        shown += [line for each in sentences if each for line in indent_lines(each, width)]
    return join_lines(*shown)


def _used(row: PlanRow) -> str:
    found, setting = row
    used, memory = found.device_used_bytes_per_gpu, (setting.gpu_memory_gib or 0) * GIB
    left = f"{gib_text(memory - used, 2)} free" if used <= memory else f"{gib_text(used - memory, 2)} too much"
    band = f"{gib_number(found.band.low)} to {gib_text(found.band.high)}"
    return f"{gib_text(used, 2)} of {gib_text(memory, 2)} per GPU, {left}. Expected range of PyTorch's memory: {band}."


def _parts(row: PlanRow, width: int, ascii_only: bool) -> list[Content]:
    """Return a row for each part with its sign, and below it the products that add up to it."""
    found, setting = row
    made = peak_terms(setting, found)
    shown: list[Content] = []
    for part in table.PARTS:
        sign = part.letter if ascii_only else part.sign
        of_part = [term for term in made if term.part in part.fields]
        if not of_part:
            continue
        whole = safe_content(f"{gib_number(table.segment_bytes(found.breakdown, part), 2):>{SIZE_WIDTH - 4}} GiB")
        name = safe_content(f" {part.name:<{PART_WIDTH - 2}}", "bold")
        shown.append(Content.assemble((sign, part.style), name, whole))
        for term in of_part:
            equals = "" if len(term.factors) == 1 else f" = {gib_text(term.bytes, 2)}"
            shown += indent_lines(f"{term.what}: {term.formula}{equals}", width)
    whole = f"  {'total':<{PART_WIDTH - 2}}{gib_number(found.device_used_bytes_per_gpu, 2):>{SIZE_WIDTH - 4}} GiB"
    return [*shown, safe_content(whole, "bold")]


def _time(row: PlanRow) -> list[str]:
    found = row.candidate
    waits, share = seconds_text(found.exposed_comm_seconds), percent_text(found.mfu)
    lines = [
        f"{summary.speed_text(row)}; {waits} of a step is spent waiting for links.",
        f"{slowdown_text(found.slower_than_ideal)}; the model uses {share} of the GPU's peak rate (MFU).",
    ]
    if found.comm_bytes_per_step:
        lines.append(f"Each rank sends {gib_text(found.comm_bytes_per_step, 2)} in a step.")
    if found.host_bytes:
        lines.append(f"{gib_text(found.host_bytes, 2)} of host memory for each GPU.")
    if found.dominated_by:
        lines.append(f"{found.dominated_by} is no slower and needs no more memory.")
    return lines


def wrap_lines(text: str, width: int) -> list[Content]:
    """Wrap a text to rows of ``width``; no rows for ""."""
    return safe_content(text).wrap(width) if text else []


def indent_lines(text: str, width: int) -> list[Content]:
    """Wrap a text to indented rows, those after the first indented further."""
    first, *more = safe_content(text, "$muted").wrap(width - len(INDENT) - 2)
    return [Content.assemble(INDENT, first), *(Content.assemble(INDENT + "  ", line) for line in more)]


LABEL_WIDTH, COLUMN_WIDTHS = 28, (9, 9, 10)
TITLE = "Exact: what PyTorch allocates at the peak"
STYLES = {"head": "$muted", "same": "", "differs": "$warning", "total": "bold"}


def tracked_comparison(found: TrackedStrategy, width: int) -> list[Content]:
    """Return both figures and the error of the formula, for each part, with notes."""
    rows, title = exact_comparison.comparison_rows(found), safe_content(TITLE, "bold")
    if not rows:
        return [title, *safe_content(f"not tracked: {found.problem}", "$warning").wrap(width)]
    columns = ["".join(f"{cell:>{each}}" for cell, each in zip(row.cells, COLUMN_WIDTHS, strict=True)) for row in rows]
    table = [
        safe_content(f"{row.label:<{LABEL_WIDTH}}{line}", STYLES[row.kind])
        for row, line in zip(rows, columns, strict=True)
    ]
    return [title, *table, *safe_content(" ".join(exact_comparison.comparison_notes(found)), "$muted").wrap(width)]
