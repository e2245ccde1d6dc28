"""Measure what the questions before a guess add: ``diagnose`` asks, and a reader's answers from the text are given.

The answers are a JSON object: for each case's id, the answer to each question, ``skipped`` if the text does not tell.
Questions without an answer are listed with the text, and without the label; answer them from the text alone, and run
it again.

    PYTHONPATH=tests python tests/bench/answer_questions.py ANSWERS.json CASES.jsonl… [-v]
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from bench.calibrate import Outcome, ReadCase, read_case, scores_of
from ddpwizard.app.commands.diagnose_questions import MOST_ASKED
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.diagnosis.dialogue import question_before_guess
from ddpwizard.app.evidence import AnswerOption, Diagnosis
from ddpwizard.knowledge.loader import read_knowledge
from ddpwizard.knowledge.schema import Knowledge

Answers = dict[str, dict[str, str]]


class Dialogue(NamedTuple):
    """The outcomes of a case before and after its questions, the questions asked, and one without an answer, with the
    answers that it offers."""

    before: Outcome
    after: Outcome
    asked: list[str]
    unanswered: str = ""
    offered: tuple[AnswerOption, ...] = ()


def ask(read: ReadCase, answers: dict[str, str], knowledge: Knowledge) -> Dialogue:
    """Ask the questions of ``diagnose`` about a case until it has no more, or one has no answer."""
    case = Case(knowledge)
    case.add(read.evidence)
    diagnosis = case.diagnosis(in_scope=read.in_scope)
    before, asked = _outcome(read, diagnosis), list[str]()
    while len(asked) < MOST_ASKED and (question := question_before_guess(case, diagnosis)):
        if question not in answers:
            step = next(step for step in diagnosis.next if step.id == question)
            return Dialogue(before, before, asked, question, tuple(step.answers))
        asked.append(question)
        case.answer(question, answers[question])
        diagnosis = case.diagnosis(in_scope=read.in_scope)
    return Dialogue(before, _outcome(read, diagnosis), asked)


def _outcome(read: ReadCase, diagnosis: Diagnosis) -> Outcome:
    first = [cause.id for cause in diagnosis.causes if cause.because][:3]
    share = diagnosis.causes[0].confidence if diagnosis.causes else 0.0
    return Outcome(read, first, share, diagnosis.support, diagnosis.in_scope)


def _print_question(row: dict[str, Any], dialogue: Dialogue, knowledge: Knowledge) -> None:
    question = knowledge.questions[dialogue.unanswered]
    print(f"--- {row['id']}\n{row['text']}\n? {dialogue.unanswered}: {question.ask}")
    for answer in dialogue.offered:
        print(f"    {answer.id}: {answer.text}")


def main(answers_path: str, paths: list[str], verbose: bool) -> int:
    """Print the questions that have no answer, or the scores before and after the answers."""
    knowledge = read_knowledge()
    file = Path(answers_path)
    answers: Answers = json.loads(file.read_text()) if file.exists() else {}
    rows = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines() if line.strip()]
    dialogues = [ask(read_case(row, knowledge), answers.get(row["id"], {}), knowledge) for row in rows]
    for row, dialogue in zip(rows, dialogues, strict=True):
        if dialogue.unanswered:
            _print_question(row, dialogue, knowledge)
    for row in dialogues if verbose else []:
        print(
            row.after.case.id, row.asked, row.before.place, row.after.place, f"{row.after.share:.2f}", row.after.first
        )
    asked = [row for row in dialogues if row.asked]
    print(f"{sum(bool(row.unanswered) for row in dialogues)} unanswered, {len(asked)} cases with questions,", end=" ")
    print(f"{sum(len(row.asked) for row in dialogues)} questions")
    print("before", scores_of([row.before for row in dialogues]))
    print("after ", scores_of([row.after for row in dialogues]))
    return 0


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    sys.exit(main(given[0], given[1:], "-v" in sys.argv))
