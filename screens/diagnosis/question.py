"""One question of the wizard, with the ranking next to it; permitted probes run in the background."""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from ...app.diagnosis import dialogue
from ...app.diagnosis.case import SCRIPT_PATH, SKIPPED
from ...app.diagnosis.experiment import ELSEWHERE, INSPECT_THERE, WHERE_IS_JOB, Experiment, choose_experiment
from ...app.diagnosis.symptoms import symptom_of
from ...app.errors import UserError
from ...app.evidence import Diagnosis, NextStep
from ...app.snapshot import Snapshot
from ...app.text.units import count_text
from ...knowledge.schema import Intrusiveness
from ..shell.base import WizardScreen
from ..widgets.cause_ranking import CauseRanking
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import safe_content, status_sign
from ..widgets.line_input import LineInput
from ..widgets.progress_line import ProgressLine

NO_QUESTION, GO_ON = "no-more", "go-on"  # ids of rows below the commands of an experiment
COMMAND = "command:"  # prefix of the id of such a command


class QuestionScreen(WizardScreen):
    """Asks what no probe can find out."""

    CSS_PATH = Path(__file__).with_name("question.tcss")
    TITLE = "One question at a time"
    ABOUT = (
        "Answer by number. The list shows the causes that your answers and the probes support. Probes are checks of "
        "this machine that run in the background; while a job runs, only those that read. You can go back, skip a "
        f"question, or leave at any time. If {dialogue.MOST_QUESTIONS} answers do not single out a cause, a command to "
        "run next is shown."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "skip", "skip", id="step.skip", tooltip="Skip this question"),
        Binding("b", "take_back", "back", id="step.back", tooltip="Take the last answer back and ask again"),
        Binding("f", "fix", "fix", id="step.fix", tooltip="Show the fixes of the most likely cause"),
        Binding("tab", "complete", "complete", show=False, id="step.complete", tooltip="Complete the path"),
        Binding("d", "diagnosis", "diagnosis", id="step.diagnosis", tooltip="Show the diagnosis so far"),
        Binding("p", "probes", "probes", id="step.probes", tooltip="Show the probes, and run one"),
        Binding("w", "why", "why this order", id="step.why", tooltip="Show why this question comes first"),
    ]

    class ProbeDone(Message):
        """A probe has finished or failed."""

        def __init__(self, probe: str, found: Snapshot) -> None:
            super().__init__()
            self.probe, self.found = probe, found

    def __init__(self) -> None:
        super().__init__()
        self.question = ""
        self._probing = ""
        self._offered = False
        self._experiment: Experiment | None = None

    def body(self) -> Iterable[Widget]:
        with Container(id="sides"):
            with Vertical(id="asked"):
                yield Static(id="question")
                yield Static(id="reason")
                yield LineInput(placeholder="such as train.py; press enter to skip", closes=True, id="path")
                yield Choices(id="answers", verb="answer")
            yield CauseRanking()
        yield ProgressLine(self.ascii_only)

    def on_mount(self) -> None:
        self._next()

    # -- the case moves

    @on(Choices.Picked, "#answers")
    async def _answered(self, event: Choices.Picked) -> None:
        if event.id == NO_QUESTION:
            await self.action_diagnosis()
        elif event.id == GO_ON:
            await self._continue()
        elif event.id.startswith(COMMAND):
            await self._copy(event.id.removeprefix(COMMAND))
        else:
            self.state.case.answer(self.question, event.id)
            if self.question == WHERE_IS_JOB and event.id in ELSEWHERE:
                self._show_experiment(INSPECT_THERE, goes_on=True)
            else:
                await self._continue()

    @on(Input.Submitted, "#path")
    async def _path_given(self, event: Input.Submitted) -> None:
        from ..shell.take_text import take_script_path

        if not event.value.strip():
            await self.action_skip()
            return
        try:
            line = take_script_path(self.state, event.value)
        except UserError as error:
            self.wizard.show_error(error)
            return
        await self._continue()
        self.show_status(line)

    async def _copy(self, command: str) -> None:
        from ..shell.clipboard import copy_to_clipboard

        try:
            self.show_status(await copy_to_clipboard(self.app, "experiment.txt", command))
        except UserError as error:
            self.wizard.show_error(error)

    def action_complete(self) -> None:
        path = self.query_one("#path", LineInput)
        if path.has_focus and not path.complete_path():
            self.query_one("#answers", Choices).focus()

    async def action_skip(self) -> None:
        if self.question:
            self.state.case.answer(self.question, SKIPPED)
            await self._continue()

    async def action_take_back(self) -> None:
        answers = list(self.state.case.answers)
        if not answers:
            await self.action_back()
            return
        self.state.case.take_back_answer(answers[-1])
        self._offered = False
        self._next(answers[-1])

    async def _continue(self) -> None:
        """Ask the next question, or show the diagnosis, once, if it is sure."""
        diagnosis = self._next()
        if not self._offered and not self._probing and dialogue.is_sure(diagnosis):
            self._offered = True
            await self.action_diagnosis()

    def _next(self, question: str = "") -> Diagnosis:
        """Rank again, start the best probe that may run, and show ``question`` or the most useful one."""
        diagnosis = self.state.diagnosis()
        self.question = question or dialogue.next_question(self.state.case, diagnosis)
        self.state.record_navigation("step", self.question)
        self._show_question()
        self._show(diagnosis)
        self._start_probe(diagnosis)
        return diagnosis

    def _start_probe(self, diagnosis: Diagnosis) -> None:
        probe = dialogue.next_probe(diagnosis)
        if probe and not self._probing:
            self.probe(probe, self.state.granted)

    def probe(self, probe: str, granted: Intrusiveness) -> None:
        """Run one probe in the background."""
        spec = self.state.knowledge.probes[probe]
        self._probing = probe
        self.query_one(ProgressLine).begin(spec.title, spec.limit_s)
        self.run_worker(self._probe(probe, granted), group="probe", exclusive=True)

    async def _probe(self, probe: str, granted: Intrusiveness) -> None:
        found = await self.state.run_probes([probe], self.state.context(), granted)
        self.post_message(self.ProbeDone(probe, found))

    @on(ProbeDone)
    def _probed(self, event: ProbeDone) -> None:
        self._probing = ""
        self.query_one(ProgressLine).end()
        self.state.add_snapshot(event.found)
        problem = event.found.failed.get(event.probe)
        sign = status_sign("unknown" if problem else "ok", self.ascii_only)
        title = self.state.knowledge.probes[event.probe].title
        result = f" {title}: failed, {problem}" if problem else f" {title}: done"
        self.show_status(Content.assemble(sign, safe_content(result)))
        diagnosis = self.state.diagnosis()
        self._show(diagnosis)
        self._start_probe(diagnosis)

    def cancel_running(self) -> bool:
        if not super().cancel_running():
            return False
        self.state.case.mark_probed(self._probing)
        self._probing = ""
        self.query_one(ProgressLine).end()
        return True

    # -- showing

    def _show_question(self) -> None:
        spec = self.state.knowledge.questions.get(self.question)
        self._show_path_input(self.question == SCRIPT_PATH)
        if self.question == SCRIPT_PATH:
            self._show_asked(dialogue.SCRIPT_ASKED, [], dialogue.SCRIPT_WHY)
        elif spec:
            offered = self.state.case.answers_to_offer(self.question)
            rows = [Choice(id_, safe_content(label)) for id_, label in offered.items()]
            self._show_asked(spec.ask, rows, spec.why)
        elif dialogue.is_sure(self.state.diagnosis()):
            self._show_asked(dialogue.CLEAR_ENOUGH, [Choice(NO_QUESTION, "Show the diagnosis")], "")
        else:
            self._show_experiment(dialogue.NOT_DECIDED)

    def _show_experiment(self, title: str, *, goes_on: bool = False) -> None:
        """Show what to run; a command is copied when it is chosen."""
        found = choose_experiment(self.state.case, self.state.launch_command)
        rows = [Choice(f"{COMMAND}{command}", safe_content(command)) for command in found.commands]
        rows += [Choice(GO_ON, "Continue with questions")] if goes_on else []
        self._show_asked(title, [*rows, Choice(NO_QUESTION, "Show the diagnosis so far")], found.shows, why="")

    def _show_asked(self, asked: str, rows: list[Choice], reason: str, why: str = "Why I ask: ") -> None:
        self.query_one("#question", Static).update(safe_content(asked, "bold"))
        self.query_one("#answers", Choices).set_items(rows, first=True)
        self.query_one("#reason", Static).update(safe_content(f"{why if reason else ''}{reason}", "$muted"))

    def _show_path_input(self, shown: bool) -> None:
        path, answers = self.query_one("#path", LineInput), self.query_one("#answers", Choices)
        path.display, answers.display = shown, not shown
        if shown:
            path.clear()
        (path if shown else answers).focus()

    def _show(self, diagnosis: Diagnosis) -> None:
        self.query_one(CauseRanking).show(diagnosis)
        case = self.state.case
        symptom = symptom_of(case.answers)
        probes = count_text(len(case.probed), "probe")
        asked = dialogue.MOST_QUESTIONS - dialogue.questions_left(case)
        step = (
            f"question {asked + 1} of {dialogue.MOST_QUESTIONS} at most"
            if self.question
            else f"{count_text(asked, 'question')} asked"
        )
        self.show_header(symptom.label if symptom else self.TITLE, f"{step} · {probes} ran")

    # -- other pages

    async def action_fix(self) -> None:
        if named := self.state.diagnosis().named(1):
            await self.wizard.open("fix", cause=named[0].id)
        else:
            self.show_status("No cause yet: answer a question, or paste a log.")

    async def action_diagnosis(self) -> None:
        await self.wizard.open("diagnosis")

    def action_why(self) -> None:
        from ..dialogs.page import TextDialog

        rows = [_gain_row(step) for step in self.state.diagnosis().next]
        about = Content(
            "The questions and probes that can come next, with the information in bits that each is expected to give. "
            "A quick step is preferred to a slow one. Probes that need no consent come first.\n"
        )
        self.app.push_screen(TextDialog("Why this order", Content("\n").join([about, *rows])))

    def action_probes(self) -> None:
        from ..dialogs.probes import ProbesScreen

        self.app.push_screen(ProbesScreen(), callback=self._probe_asked)

    def _probe_asked(self, probe: str | None) -> None:
        if probe:
            self.cancel_running()
            self.probe(probe, self.state.knowledge.probes[probe].intrusiveness)


def _gain_row(step: NextStep) -> Content:
    kind = "probe" if step.kind == "probe" else "ask"
    return Content.assemble(
        (f"{step.expected_gain:6.2f} bit  ", "bold"), (kind.ljust(7), "$muted"), safe_content(step.text)
    )
