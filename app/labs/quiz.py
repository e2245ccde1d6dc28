"""A learner's way through the quiz: which rank was first? The answers are kept and graded."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...knowledge.chapters import COLUMNS
from ...knowledge.quiz import QuizItem, read_valid_quiz
from ...knowledge.schema import Knowledge
from ..logs.analyse import analyse_logs
from ..logs.read import source_of_text
from ..logs.timeline_chart import chart_lines
from .progress import load_progress, save_progress

QUESTION = "Which rank was the first to fail, or to be missed?"


class ListedQuestion(msgspec.Struct, frozen=True):
    """A question in the JSON document. ``right`` is None before it is answered."""

    number: int
    title: str
    right: bool | None


class Quiz:
    """The questions in their order, and which of them comes next."""

    def __init__(self, knowledge: Knowledge, extra: Sequence[Path] = ()) -> None:
        """Read the questions; invalid ones are left out."""
        self.knowledge = knowledge
        self.items, _ = read_valid_quiz(*extra)

    @property
    def answers(self) -> dict[str, str]:
        """The rank that the learner has named first, by the id of the question."""
        return load_progress().quiz

    @property
    def right(self) -> int:
        """The number of right answers."""
        answers = self.answers
        return sum(answers.get(item.id) == str(item.first) for item in self.items)

    @property
    def answered(self) -> int:
        """The number of answers."""
        return len(self.answers.keys() & {item.id for item in self.items})

    @property
    def next_number(self) -> int:
        """The number of the first question without an answer, from 1; 1 if all are answered."""
        answers = self.answers
        return next((number for number, item in enumerate(self.items, 1) if item.id not in answers), 1)

    def answer(self, item: QuizItem, rank: int) -> bool:
        """Keep the first answer to a question; return whether this one is right.

        Raises:
            UserError: The state directory cannot be written.
        """
        progress = load_progress()
        progress.quiz.setdefault(item.id, str(rank))
        save_progress(progress)
        return rank == item.first

    def restart(self) -> None:
        """Forget all answers.

        Raises:
            UserError: The state directory cannot be written.
        """
        progress = load_progress()
        progress.quiz = {}
        save_progress(progress)

    def solution_lines(self, item: QuizItem, width: int = COLUMNS) -> list[str]:
        """Return the first rank, the reason, and the timeline that the wizard draws from the log."""
        lines = [f"Rank {item.first} was first.", *textwrap.wrap(item.why, width)]
        timeline = analyse_logs([source_of_text(item.log, "log")], self.knowledge).timeline
        return [*lines, "", *chart_lines(timeline)] if timeline else lines

    def score_text(self) -> str:
        """Return the score so far."""
        return f"{self.right} of {self.answered} right" if self.answered else f"{len(self.items)} questions"

    def listing(self) -> list[ListedQuestion]:
        """Return the questions with what is done."""
        answers = self.answers
        return [
            ListedQuestion(number, item.title, answers[item.id] == str(item.first) if item.id in answers else None)
            for number, item in enumerate(self.items, 1)
        ]
