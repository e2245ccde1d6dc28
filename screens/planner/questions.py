"""The interview on the screen: five questions in place of the form, each answer with its figure, and the files."""

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from ...app.errors import UserError
from ...app.plan import form_fields, interview, plan_answer
from ..shell.base import WizardScreen
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import safe_content
from ..widgets.line_input import LineInput

STEPS = tuple(interview.QUESTIONS)
TYPED = ("model", "gpus")  # answered with a line of text


class InterviewResult(NamedTuple):
    """The fields of the form that were answered, and a line on what was written."""

    values: dict[str, str]
    done: str = ""


class InterviewScreen(WizardScreen):
    """Asks what the form needs; dismisses with an ``InterviewResult``, or None if it was left before the strategies."""

    CSS_PATH = Path(__file__).with_name("planner.tcss")
    TITLE = "Five questions"
    ABOUT = (
        "Five questions for a plan: which model, which GPUs, what is trained, how long the texts are, which strategy. "
        "Each answer has its figures on your GPUs. The strategies come with the reason for the first, and for why not "
        "each of the others; the one you choose shows the files that run it. Escape goes back by a question."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "back", "back", id="interview.back", tooltip="Go back by a question"),
    ]

    class Ready(Message):
        """The answers of a question were computed, or why they were not; ``step`` is its place."""

        def __init__(self, step: int, items: list[Choice], found: plan_answer.PlanAnswer | UserError | None) -> None:
            super().__init__()
            self.step, self.items, self.found = step, items, found

    def __init__(self, values: dict[str, str], machine: form_fields.FormMachine) -> None:
        super().__init__()
        self._values, self._machine = dict(values), machine
        self._step = 0
        self._fields: dict[str, dict[str, str]] = {}  # that each answer sets, by its id
        self._found: plan_answer.PlanAnswer | None = None

    def body(self) -> Iterable[Widget]:
        yield Static(id="question")
        yield LineInput(closes=True, id="line")
        yield Choices(id="answers", verb="answer")

    def on_mount(self) -> None:
        self._ask()

    # -- asking

    @property
    def _question(self) -> str:
        return STEPS[self._step]

    def _ask(self) -> None:
        """Show the question of this step; its answers are computed in a thread."""
        self.show_header(facts=f"{self._step + 1} of {len(STEPS)}")
        self.query_one("#question", Static).update(safe_content(interview.QUESTIONS[self._question], "bold"))
        line, answers = self.query_one("#line", LineInput), self.query_one("#answers", Choices)
        typed = self._question in TYPED
        line.display, answers.display = typed, not typed
        self.show_status(safe_content("Enter answers; esc goes back by a question." if typed else "", "$muted"))
        if typed:
            line.value = self._values["model"] if self._question == "model" else interview.gpus_text(self._values)
            line.cursor_position = len(line.value)
            line.focus()
            return
        answers.set_items([])
        answers.focus()
        self.run_worker(self._compute(self._step), group="answers", exclusive=True)

    async def _compute(self, step: int) -> None:
        self.post_message(self.Ready(step, *await asyncio.to_thread(partial(self._answers, STEPS[step]))))

    def _answers(self, name: str) -> tuple[list[Choice], plan_answer.PlanAnswer | UserError | None]:
        if name != "strategy":
            found = interview.answers(name, self._values, self._machine)
            self._fields = {each.label: dict(each.fields) for each in found}
            return [_choice(each.label, each.label, each.figure) for each in found], None
        try:
            plan = plan_answer.make_answer(form_fields.request_from_form(self._values, self._machine))
        except UserError as error:
            return [], error
        rows = interview.strategy_answers(plan.rows)
        return [_choice(str(at), *text.split(": ", 1)) for at, text in rows], plan

    @on(Ready)
    def _ready(self, event: Ready) -> None:
        if event.step != self._step:
            return
        if isinstance(event.found, UserError):
            self.wizard.show_error(event.found)
            return
        self._found = event.found
        answers = self.query_one("#answers", Choices)
        answers.set_items(event.items, first=True)
        if self._question == "length":
            answers.highlighted = interview.USUAL_LENGTH

    # -- answering

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        given = event.value.strip()
        try:
            if self._question == "model":
                form_fields.check_model(given)
                self._answered({"model": given})
            else:
                self._answered(interview.parse_gpus(given, self._values, self._machine))
        except UserError as error:
            self.wizard.show_error(error)

    @on(Choices.Picked)
    def _picked(self, event: Choices.Picked) -> None:
        if self._question != "strategy":
            self._answered(self._fields[event.id])
        elif self._found:
            from .write_files import PlanWriteScreen

            row = self._found.rows[int(event.id)]
            screen = PlanWriteScreen(row, self._found.request.links)
            self.app.push_screen(screen, callback=lambda wrote: self._wrote(wrote, screen.start_command))

    def _answered(self, fields: dict[str, str]) -> None:
        self._values |= fields
        self._step += 1
        self._ask()

    def _wrote(self, wrote: str | None, start: str) -> None:
        if wrote:
            self.dismiss(InterviewResult(self._values, f"{wrote} Start: {start}"))

    async def action_back(self) -> None:
        if self._question == "strategy":
            self.dismiss(InterviewResult(self._values))
        elif self._step:
            self._step -= 1
            self._ask()
        else:
            self.dismiss(None)


def _choice(id_: str, label: str, figure: str) -> Choice:
    """Return an answer on two rows: what it is, and its figure."""
    return Choice(id_, Content.assemble(safe_content(label, "bold"), "\n", safe_content(figure, "$muted")))
