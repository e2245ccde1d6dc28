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
from textual.widgets import Static

from ...app.diagnosis import dialogue
from ...app.diagnosis.case import FRONT_DOOR, SKIPPED
from ...app.evidence import Diagnosis, NextStep
from ...app.snapshot import Snapshot
from ...app.text.units import count_text
from ...knowledge.schema import Intrusiveness
from ..shell.base import WizardScreen
from ..widgets.cause_ranking import CauseRanking
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import safe_content, status_sign
from ..widgets.progress_line import ProgressLine

NO_QUESTION = "no-more"  # id of the row that is shown if no question is left


class QuestionScreen(WizardScreen):
    """Asks what no probe can find out."""

    CSS_PATH = Path(__file__).with_name("question.tcss")
    TITLE = "One question at a time"
    ABOUT = (
        "Answer by number. The list on the right shows which causes your answers and the probes support. Probes that "
        "only read run in the background; nothing is changed. You can go back, skip, or stop asking at any time."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "skip", "skip", id="step.skip", tooltip="Skip this question"),
        Binding("b", "take_back", "back", id="step.back", tooltip="Take the last answer back and ask again"),
        Binding("d", "diagnosis", "diagnosis", id="step.diagnosis", tooltip="Show the diagnosis so far"),
        Binding("p", "probes", "probes", id="step.probes", tooltip="Show which probes ran, and run another"),
        Binding("w", "why", "why this order", id="step.why", tooltip="Show the expected gain of each next step"),
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

    def body(self) -> Iterable[Widget]:
        with Container(id="sides"):
            with Vertical(id="asked"):
                yield Static(id="question")
                yield Choices(id="answers", verb="answer")
                yield Static(id="reason")
            yield CauseRanking()
        yield ProgressLine(self.ascii_only)

    def on_mount(self) -> None:
        self._next()

    # -- the case moves

    @on(Choices.Picked, "#answers")
    async def _answered(self, event: Choices.Picked) -> None:
        if event.id == NO_QUESTION:
            await self.action_diagnosis()
            return
        self.state.case.answer(self.question, event.id)
        await self._go_on()

    async def action_skip(self) -> None:
        if self.question:
            self.state.case.answer(self.question, SKIPPED)
            await self._go_on()

    async def action_take_back(self) -> None:
        answers = list(self.state.case.answers)
        if not answers:
            await self.action_back()
            return
        self.state.case.take_back_answer(answers[-1])
        self._offered = False
        self._next(answers[-1])

    async def _go_on(self) -> None:
        """Ask the next question, or show the diagnosis, once, if it is sure."""
        diagnosis = self._next()
        if not self._offered and not self._probing and (dialogue.is_sure(diagnosis) or not self.question):
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
        answers = self.query_one("#answers", Choices)
        if spec is None:
            self.query_one("#question", Static).update(Content.styled("I have no more questions.", "bold"))
            answers.set_items([Choice(NO_QUESTION, "Show the diagnosis")])
            self.query_one("#reason", Static).update("")
            return
        self.query_one("#question", Static).update(safe_content(spec.ask, "bold"))
        answers.set_items([Choice(id_, safe_content(label)) for id_, label in spec.answers.items()])
        self.query_one("#reason", Static).update(safe_content(f"Why I ask: {spec.why}", "$muted"))

    def _show(self, diagnosis: Diagnosis) -> None:
        self.query_one(CauseRanking).show(diagnosis)
        case = self.state.case
        symptom = self.state.knowledge.questions[FRONT_DOOR].answers.get(case.answers.get(FRONT_DOOR, ""), "")
        probes = count_text(len(case.probed), "probe")
        self.show_header(symptom or self.TITLE, f"step {len(case.answers) + 1} · {probes} ran")

    # -- other pages

    async def action_diagnosis(self) -> None:
        await self.wizard.open("diagnosis")

    def action_why(self) -> None:
        from ..dialogs.page import TextDialog

        rows = [_gain_row(step) for step in self.state.diagnosis().next]
        about = Content(
            "Expected information of each step about the cause, in bits, weighed by the time it takes. Probes that "
            "may run without being asked for come first.\n"
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
