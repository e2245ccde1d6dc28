"""Home: the box has been looked at while one reads; what is wrong is asked by number, or told in words."""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from ...app.errors import UserError
from ...app.session import Session, all_sessions
from ...app.snapshot import Snapshot
from ...app.triage.types import JobReport
from ..shell.base import WizardScreen
from ..shell.state import is_navigation_event, job_name
from ..widgets.base import BaseWidget
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import join_lines, safe_content
from ..widgets.line_input import LineInput
from .status_cells import machine_line, status_cell, status_cells

# What is wrong, in the order of the list: id, the words of the list, the answer to the question "symptom".
SYMPTOMS = [
    ("hangs", "My job hangs", "hangs"),
    ("crashed", "It crashed; I have an error or a log", "crashes"),
    ("slow", "It runs, but wrong or too slow", "wrong-or-slow"),
    ("dead-start", "It does not even start", "does-not-start"),
]
PLACES = [("check", "Check this box"), ("browse", "Browse what it knows"), ("plan", "DDP, FSDP or ZeRO: plan a run")]
NOTE_COLUMN = 40
TWO_COLUMNS = 76  # from which the box stands in two columns


class StatusCells(BaseWidget):
    """The box at a glance, in two columns where there is room."""

    DEFAULT_CSS = "StatusCells { height: auto; width: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[Content] = []

    def show_changes(self) -> None:
        """Repaint the rows that are not as they were."""
        before, now = self._rows, self._make_rows()
        changed = [y for y, row in enumerate(now) if y >= len(before) or not row.is_same(before[y])]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def render(self) -> Content:
        self._rows = self._make_rows()
        return join_lines(*self._rows)

    def _make_rows(self) -> list[Content]:
        screen = self.screen
        assert isinstance(screen, WizardScreen)
        width = self.size.width
        half = width // 2
        facts = status_cells(screen.state)
        if width < TWO_COLUMNS:
            return [status_cell(fact, screen.ascii_only, width) for fact in facts]
        left = [status_cell(fact, screen.ascii_only, half - 1) for fact in facts[::2]]
        right = [status_cell(fact, screen.ascii_only, width - half) for fact in facts[1::2]]
        return [Content.assemble(a, " " * (half - a.cell_length), b) for a, b in zip(left, right, strict=True)]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return 3 if width >= TWO_COLUMNS else 6


