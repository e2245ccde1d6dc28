"""Rules of the dialogue of a diagnosis, and its wording: all faces of the wizard use them."""

from ..evidence import Diagnosis
from .case import FRONT_DOOR, Case

OUT_OF_SCOPE = "This does not look like a problem of distributed training."
NO_CAUSE = "No known cause matched yet. A longer log or a few answers would help."
SURE = 0.9  # from this share on the wizard stops asking and shows the diagnosis


def likelihood(confidence: float) -> str:
    """Return how likely the best cause is: ``Most likely`` or ``Perhaps``."""
    return "Most likely" if confidence >= 0.5 else "Perhaps"


def is_sure(diagnosis: Diagnosis) -> bool:
    """Return whether the first cause is likely enough to stop asking."""
    return bool(diagnosis.causes) and diagnosis.causes[0].confidence >= SURE


def next_question(case: Case, diagnosis: Diagnosis) -> str:
    """Return the id of the question to ask: the symptom first, then the most useful one; "" if none is left."""
    if FRONT_DOOR not in case.known_answers():
        return FRONT_DOOR
    return next((step.id for step in diagnosis.next if step.kind == "question"), "")


def next_probe(diagnosis: Diagnosis) -> str:
    """Return the id of the most useful probe that may run, or ""."""
    return next((step.id for step in diagnosis.next if step.kind == "probe"), "")
