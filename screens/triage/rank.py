"""The list of ranks at one place, and the page of one rank."""

import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from ...app.errors import UserError
from ...app.system.paths import relative_to_cwd
from ...app.text.units import count_text
from ...app.triage import rank_details
from ...app.triage.job_text import problems, sample_time
from ...app.triage.other_hosts import other_hosts_lines
from ...app.triage.rank_groups import rank_groups
from ...app.triage.types import JobReport
from ..dialogs.confirm import ConfirmDialog
from ..dialogs.find_rank import FIND_FROM, FindRankMixin
from ..dialogs.page import ScrollingPage, TextDialog
from ..widgets.choices import Choices
from ..widgets.formatting import join_lines, safe_content
from .rank_table import RankTable, annotated_source, detail_line, stacks_of_ranks

MARGINS = 4  # of a list: padding and the marker's two columns
NAME_WIDTH = 12
VALUES = (
    "They are read from outside, without stopping the process. Values can hold data: they are shown here, "
    "shortened and without secrets, and saved nowhere."
)


def stacks_page(report: JobReport, width: int) -> TextDialog:
    """Return a page with the problems and the distinct stacks of a job."""
    unread = [safe_content(line, "$warning") for line in problems(report)]
    if further := other_hosts_lines(report):
        unread += [*map(safe_content, further), Content("")]
    found = stacks_of_ranks(report, [row.rank for row in report.ranks], width)
    return TextDialog("All stacks, grouped", join_lines(*unread, *found), _seen(report))


def _seen(report: JobReport) -> str:
    return f"sampled at {at}" if (at := sample_time(report)) else ""


class RanksScreen(FindRankMixin):
    """The ranks at one place, one row each."""

    CSS_PATH = Path(__file__).with_name("rank.tcss")
    TITLE = "Ranks"
    ABOUT = (
        "The ranks at one place. enter shows all that is known of one rank: stacks, child processes, connections, GPU, "
        "last output. Nothing is sampled while this is open."
    )

    def __init__(self, report: JobReport, ranks: Sequence[int], marked: int | None = None) -> None:
        super().__init__()
        self._report, self._ranks, self._marked = report, list(ranks), marked

    def body(self) -> Iterable[Widget]:
        yield Static(id="names")
        yield Choices(numbered=False, verb="open", id="ranks")
        yield self.find_line()

    def on_mount(self) -> None:
        self._show()
        if self._marked in self._ranks:
            self.query_one(Choices).highlighted = self._ranks.index(self._marked)

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self._show()

    def _show(self) -> None:
        width = self.size.width - MARGINS
        groups = rank_groups(self._report, self._ranks, alone=True)
        rows = {row.rank: row for row in self._report.ranks}
        processes = {rank: f"{rows[rank].host}  pid {rows[rank].pid or '–'}" for rank in self._ranks}
        table = RankTable(groups, width, processes)
        self.query_one("#names", Static).update(Content.assemble("  ", table.header()))
        self.query_one(Choices).set_items([table.row(group, str(group.members[0])) for group in groups])
        self._ranks = [group.members[0] for group in groups]
        first = groups[0]
        doing = f" in {first.collective}" if first.collective else ""
        at = f" at {first.where}" if first.where else ""
        title = f"{count_text(len(groups), 'rank')} › {first.state.replace('_', ' ')}{doing}{at}"
        self.show_header(title, _seen(self._report))

    def row_of_rank(self, rank: int) -> int | None:
        return self._ranks.index(rank) if rank in self._ranks else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "find" or len(self._ranks) > FIND_FROM

    @on(Choices.Picked)
    def _picked(self, event: Choices.Picked) -> None:
        self.app.push_screen(RankScreen(self._report, self._ranks, int(event.id)))


