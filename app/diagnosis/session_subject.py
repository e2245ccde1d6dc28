"""The subject of a session in a few words: symptom, script, most likely cause, outcome of the proof."""

from ..session import Session, proof_outcome
from .job_evidence import script_of_session
from .symptoms import symptom_of


def subject_text(session: Session) -> str:
    """Return the subject of a session as it is listed: ``My job hangs, train.py, rank-conditional-collective``."""
    answers = {event.data["question"]: event.data["answer"] for event in session.events if event.kind == "answer"}
    symptom = symptom_of(answers)
    parts = [symptom.label] if symptom else [f"{name}={answer}" for name, answer in answers.items() if answer][:1]
    if script := script_of_session(session):
        parts.append(script.name)
    diagnosed = session.last("diagnosis")
    if causes := diagnosed.data.get("causes") if diagnosed else None:
        parts.append(causes[0][0])
    if proof := session.last("proof"):
        parts.append(proof_outcome(proof))
    return ", ".join(parts)