class HomeScreen(WizardScreen):
    """Where one begins."""

    CSS_PATH = Path(__file__).with_name("home.tcss")
    TITLE = "ddpwizard"
    ABOUT = (
        "Choose what is wrong by its number, or press tab and tell it in your own words: an error line, the path of a "
        "log, a description. The box above is read by itself; nothing is changed by looking."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "write", "tell it", id="home.write", tooltip="Tell in your own words what you see"),
        Binding("slash", "browse", "search", id="home.search", tooltip="Search everything the wizard knows"),
        Binding("r", "look", "look again", id="home.look", tooltip="Read the box and its jobs again"),
        Binding("ctrl+p", "app.palette", "all commands", id="home.palette", tooltip="Find any action by its name"),
    ]

    class ProbeDone(Message):
        """One probe has answered, or could not."""

        def __init__(self, probe: str, found: Snapshot) -> None:
            super().__init__()
            self.probe, self.found = probe, found

    class JobsTriaged(Message):
        """The jobs of this box were looked at."""

        def __init__(self, reports: list[JobReport], problem: str = "") -> None:
            super().__init__()
            self.reports, self.problem = reports, problem

    def __init__(self) -> None:
        super().__init__()
        self._looking: set[str] = set()
        self._unfinished: Session | None = None
        self._looked = False

    def body(self) -> Iterable[Widget]:
        yield StatusCells()
        yield Static(Content.styled("What is wrong?", "bold"), classes="ask")
        yield Choices(self._rows(), id="wrong", verb="", note_column=NOTE_COLUMN)
        yield LineInput(placeholder="or tell me what you see", id="words")

    def on_mount(self) -> None:
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """After the first frame: read the sessions and the knowledge, and look."""
        if not self._looked:
            self._looked = True
            self._unfinished = next(all_sessions(), None)
            if self._unfinished and not _worth_resuming(self._unfinished):
                self._unfinished = None
            self._show()
            self.action_look()

    # -- looking

    def action_look(self) -> None:
        """Read the box and its jobs, all at once, each under its own limit."""
        probes = self.state.may_probe("reads")
        self._looking = {*probes, "job"}
        self._show_looking()
        self.workers.cancel_group(self, "look")
        for work in (self._jobs(), *(self._look(probe) for probe in probes)):
            self.run_worker(work, group="look")

    async def _look(self, probe: str) -> None:
        self.post_message(self.ProbeDone(probe, await self.state.run_probes([probe], self.state.context(), "reads")))

    async def _jobs(self) -> None:
        try:
            self.post_message(self.JobsTriaged(await self.state.triage(None)))
        except UserError as error:
            self.post_message(self.JobsTriaged([], str(error)))

    @on(ProbeDone)
    def _looked_at(self, event: ProbeDone) -> None:
        self._looking.discard(event.probe)
        self.state.add_snapshot(event.found)
        self._show()

    @on(JobsTriaged)
    def _jobs_seen(self, event: JobsTriaged) -> None:
        self._looking.discard("job")
        self.state.reports = event.reports
        self._show()
        if event.problem:
            self.show_status(event.problem)

    # -- showing

    def _show(self) -> None:
        self.query_one(StatusCells).show_changes()
        self.show_header(facts=machine_line(self.state))
        self.query_one("#wrong", Choices).set_items(self._rows())
        self._show_looking()

    def cancel_running(self) -> bool:
        self._looking = set()
        return super().cancel_running()

    def _show_looking(self) -> None:
        looking = Content.assemble(("● ", "$accent"), ("looking at this box", "$muted"))
        self.show_status(looking if self._looking else "")

    def _rows(self) -> list[Choice]:
        rows = [Choice(id_, label, self._remark(id_)) for id_, label, _ in SYMPTOMS]
        rows += [Choice(id_, label, self._remark(id_)) for id_, label in PLACES]
        if self._unfinished:
            rows.append(Choice("resume", "Go on where I left off", safe_content(_left_off(self._unfinished), "$muted")))
        return rows

    def _remark(self, id_: str) -> Content:
        if id_ == "hangs" and self.state.reports:
            worst = self.state.reports[0]
            if worst.verdict.state == "hung":
                return safe_content(f"{job_name(worst.job)} on this box looks hung", "$warning")
        if id_ == "check":
            bad = sum(check.status in ("warn", "fail") for check in self.state.checks)
            return safe_content(f"{bad} thing{'s' * (bad != 1)} to look at", "$warning") if bad else Content("")
        return Content("")

    # -- choosing

    @on(Choices.Picked)
    async def _picked(self, event: Choices.Picked) -> None:
        symptom = next((answer for id_, _, answer in SYMPTOMS if id_ == event.id), "")
        try:
            if event.id == "resume" and self._unfinished:
                await self.wizard.open(self.state.resume(self._unfinished.id))
            elif symptom:
                await self._case(event.id, symptom)
            else:
                await self.wizard.open(event.id)
        except UserError as error:
            self.wizard.show_error(error)

    async def _case(self, id_: str, symptom: str) -> None:
        self.state.begin().answer("symptom", symptom)
        if id_ == "crashed":
            await self.wizard.open("paste")
        elif id_ == "hangs" and self.state.reports:
            await self.wizard.open("triage", reports=self.state.reports)
        else:
            await self.wizard.open("step")

    @on(Input.Submitted)
    async def _told(self, event: Input.Submitted) -> None:
        if event.value.strip():
            await self._take(event.value)
            event.input.clear()

    @on(LineInput.PastedLines)
    async def _pasted(self, event: LineInput.PastedLines) -> None:
        await self._take(event.text)

    async def _take(self, given: str) -> None:
        from ..shell.take_text import take_text

        try:
            self.state.begin()
            take_text(self.state, given, "your words")
            await self.wizard.open("diagnosis")
        except UserError as error:
            self.wizard.show_error(error)

    def action_write(self) -> None:
        words, choices = self.query_one("#words"), self.query_one("#wrong")
        (choices if words.has_focus else words).focus()

    async def action_browse(self) -> None:
        await self.wizard.open("browse", searching=True)

    async def action_back(self) -> None:
        self.query_one("#wrong").focus()


def _worth_resuming(session: Session) -> bool:
    """Whether somebody got somewhere in this session and did not end it."""
    return session.last("closed") is None and any(is_navigation_event(event) for event in session.events)


def _left_off(session: Session) -> str:
    import time

    minutes = (time.time() - session.events[-1].at) / 60
    if minutes < 90:
        return f"{minutes:.0f} min ago"
    return f"{minutes / 60:.0f} h ago" if minutes < 48 * 60 else f"{minutes / 1440:.0f} days ago"
