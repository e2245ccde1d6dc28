"""Home: the machine at a glance, and the list of what may be wrong."""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, Static

from ...app.diagnosis.symptoms import OF_A_RUNNING_JOB, SYMPTOMS, TASKS, WITH_LOG, Symptom
from ...app.errors import UserError
from ...app.probes.summary import PROBLEMS, counts_text
from ...app.session import Session
from ...app.snapshot import Snapshot
from ...app.text.units import seconds_text
from ...app.triage.job_text import hung_job_note, slow_job_note, slow_jobs_first
from ...app.triage.types import JobReport
from ..shell.state import unfinished_session
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import safe_content
from ..widgets.line_input import LineInput
from .given_text import GivenTextMixin
from .status_cells import TWO_COLUMNS, StatusCells, machine_line

NOTE_COLUMN = 34
NOTE_MARGIN = 10  # key and edges of a row
RESUME_KEY, LEARN_KEY = "c", "l"  # of the rows after the tenth, which no digit chooses
JOBS_EVERY_S = 5.0  # between the end of a sample of the jobs and the next


class HomeScreen(GivenTextMixin):
    """The first screen: the machine at a glance and the list of symptoms and tasks."""

    CSS_PATH = Path(__file__).with_name("home.tcss")
    TITLE = "ddpwizard"
    ABOUT = (
        "Choose what is wrong by its number. Or press tab and describe it: with an error line, a sentence, or the path "
        "of a log or of a script (tab completes the path). The machine and its running jobs are inspected in the "
        "background; nothing is changed."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "write", "describe", id="home.write", tooltip="Describe what you see in your own words"),
        Binding("slash", "browse", "search", id="home.search", tooltip="Search the knowledge base"),
        Binding("r", "refresh", "refresh", id="home.look", tooltip="Inspect the machine and its jobs again"),
        Binding(
            RESUME_KEY,
            "resume",
            "resume",
            show=False,
            id="home.resume",
            tooltip="Continue the last session where you left it",
        ),
        Binding(LEARN_KEY, "learn", "learn", show=False, id="home.learn", tooltip="Chapters and labs"),
        Binding("ctrl+p", "app.palette", "all commands", id="home.palette", tooltip="Find any action by its name"),
    ]

    class ProbeDone(Message):
        """One probe has finished or failed."""

        def __init__(self, probe: str, found: Snapshot) -> None:
            super().__init__()
            self.probe, self.found = probe, found

    class JobsTriaged(Message):
        """The jobs of this machine were sampled."""

        def __init__(self, reports: list[JobReport], problem: str = "") -> None:
            super().__init__()
            self.reports, self.problem = reports, problem

    def __init__(self) -> None:
        super().__init__()
        self._pending: set[str] = set()  # probes that have not finished
        self._unfinished: Session | None = None
        self._chosen: Symptom | None = None  # of a running job, chosen before the jobs were sampled
        self._begun = False
        self._next_sample: Timer | None = None

    def body(self) -> Iterable[Widget]:
        yield StatusCells()
        yield Static(Content.styled("What is wrong?", "bold"), classes="ask")
        yield Choices(self._rows(), id="wrong", verb="", note_column=NOTE_COLUMN)
        yield LineInput(placeholder="or describe what you see", id="words")

    def on_mount(self) -> None:
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """Read the sessions and the knowledge base, and inspect the machine, all after the first frame."""
        if not self._begun:
            self._begun = True
            self._unfinished = unfinished_session()
            self._show()
            self.action_refresh()

    # -- inspecting the machine

    def action_refresh(self) -> None:
        """Run the probes and sample the jobs, all at once, each with its own time limit."""
        probes = self.state.may_probe("reads")
        self._pending = {*probes, "job"}
        self._show_running()
        self.workers.cancel_group(self, "probes")
        for work in (self._sample_jobs(), *(self._probe(probe) for probe in probes)):
            self.run_worker(work, group="probes")

    async def _probe(self, probe: str) -> None:
        self.post_message(self.ProbeDone(probe, await self.state.run_probes([probe], self.state.context(), "reads")))

    async def _sample_jobs(self) -> None:
        try:
            self.post_message(self.JobsTriaged(await self.state.triage(None)))
        except UserError as error:
            self.post_message(self.JobsTriaged([], str(error)))

    @on(ProbeDone)
    def _probe_done(self, event: ProbeDone) -> None:
        self._pending.discard(event.probe)
        self.state.add_snapshot(event.found)
        self._show()

    @on(JobsTriaged)
    async def _jobs_triaged(self, event: JobsTriaged) -> None:
        self._pending.discard("job")
        self.state.reports = event.reports
        chosen, self._chosen = self._chosen, None
        self._show()
        if chosen and self.app.screen is self:
            await self._begin_case(chosen)
            return
        if event.problem:
            self.show_status(event.problem)
        self._stop_sampling()
        self._next_sample = self.set_timer(JOBS_EVERY_S, self._sample_again)

    def _sample_again(self) -> None:
        if self.app.screen is self:
            self.run_worker(self._sample_jobs(), group="jobs", exclusive=True)

    def _stop_sampling(self) -> None:
        if self._next_sample:
            self._next_sample.stop()

    def on_screen_suspend(self) -> None:
        self._stop_sampling()

    def on_screen_resume(self) -> None:
        if self._begun:
            self._unfinished = unfinished_session()
            self._show()
            self._sample_again()

    # -- showing

    def _show(self) -> None:
        self.query_one(StatusCells).show_changes()
        self.show_header(facts=machine_line(self.state))
        choices = self.query_one("#wrong", Choices)
        choices.note_column = NOTE_COLUMN if self.size.width >= TWO_COLUMNS else 0
        choices.set_items(self._rows())
        self._show_running()

    def cancel_running(self) -> bool:
        self._pending, self._chosen = set(), None
        return super().cancel_running()

    def _show_running(self) -> None:
        if self.reading:
            return
        what = "sampling the ranks of your jobs" if self._chosen else "inspecting this machine"
        running = Content.assemble(("● ", "$accent"), (what, "$muted"))
        self.show_status(running if self._pending else next(iter(self.state.warnings), ""))

    def _rows(self) -> list[Choice]:
        labels = {symptom.id: symptom.label for symptom in SYMPTOMS} | TASKS
        keys = {"learn": LEARN_KEY}
        rows = [Choice(id_, label, self._note(id_), keys.get(id_, "")) for id_, label in labels.items()]
        if self._unfinished:
            note = safe_content(_age_and_subject(self._unfinished), "$muted")
            note = note.truncate(max(self.size.width - NOTE_COLUMN - NOTE_MARGIN, 1), ellipsis=True)
            rows.append(Choice("resume", "Continue the last session", note, key=RESUME_KEY))
        return rows

    def _note(self, id_: str) -> Content:
        if id_ == "hangs":
            return safe_content(hung_job_note(self.state.reports or []), "$warning")
        if id_ == "slow":
            return safe_content(slow_job_note(self.state.reports or []), "$warning")
        return safe_content(counts_text(self.state.checks, PROBLEMS), "$warning") if id_ == "check" else Content("")

    # -- choosing

    @on(Choices.Picked)
    async def _picked(self, event: Choices.Picked) -> None:
        symptom = next((symptom for symptom in SYMPTOMS if symptom.id == event.id), None)
        try:
            if event.id == "resume":
                await self.action_resume()
            elif symptom:
                await self._begin_case(symptom)
            else:
                await self.wizard.open(event.id)
        except UserError as error:
            self.wizard.show_error(error)

    async def _begin_case(self, symptom: Symptom) -> None:
        will_sample = "job" in self._pending or not self._begun
        if symptom.id in OF_A_RUNNING_JOB and will_sample and self.state.reports is None:
            self._chosen = symptom
            self._show_running()
            return
        case = self.state.begin()
        for question, answer in symptom.answers.items():
            case.answer(question, answer)
        if symptom.id in WITH_LOG:
            await self.wizard.open("paste")
        elif symptom.id in OF_A_RUNNING_JOB and self.state.reports:
            reports = self.state.reports if symptom.id == "hangs" else slow_jobs_first(self.state.reports)
            await self.wizard.open("triage", reports=reports)
        else:
            await self.wizard.open("step")

    @on(Input.Submitted)
    async def _described(self, event: Input.Submitted) -> None:
        if event.value.strip():
            await self.take(event.value, "your words", new_case=True)
            event.input.clear()
            if self.reading:
                self.query_one("#wrong").focus()  # there escape cancels

    @on(LineInput.PastedLines)
    async def _pasted(self, event: LineInput.PastedLines) -> None:
        await self.take(event.text, "your words", new_case=True)

    def action_write(self) -> None:
        """Enter the line of text, complete a path in it, or leave it."""
        words, choices = self.query_one("#words", LineInput), self.query_one("#wrong")
        if words.has_focus and words.complete_path():
            return
        (choices if words.has_focus else words).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._unfinished is not None if action == "resume" else super().check_action(action, parameters)

    async def action_resume(self) -> None:
        if self._unfinished:
            try:
                screen, arguments = self.state.resume(self._unfinished.id)
                await self.wizard.open(screen, **arguments)
            except UserError as error:
                self.wizard.show_error(error)

    async def action_learn(self) -> None:
        await self.wizard.open("learn")

    async def action_browse(self) -> None:
        await self.wizard.open("browse", searching=True)

    async def action_back(self) -> None:
        if self.cancel_reading():
            self.show_status("Cancelled.")
        self.query_one("#wrong").focus()


def _age_and_subject(session: Session) -> str:
    import time

    from ...app.diagnosis.session_subject import subject_text  # imports the judgement of jobs

    age = f"{seconds_text(time.time() - session.events[-1].at, whole=True)} ago"
    return ", ".join(filter(None, [age, subject_text(session)]))
