"""One lab: its story and code, the run with a pane for each rank, the learner's guess, the evidence, the repair."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from ...app.errors import UserError
from ...app.fixes.fix_text import fix_lines
from ...app.fixes.types import Place
from ...app.labs.course import CourseLab
from ...app.labs.lab_run import START_LIMIT_S
from ...app.labs.lab_session import LabProof, LabSession
from ...app.labs.phrases import FAILURE_TEXT, evidence_lines, numbered_code
from ...app.labs.rank_output import printed_line
from ...app.options import target_python
from ...app.text.terminal import align_columns
from ...app.triage.rank_groups import rank_groups, rank_table
from ...app.triage.types import JobReport
from ..dialogs.confirm import ConfirmDialog
from ..dialogs.pick import PickDialog
from ..shell.base import WizardScreen
from ..shell.editor import open_in_editor
from ..widgets.choices import Choice
from ..widgets.formatting import join_lines, reflow, safe_content, status_sign
from ..widgets.progress_line import ProgressLine
from ..widgets.source import diff_line
from .rank_panes import rank_panes

PARTS = ("story", "code", "output", "ranks", "evidence", "fix")
SHOW_ANSWER = "show-answer"


class LabScreen(WizardScreen):
    """A job that fails, to find out why and to repair it."""

    CSS_PATH = Path(__file__).with_name("lab.tcss")
    TITLE = "Lab"
    AUTO_FOCUS = "VerticalScroll"
    ABOUT = (
        "Run the job and watch how it fails. Name the cause: hints help, and a wrong guess costs nothing. Then repair "
        "your copy, by hand or with the fix of the wizard, and prove it: the same job runs again."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "run", "run it", id="lab.run", tooltip="Start the job as its files are now"),
        Binding("h", "hint", "hint", id="lab.hint", tooltip="Show the next of three hints"),
        Binding("g", "guess", "name the cause", id="lab.guess", tooltip="Choose the cause among similar ones"),
        Binding("a", "apply", "apply the fix", id="lab.apply", tooltip="Write the fix of the wizard to your copy"),
        Binding("e", "edit", "edit", id="lab.edit", tooltip="Open your copy of the script in your editor"),
        Binding("v", "prove", "prove", id="lab.prove", tooltip="Run the repaired job"),
        Binding("x", "reset", "restore", id="lab.reset", tooltip="Restore the files of the lab"),
        Binding("left", "part(-1)", "part", show=False, id="lab.left", tooltip="Show the part to the left"),
        Binding("right", "part(1)", "part", show=False, id="lab.right", tooltip="Show the part to the right"),
    ]

    class Printed(Message):
        """The job has printed a line."""

        def __init__(self, line: str) -> None:
            super().__init__()
            self.line = line

    class Sampled(Message):
        """The ranks of the job were sampled."""

        def __init__(self, report: JobReport) -> None:
            super().__init__()
            self.report = report

    class RunEnded(Message):
        """A run has ended: ``failed`` as the lab shows, or with ``proof`` the result of the repaired job."""

        def __init__(self, failed: bool = False, proof: LabProof | None = None, error: UserError | None = None) -> None:
            super().__init__()
            self.failed, self.proof, self.error = failed, proof, error

    def __init__(self, entry: CourseLab) -> None:
        super().__init__()
        self._entry = entry
        self._part = "story"
        self._printed: defaultdict[int | None, list[str]] = defaultdict(list)
        self._report: JobReport | None = None
        self._answered = self._job_runs = False

    @property
    def session(self) -> LabSession:
        """The learner's way through this lab."""
        if not hasattr(self, "_session"):
            self._session = LabSession(self._entry.lab, self.state.knowledge, target_python(self.state.options))
        return self._session

    def body(self) -> Iterable[Widget]:
        yield Static(id="parts")
        with VerticalScroll(id="part"):
            yield Static(id="shown")
        yield ProgressLine(self.ascii_only)

    def on_mount(self) -> None:
        self.show_header(f"Lab {self._entry.number}: {self._entry.lab.title}")
        if not self._entry.lab.launch:
            self.session.read_log()
        self._show("story" if self._entry.lab.launch else "code")
        self.show_status(self._next_step())

    # -- what is shown

    def _available(self) -> list[str]:
        runs = bool(self._entry.lab.launch)
        shown = {
            "output": bool(self._printed),
            "ranks": self._report is not None,
            "evidence": self._answered,
            "fix": self._answered and runs and self.session.found is not None,
        }
        return [part for part in PARTS if shown.get(part, True)]

    def _show(self, part: str) -> None:
        self._part = part
        tabs = [Content.styled(f" {each} ", "reverse" if each == part else "$muted") for each in self._available()]
        self.query_one("#parts", Static).update(Content.assemble(*(piece for tab in tabs for piece in (tab, " "))))
        self.query_one("#shown", Static).update(self._content(part))
        self.keys_changed()

    def _content(self, part: str) -> Content:
        lab, scroll = self._entry.lab, self.query_one("#part", VerticalScroll)
        if part == "story":
            return join_lines(safe_content(reflow(lab.story)), Content(""), safe_content(f"$ {lab.launch}", "$muted"))
        if part == "code":
            rows: list[Content] = []
            for path in lab.files:
                copy = self.session.directory / path.relative_to(lab.directory)
                rows.append(safe_content(str(copy), "bold"))
                rows += map(safe_content, numbered_code(copy.read_text(encoding="utf-8", errors="replace")))
            return join_lines(*rows)
        if part == "output":
            return rank_panes(self._printed, scroll.size.width - 2, scroll.size.height)
        if part == "ranks" and self._report:
            header, rows_of_ranks = rank_table(rank_groups(self._report))
            return join_lines(*map(safe_content, align_columns([header, *rows_of_ranks])))
        if part == "evidence":
            return join_lines(*map(safe_content, evidence_lines(self.session)))
        return self._fix_content()

    def _fix_content(self) -> Content:
        try:
            fix = self.session.repair().fix
        except UserError as error:
            return safe_content(str(error))
        return join_lines(*map(safe_content, fix_lines(fix)), *map(diff_line, fix.diff().splitlines()))

    def _next_step(self) -> str:
        if not self._entry.lab.launch:
            return "" if self._answered else "g: name the cause · h: a hint"
        if self.session.found is None:
            return "r: run it"
        return "a: apply the fix · e: edit your copy · v: prove" if self._answered else "g: name the cause · h: a hint"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        runs = bool(self._entry.lab.launch)
        match action:
            case "run" | "reset" | "edit":
                return runs and not self._job_runs
            case "guess" | "hint":
                return not self._answered and not self._job_runs
            case "apply" | "prove":
                return runs and self._answered and not self._job_runs
            case _:
                return super().check_action(action, parameters)

    def action_part(self, step: int) -> None:
        parts = self._available()
        at = parts.index(self._part) if self._part in parts else 0
        self._show(parts[(at + step) % len(parts)])

    # -- running

    def action_run(self) -> None:
        self._begin("the job runs")
        self.run_worker(self._run(), group="lab", exclusive=True)

    def action_prove(self) -> None:
        self._begin("the repaired job runs")
        self.run_worker(self._prove(), group="lab", exclusive=True)

    def _begin(self, what: str) -> None:
        self._job_runs = True
        self._printed.clear()
        self._report = None
        self.query_one(ProgressLine).begin(what, START_LIMIT_S + self._entry.lab.within_s)
        self.show_status("")
        self._show("output")

    async def _run(self) -> None:
        try:
            failed = await self.session.start(
                lambda line: self._note(self.Printed(line)), lambda report: self._note(self.Sampled(report))
            )
            self.post_message(self.RunEnded(failed))
        except UserError as error:
            self.post_message(self.RunEnded(error=error))

    async def _prove(self) -> None:
        try:
            proof = await self.session.prove(lambda line: self._note(self.Printed(line)))
            self.post_message(self.RunEnded(proof=proof))
        except UserError as error:
            self.post_message(self.RunEnded(error=error))

    def _note(self, message: Message) -> None:
        self.post_message(message)

    @on(Printed)
    def _show_line(self, event: Printed) -> None:
        if line := printed_line(event.line):
            self._printed[line.rank].append(line.text)
            if self._part == "output":
                self._show("output")

    @on(Sampled)
    def _show_sample(self, event: Sampled) -> None:
        first, self._report = self._report is None, event.report
        if first or self._part == "ranks":
            self._show("ranks")

    @on(RunEnded)
    def _run_ended(self, event: RunEnded) -> None:
        self._job_runs = False
        self.query_one(ProgressLine).end()
        if event.error:
            self.wizard.show_error(event.error)
        elif event.proof:
            sign = status_sign("ok" if event.proof.outcome == "proved" else "fail", self.ascii_only)
            self.show_status(Content.assemble(sign, " ", safe_content(f"{event.proof.outcome}: {event.proof.what}")))
        elif event.failed:
            self.show_status(f"{FAILURE_TEXT[self._entry.lab.failure]}  {self._next_step()}")
        else:
            self.show_status("It did not fail this time. x restores its files.")
        if self.session.run and self.session.run.report:
            self._report = self.session.run.report
        self._show("ranks" if self._report and not event.proof else "output")

    def cancel_running(self) -> bool:
        if not super().cancel_running():
            return False
        self._job_runs = False
        self.query_one(ProgressLine).end()
        self.keys_changed()
        return True

    # -- the learner's answers

    def action_hint(self) -> None:
        hint = self.session.next_hint()
        self.show_status(f"Hint {self.session.progress.hints} of 3: {hint}")

    def action_guess(self) -> None:
        if self._entry.lab.launch and self.session.found is None:
            self.show_status("Run it first: r")
            return
        causes = self.state.knowledge.causes
        rows = [Choice(id_, safe_content(causes[id_].title)) for id_ in self.session.choices]
        rows.append(Choice(SHOW_ANSWER, Content.styled("Show the answer", "$muted")))
        self.app.push_screen(PickDialog("What is the cause?", rows), callback=self._guessed)

    def _guessed(self, cause: str | None) -> None:
        if cause is None:
            return
        right = cause != SHOW_ANSWER and self.session.guess(cause)
        if not right and cause != SHOW_ANSWER:
            self.show_status("No, it is another one. h: a hint")
            return
        self._answered = True
        self._show("evidence")
        self.show_status(f"{'Right. ' if right else ''}{self._next_step()}")

    # -- the repair

    async def action_apply(self) -> None:
        try:
            repair = self.session.repair()
        except UserError as error:
            self.wizard.show_error(error)
            return
        self._show("fix")

        def answered(yes: bool | None) -> None:
            if yes:
                self.session.apply(repair)
                self.show_status("Applied to your copy. v: prove it")

        await self.app.push_screen(
            ConfirmDialog(f"Write the fix to your copy in {self.session.directory}?", yes="Yes, apply it"),
            callback=answered,
        )

    def action_edit(self) -> None:
        try:
            open_in_editor(self.app, Place(path=str(self.session.script), line=1))
        except UserError as error:
            self.wizard.show_error(error)
            return
        self._show("code")
        self.show_status("v: prove it" if self._answered else self._next_step())

    def action_reset(self) -> None:
        self.session.reset()
        self._printed.clear()
        self._report = None
        self._answered = False
        self._show("story")
        self.show_status("The files of the lab are restored. r: run it")
