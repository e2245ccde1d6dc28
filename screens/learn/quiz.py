"""The quiz: a log of several ranks, and the question which of them was first."""

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from ...app.labs.quiz import QUESTION, Quiz
from ...app.options import knowledge_directories
from ..dialogs.term_lookup import LookupMixin
from ..shell.base import WizardScreen
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import safe_content, status_sign
from ..widgets.long_text import LongText

MARGINS = 7  # padding and the scroll bar


class QuizScreen(LookupMixin, WizardScreen):
    """One question at a time, from the first that has no answer on."""

    CSS_PATH = Path(__file__).with_name("quiz.tcss")
    TITLE = "Quiz: who was first?"
    ABOUT = (
        "Read the log and name the rank that failed first, or that the others waited for. The first answer counts. "
        "Enter then shows the next question. Tab goes to the log, which the arrow keys then scroll, and back to the "
        "ranks."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "question(1)", "next", id="quiz.next", tooltip="Show the next question"),
        Binding("p", "question(-1)", "question before", id="quiz.before", tooltip="Show the question before"),
        Binding("x", "restart", "start again", id="quiz.restart", tooltip="Forget all answers and start again"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._at = 0
        self._solved = False  # the solution of the question is shown

    @cached_property
    def quiz(self) -> Quiz:
        """The questions."""
        return Quiz(self.state.knowledge, knowledge_directories(self.state.options))

    def body(self) -> Iterable[Widget]:
        yield LongText(id="log")
        yield Static(QUESTION, id="question")
        yield Choices(numbered=False, verb="answer")

    def on_mount(self) -> None:
        self._at = self.quiz.next_number - 1
        self._show()

    def _show(self) -> None:
        item = self.quiz.items[self._at]
        self._solved = False
        self.show_header(f"Quiz {self._at + 1} of {len(self.quiz.items)}: {item.title}", self.quiz.score_text())
        self.query_one("#log", LongText).show(*map(safe_content, item.log.rstrip().splitlines()))
        rows = [Choice(str(rank), f"rank {rank}") for rank in range(item.ranks)]
        self.query_one(Choices).set_items(rows, first=True)
        given = self.quiz.answers.get(item.id)
        self.show_status(f"Your first answer was rank {given}." if given else "")

    @on(Choices.Picked)
    def _picked(self, event: Choices.Picked) -> None:
        item, last = self.quiz.items[self._at], self._at + 1 == len(self.quiz.items)
        if self._solved and not last:
            self.action_question(1)
            return
        self._solved = True
        right = self.quiz.answer(item, int(event.id))
        rows = [*map(safe_content, self.quiz.solution_lines(item, self.size.width - MARGINS)), Content("")]
        rows += map(safe_content, item.log.rstrip().splitlines())
        self.query_one("#log", LongText).show(*rows)
        self.show_header(facts=self.quiz.score_text())
        sign = status_sign("ok" if right else "fail", self.ascii_only)
        what = (
            f"{'Right.' if right else 'No.'}  {'That was the last question.' if last else 'enter: the next question'}"
        )
        self.show_status(Content.assemble(sign, " ", safe_content(what)))

    def action_question(self, step: int) -> None:
        self._at = (self._at + step) % len(self.quiz.items)
        self._show()

    def action_restart(self) -> None:
        self.quiz.restart()
        self._at = 0
        self._show()
