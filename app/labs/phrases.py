"""The words of a lab, the same on the screen and in plain mode."""

import textwrap

from ...knowledge.chapters import COLUMNS
from ...knowledge.labs import Failure
from ..text.units import probability_text
from .lab_session import LabSession

FAILURE_TEXT: dict[Failure, str] = {
    "hang": "The ranks stand still. This is where each of them waits:",
    "slow": "The job goes on, but one rank holds the others up. This is what each of them does:",
    "crash": "The job has ended with an error.",
    "wrong": "The job has ended well. Is its result right?",
    "log": "The files above are all that is left of the job.",
    "measure": "The job has measured it.",
}
NOT_FAILED = "It did not fail this time. Restore its files if you have changed them, and run it again."
NOT_MEASURED = "The job did not end well. Restore its files if you have changed them, and run it again."
MOST_REASONS = 4  # of the evidence


def numbered_code(text: str) -> list[str]:
    """Return the lines of a file with their numbers."""
    return [f"{number:>4}  {line}".rstrip() for number, line in enumerate(text.splitlines(), 1)]


def question_text(session: LabSession) -> str:
    """Return the question that the learner answers."""
    return session.lab.question.text if session.lab.question else "What is the cause?"


def not_shown_text(session: LabSession) -> str:
    """Return the message after a run that did not show what the lab is about."""
    return NOT_MEASURED if session.lab.question else NOT_FAILED


def evidence_lines(session: LabSession) -> list[str]:
    """Return the answer of a lab and the reasons: of a cause, the evidence that the wizard has for it."""
    if question := session.lab.question:
        given = session.progress.guess
        yours = [f"Your prediction: {given}", "It is right." if given == question.right else "It is not right."]
        return [f"Measured: {question.right}", *(yours if given else []), "", *textwrap.wrap(question.why, COLUMNS)]
    cause = session.knowledge.causes[session.lab.cause]
    lines = [f"Cause: {cause.title}", *cause.summary.strip().splitlines()]
    ranked = session.found.diagnosis.causes if session.found else []
    for number, own in enumerate(ranked, 1):
        if own.id != cause.id:
            continue
        place = "first" if number == 1 else f"as number {number}"
        lines += ["", f"The wizard ranks it {place} ({probability_text(own.confidence)}), because:"]
        lines += [
            f"  {line.what}" + (f"   [{line.where}]" if line.where else "") for line in own.because[:MOST_REASONS]
        ]
    lines += ["", f"More: ddpwizard explain {cause.id}"]
    return lines