class RankScreen(ScrollingPage):
    """All that is known of one rank: facts, source, stacks, context."""

    TITLE = "Rank"
    ABOUT = (
        "Everything known about one rank from the last sample: its line and the code around it, the stack of each "
        "thread, its child processes, connections, GPU and last output. The arrow keys scroll."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "step(1)", "next rank", id="rank.next", tooltip="Show the next rank at this place"),
        Binding("b", "step(-1)", "rank before", id="rank.before", tooltip="Show the rank before this one"),
        Binding("l", "values", "variables", id="rank.values", tooltip="Show the values of its local variables"),
        Binding("w", "why", "why", id="rank.why", tooltip="Show the evidence for and against the verdict"),
        Binding("s", "stacks", "stacks", id="rank.stacks", tooltip="Show the stacks of all ranks of the job"),
    ]

    class ValuesRead(Message):
        """The local variables of a rank as sections of a page."""

        def __init__(self, rank: int, parts: list[rank_details.DetailSection]) -> None:
            super().__init__()
            self.rank, self.parts = rank, parts

    class ReadFailed(Message):
        """The variables could not be read."""

        def __init__(self, error: UserError) -> None:
            super().__init__()
            self.error = error

    def __init__(self, report: JobReport, ranks: Sequence[int], rank: int) -> None:
        super().__init__()
        self._report, self._ranks, self._rank = report, list(ranks), rank
        self._here = socket.gethostname()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        row = rank_details.find_row(self._report, self._rank)
        if action == "values":
            return row is not None and row.pid is not None and row.host == self._here
        return action != "step" or len(self._ranks) > 1

    def action_values(self) -> None:
        """Read the values of variables; ask the first time."""
        if self.state.reads_values:
            self._read(True)
            return
        question = f"Read the values of rank {self._rank}'s local variables?"
        self.app.push_screen(ConfirmDialog(question, yes="Yes, read them", details=VALUES), callback=self._read)

    def _read(self, yes: bool | None) -> None:
        row = rank_details.find_row(self._report, self._rank)
        if yes and row and row.pid is not None:
            self.state.reads_values = True
            self.show_status("Reading the variables.")
            self.run_worker(self._values(row.rank, row.pid), group="values", exclusive=True)

    async def _values(self, rank: int, pid: int) -> None:
        from ...app.triage.sampling.stacks import locals_of

        try:
            self.post_message(self.ValuesRead(rank, rank_details.local_values(await locals_of(pid))))
        except UserError as error:
            self.post_message(self.ReadFailed(error))

    @on(ValuesRead)
    def _values_read(self, event: ValuesRead) -> None:
        self.show_status("")
        page = self._parts(event.parts, self.page_width)[1:]
        self.app.push_screen(TextDialog(f"Rank {event.rank} › variables", join_lines(*page)))

    @on(ReadFailed)
    def _failed(self, event: ReadFailed) -> None:
        self.wizard.show_error(event.error)

    async def action_why(self) -> None:
        await self.wizard.open("diagnosis")

    def action_stacks(self) -> None:
        self.app.push_screen(stacks_page(self._report, self.page_width))

    def action_step(self, by: int) -> None:
        at = self._ranks.index(self._rank)
        self._rank = self._ranks[(at + by) % len(self._ranks)]
        self.show_from_top()
        self.keys_changed()

    def heading(self) -> tuple[str, str]:
        which = f"{self._ranks.index(self._rank) + 1} of {len(self._ranks)} here" if len(self._ranks) > 1 else ""
        return f"Rank {self._rank}", ", ".join(filter(None, [which, _seen(self._report)]))

    def page(self, width: int) -> Content:
        row = rank_details.find_row(self._report, self._rank)
        if row is None:
            return Content("")
        shown: list[Content] = []
        for name, value in rank_details.rank_facts(self._report, row):
            first, *more = safe_content(value).wrap(width - NAME_WIDTH)
            shown.append(Content.assemble((name.ljust(NAME_WIDTH), "$muted"), first))
            shown += [Content.assemble(" " * NAME_WIDTH, line) for line in more]
        if around := rank_details.source_around_rank(self._report, row):
            shown += [
                Content(""),
                safe_content(f"Source: {relative_to_cwd(row.where or '')}", "bold"),
                *annotated_source(around, width),
            ]
        return join_lines(*shown, *self._parts(rank_details.detail_sections(self._report, row), width))

    def _parts(self, parts: Iterable[rank_details.DetailSection], width: int) -> list[Content]:
        shown: list[Content] = []
        for part in parts:
            shown += [Content(""), safe_content(part.title, "bold"), *(detail_line(line, width) for line in part.lines)]
        return shown
