"""The words of a lab, the same on the screen and in plain mode."""

from ...knowledge.labs import Failure
from ..text.units import probability_text
from .lab_session import LabSession

FAILURE_TEXT: dict[Failure, str] = {
    "hang": "The ranks stand still. This is where each of them waits:",
    "slow": "The job goes on, but one rank holds the others up. This is what each of them does:",
    "crash": "The job has ended with an error.",
    "wrong": "The job has ended well. Is its result right?",
    "log": "The files above are all that is left of the job.",
}
MOST_REASONS = 4  # of the evidence


def numbered_code(text: str) -> list[str]:
    """Return the lines of a file with their numbers."""
    return [f"{number:>4}  {line}".rstrip() for number, line in enumerate(text.splitlines(), 1)]


def evidence_lines(session: LabSession) -> list[str]:
    """Return the cause of a lab, the evidence that the wizard has for it, and how it is fixed."""
    cause = session.knowledge.causes[session.lab.cause]
    lines = [f"Cause: {cause.title}", *cause.summary.strip().splitlines()]
    ranked = session.found.diagnosis.causes if session.found else []
    own = next((each for each in ranked if each.id == cause.id), None)
    if own:
        lines += ["", f"What the wizard sees ({probability_text(own.confidence)}):"]
        lines += [
            f"  {line.what}" + (f"   [{line.where}]" if line.where else "") for line in own.because[:MOST_REASONS]
        ]
    lines += ["", f"More: ddpwizard explain {cause.id}"]
    return lines
