"""The quiz in the plain wizard."""

from ...app.labs.quiz import QUESTION, Quiz
from ...app.options import knowledge_directories
from ..shell.state import WizardState
from .prompt import Prompt, Quit

BACK = {"b": "back to the chapters", "q": "quit"}


def run_quiz(state: WizardState, prompt: Prompt) -> None:
    """Ask the questions from the first that has no answer on.

    Raises:
        Quit: The learner leaves the wizard.
    """
    quiz = Quiz(state.knowledge, knowledge_directories(state.options))
    for number in range(quiz.next_number, len(quiz.items) + 1):
        item = quiz.items[number - 1]
        prompt.write("", f"Quiz {number} of {len(quiz.items)}: {item.title}", "", *item.log.rstrip().splitlines())
        prompt.write("", QUESTION, "")
        ranks = {str(rank): f"rank {rank}" for rank in range(item.ranks)}
        given = prompt.choose([], ranks | BACK, "Which rank? ")
        if given == "q":
            raise Quit
        if given == "b":
            return
        right = quiz.answer(item, int(given))
        sign = prompt.status_sign("ok" if right else "fail")
        prompt.write(
            "", f"  {sign} {'Right.' if right else 'No.'}", *(f"  {line}" for line in quiz.solution_lines(item))
        )
    prompt.write("", f"The quiz is done: {quiz.score_text()}.")
