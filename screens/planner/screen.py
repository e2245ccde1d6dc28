"""The planner's screen: a form, the strategies ranked as you type, and the memory of the marked one."""

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from ...app.errors import UserError
from ...app.plan import form_fields, plan_answer, request, summary
from ...app.plan.model.parameter_counts import parameter_count_text
from ...app.plan.types import PlanRow
from ...app.snapshot import Snapshot
from ...app.text.units import GIB
from ..shell import gc_freeze
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import safe_content, truncate_middle
from .build_model import BuildModelMixin
from .form import NEXT_WORD, ChoiceField, PlanForm
from .table import StrategyTable, TextRows, as_sentence, legend, row_ids, wrap_pieces

if TYPE_CHECKING:
    from ...app.plan.exact_memory import TrackedStrategy
    from .questions import InterviewResult

MARGIN = 2
WORD = 12  # cells that wrapping may lose at the end of a row
GOES_ON = " … (enter)"
PAINTED_S = 0.05  # time to paint the table
LOADED_S = 0.5  # time to compute the first table


class PlanScreen(BuildModelMixin):
    """The planner."""

    CSS_PATH = Path(__file__).with_name("planner.tcss")
    TITLE = "Which strategy?"
    ABOUT = (
        "Fill in the form. The strategies are ranked as you type; a grey field shows a default. Each row shows the "
        "peak memory of one GPU as a bar, the time of a step, and the share of the step in which the GPU waits for "
        "other GPUs. The signs in the bar are named below the list; the line marks the end of the GPU's memory. Sign "
        "before the name: ✓ fits; ✗ does not fit; a warning: fits only just, or is too slow; else not known. In the "
        "legend, context is the memory of CUDA and NCCL, and gaps is memory that PyTorch reserves and cannot use. "
        "compute time: that of a step's arithmetic alone, with no recomputation and no waiting. "
        "recompute: which activations are computed again instead of kept. HSDP: copies over the nodes, shards within "
        "a node. The model is a known name; the path of a Hugging Face config.json or of .safetensors; a function "
        "such as pkg.mod:build, which is imported after you confirm; or numbers: parameters, layers, hidden size, "
        "vocabulary. m shows more fields (F2 while you type); i asks five questions instead. Memory is computed; times "
        "are estimates."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "app.focus_next", "edit", id="plan.next", tooltip="Go to the next field, or back to the list"),
        Binding("plus", "gpus(1)", "GPUs", id="plan.gpus", tooltip="Plan for more additional GPUs"),
        Binding(
            "w", "write", "write", id="plan.write", tooltip="Show the job files of the marked strategy, to write them"
        ),
        Binding("i", "interview", "ask me", id="plan.interview", tooltip="Five questions in place of the form"),
        Binding("m", "page", "more", id="plan.page", tooltip="More fields (F2 while you type): recompute, LoRA …"),
        Binding("minus", "gpus(-1)", "fewer", show=False, id="plan.fewer", tooltip="Plan for fewer additional GPUs"),
        Binding("c", "pair", "compare", id="plan.pair", tooltip="Mark a row; on a second row, compare the two"),
        Binding("space", "pair", "compare", show=False, id="plan.pair-space", tooltip="Same as c, on the list"),
        Binding("f2", "page_writing", "more fields", id="plan.page-writing", tooltip="More fields, while you type"),
    ]

    class SummaryReady(Message):
        """A plan was computed, or failed; ``number`` is that of the request."""

        def __init__(self, number: int, answer: plan_answer.PlanAnswer | None, error: UserError | None = None) -> None:
            super().__init__()
            self.number, self.answer, self.error = number, answer, error

    class MachineSeen(Message):
        """The GPUs and the memory of this machine were probed."""

        def __init__(self, found: Snapshot) -> None:
            super().__init__()
            self.found = found

    def __init__(self) -> None:
        super().__init__()
        self._machine = form_fields.FormMachine()
        self._values: dict[str, str] = {}  # of the form, as last planned
        self._number = self._shown = 0  # of the last request, and of the one whose answer is shown
        self._answer: plan_answer.PlanAnswer | None = None
        self._error: UserError | None = None
        self._first_of_pair = ""
        self._is_moved = False  # True if the user moved the marker to a row
        self._more_by_keys = ""  # number that + and - entered into the form
        self._tracked: dict[str, TrackedStrategy] = {}  # by the full name of a row

    def body(self) -> Iterable[Widget]:
        self._machine = form_fields.form_machine(self.state.snapshot)
        yield PlanForm(form_fields.initial_values(self._machine, Path.cwd()) | self.state.plan_form)
        yield TextRows(id="answers")
        yield TextRows(id="names")
        yield Choices(numbered=False, verb="why", id="strategies")
        yield TextRows(id="made-of")
        yield self.running_line()

    def on_mount(self) -> None:
        self._ask()
        self.set_timer(LOADED_S, partial(gc_freeze.freeze_garbage, "the planner"))
        if self.state.snapshot is None or self.state.snapshot.gpus is None:
            self.run_worker(self._inspect_machine(), group="machine")

    async def _inspect_machine(self) -> None:
        self.post_message(
            self.MachineSeen(await self.state.run_probes(["gpus", "limits"], self.state.context(), "reads"))
        )

    @on(MachineSeen)
    def _machine_seen(self, event: MachineSeen) -> None:
        """Fill in what was found, except in fields that the user has changed."""
        self.state.add_snapshot(event.found)
        before = form_fields.initial_values(self._machine, Path.cwd())
        self._machine = form_fields.form_machine(self.state.snapshot)
        form = self.query_one(PlanForm)
        values = form.values()
        for name, value in form_fields.initial_values(self._machine, Path.cwd()).items():
            if values[name] == before[name] != value:
                form.set(name, value)
        self.ask_again()
        self._show_hint()

    # -- computing

    def ask_again(self) -> None:
        """Plan again: the same texts may mean something else now."""
        self._values = {}
        self._ask()

    @on(PlanForm.FieldChanged)
    def _ask(self) -> None:
        """Plan for the form in a worker; a later request replaces an earlier one."""
        form = self.query_one(PlanForm)
        values = form.values()
        if values == self._values:
            return
        if self._values and self._values["gpus"] != values["gpus"] and values["more_gpus"] == self._more_by_keys != "":
            values["more_gpus"] = self._more_by_keys = ""  # it was for the former number of GPUs
            form.set("more_gpus", "")
        self.state.plan_form = values
        self._values, self._number = values, self._number + 1
        self.run_worker(partial(self._plan, self._number, values), group="plan", exclusive=True)

    async def _plan(self, number: int, values: dict[str, str]) -> None:
        try:
            built = self.state.plan_built
            found = await asyncio.to_thread(
                lambda: plan_answer.make_answer(form_fields.request_from_form(values, self._machine, built))
            )
            self.post_message(self.SummaryReady(number, found))
        except UserError as error:
            self.post_message(self.SummaryReady(number, None, error))

    def _start_scaling(self, number: int, found: plan_answer.PlanAnswer) -> None:
        """Plan for more GPUs after the table is painted, so that the table does not wait for it."""
        if number == self._number:
            self.run_worker(partial(self._plan_more, number, found), group="plan", exclusive=True)

    async def _plan_more(self, number: int, found: plan_answer.PlanAnswer) -> None:
        self.post_message(self.SummaryReady(number, await asyncio.to_thread(plan_answer.add_scaling, found)))

    @on(SummaryReady)
    def _summary_ready(self, event: SummaryReady) -> None:
        if event.number != self._number:
            return
        self._shown = event.number
        before, self._error = self._answer, event.error
        self._answer = event.answer or before
        if event.answer and before and before.rows is event.answer.rows:
            self._show_answers()
            return
        self._tracked = {} if event.answer else self._tracked
        self._show()
        if event.answer:
            # A timer, because the widgets paint only after the next refresh.
            self.set_timer(PAINTED_S, partial(self._start_scaling, event.number, event.answer))

    def on_screen_resume(self) -> None:
        """Let what was tracked in exact mode decide."""
        if self._answer and self._tracked:
            self._answer = plan_answer.with_tracked(self._answer, self._tracked)
            self._show()

    # -- showing

    @property
    def _rows(self) -> list[PlanRow]:
        return self._answer.rows if self._answer else []

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self._show()

    def on_descendant_focus(self) -> None:
        super().on_descendant_focus()
        self._show_hint()

    def _show_hint(self) -> None:
        """Show what can be entered in the field with the focus."""
        focused, inside = self.focused, self.size.width - MARGIN
        if focused and focused.id in form_fields.ALL:
            self.show_status(safe_content(form_fields.field_hint(focused.id, inside), "$muted"))
        else:
            note = form_fields.assumption_note(self.query_one(PlanForm).values(), self._machine)
            self.show_status(safe_content(note, "$muted"))

    def _show(self) -> None:
        self._show_answers()
        table, ids = self._table(), row_ids(self._rows)
        if self._first_of_pair not in ids:
            self._first_of_pair = ""
        head = [table.head("as it was" if self._error else "strategy")] if self._rows else []
        self.query_one("#names", TextRows).show(head)
        rows = zip(ids, self._rows, strict=True)
        choices = [Choice(id_, partial(table.row, row, id_ == self._first_of_pair)) for id_, row in rows]
        self.query_one("#strategies", Choices).set_items(choices, first=not self._is_moved)
        self._show_parts()
        # Together with the table, which otherwise would be painted a frame later.
        if self._answer:
            self.query_one(PlanForm).show_placeholders(form_fields.placeholders(self._answer.request))
        if self._rows:
            setting = self._rows[0].setting
            model = f"{parameter_count_text(setting.model.params)} parameters"
            nodes = f" on {setting.nodes} nodes" if setting.nodes > 1 else ""
            assumed = ", assumed" if form_fields.assumption_note(self._values, self._machine) else ""
            warning = f" · {limit}" if (limit := request.limit_warning(setting)) else ""
            gpus = f"{setting.gpus} × {setting.gpu_memory_gib or 0:.0f} GiB"
            self.show_header(facts=f"{model} · {gpus}{nodes}{assumed}{warning}")

    def _show_answers(self) -> None:
        """Show the three answers; one that is not computed yet keeps its former text for that moment."""
        shown, rows = self.query_one("#answers", TextRows), self._plan_answer(self.size.width - MARGIN)
        found = self._answer
        if found and found.more is None and not plan_answer.why_no_scaling(found.request) and not self._error:
            rows = [*rows[:-1], *(shown.rows[2:] or rows[-1:])]
        shown.show(rows)

    def _plan_answer(self, width: int) -> list[Content]:
        """Return the three answers; or what is wrong with the form, and what to do."""
        if self._error:
            wrong = safe_content(truncate_middle(self._error.message, 2 * width - WORD), "$warning").wrap(width)[:2]
            arrow = "->" if self.ascii_only else "→"
            return [*wrong, *safe_content(f"{arrow} {self._error.next_step or 'correct it'}").wrap(width)]
        lines = summary.summary_lines(self._answer) if self._answer else []
        return [Content.assemble((line.lead, "bold"), safe_content(f": {line.within(width)}")) for line in lines]

    def _table(self) -> StrategyTable:
        memory_gib = self._rows[0].setting.gpu_memory_gib if self._rows else None
        return StrategyTable(self.size.width, (memory_gib or 1.0) * GIB, self.ascii_only)

    @on(Choices.Marked)
    def _marked(self, event: Choices.Marked) -> None:
        self._is_moved = event.choices.highlighted > 0
        self._show_parts()

    def _show_parts(self) -> None:
        at, shown = self._at_marked(), self.query_one("#made-of", TextRows)
        if at is None or self._answer is None:
            shown.show([])
            return
        found = plan_answer.explain_row(self._answer, at).candidate
        most = found.largest_micro_batch
        width = self.size.width - MARGIN
        room = [safe_content(f"max. micro-batch {most}")] if most else []
        room += [safe_content("! only just fits", "$warning")] if found.fits == "tight" else []
        parts = wrap_pieces([*legend(found, self.ascii_only), *room], width)
        why = Content.assemble(f"{as_sentence(found.why)}. ", (f"{as_sentence(found.lever)}.", "$muted")).wrap(width)
        rows, height = [*parts, *why], shown.size.height
        if 0 < height < len(rows) and len(parts) < height:
            rows[height - 1] = Content.assemble(rows[height - 1].truncate(width - len(GOES_ON)), (GOES_ON, "$muted"))
        shown.show(rows)

    def _at_marked(self) -> int | None:
        marked = self.query_one("#strategies", Choices).marked
        return self._at(marked.id) if marked else None

    def _at(self, id_: str) -> int | None:
        return next((at for at, found in enumerate(row_ids(self._rows)) if found == id_), None)

    # -- actions

    def shown_bindings(self) -> Iterator[Binding]:
        if isinstance(self.focused, ChoiceField):
            yield NEXT_WORD
        yield from super().shown_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        focused = self.focused
        writing = focused is not None and focused.check_consume_key("a", "a")
        return writing if action == "page_writing" else True

    def action_page(self) -> None:
        self.query_one(PlanForm).toggle_page()

    def action_page_writing(self) -> None:
        self.action_page()

    def action_gpus(self, by: int) -> None:
        """Plan for twice as many GPUs in all, or for half as many."""
        if self._answer:
            planned = self._answer.request
            gpus = planned.setting.gpus
            in_all = (gpus + planned.more_gpus) * 2 if by > 0 else (gpus + planned.more_gpus) // 2
            self._more_by_keys = str(request.nearest_full_nodes(gpus, planned.per_node, in_all - gpus, by > 0))
            self.query_one(PlanForm).set("more_gpus", self._more_by_keys)

    def action_interview(self) -> None:
        from .questions import InterviewScreen

        self.app.push_screen(InterviewScreen(self.query_one(PlanForm).values(), self._machine), callback=self._asked)

    def _asked(self, result: "InterviewResult | None") -> None:
        if result is None:
            return
        form = self.query_one(PlanForm)
        for name, value in result.values.items():
            form.set(name, value)
        self.ask_again()
        self.show_status(result.done)

    @on(Choices.Picked)
    def _picked(self, event: Choices.Picked) -> None:
        from .breakdown import MemoryBreakdownScreen

        at = self._at(event.id)
        if self._answer and at is not None:
            rows = plan_answer.explain_rows(self._answer)
            self.app.push_screen(MemoryBreakdownScreen(rows, at, self._answer.request.source, self._tracked))

    def action_pair(self) -> None:
        from .compare import CompareScreen

        marked = self.query_one("#strategies", Choices).marked
        if marked is None:
            return
        first, second = self._at(self._first_of_pair), self._at(marked.id)
        if first is None:
            self._first_of_pair = marked.id
            self.show_status("Marked. Go to another row and press c to compare the two.")
        elif self._first_of_pair == marked.id:
            self._first_of_pair = ""
            self.show_status("")
        elif second is not None and self._answer:
            self._first_of_pair = ""
            self.show_status("")
            self.app.push_screen(CompareScreen(*(plan_answer.explain_row(self._answer, at) for at in (first, second))))
        self._show()

    def action_write(self) -> None:
        from .write_files import PlanWriteScreen

        at = self._at_marked()
        if self._error:
            self.wizard.show_error(UserError(f"nothing to write: {self._error.message}", self._error.next_step))
        elif at is not None and self._answer is not None:
            self.app.push_screen(PlanWriteScreen(self._rows[at], self._answer.request.links), callback=self._wrote)

    def _wrote(self, result: str | None) -> None:
        if result:
            self.show_status(result)
