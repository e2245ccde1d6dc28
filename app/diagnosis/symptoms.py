"""The first list of the wizard: symptoms, and tasks. A module of its own, as it is shown before the knowledge base is
loaded."""

from collections.abc import Mapping
from typing import NamedTuple


class Symptom(NamedTuple):
    """One symptom: its id, its label, and the answers it gives to questions of the knowledge base."""

    id: str
    label: str
    answers: Mapping[str, str]


SYMPTOMS = (
    Symptom("hangs", "My job hangs", {"symptom": "hangs"}),
    Symptom("crashed", "It crashed", {"symptom": "crashes"}),
    Symptom("slow", "It is too slow", {"symptom": "wrong-or-slow", "slow-or-wrong": "slow"}),
    Symptom("wrong", "The numbers are wrong", {"symptom": "wrong-or-slow", "slow-or-wrong": "wrong"}),
    Symptom("memory", "It runs out of memory", {"symptom": "crashes", "area": "memory"}),
    Symptom("dead-start", "It does not start", {"symptom": "does-not-start"}),
)
TASKS = {
    "plan": "Plan a run: DDP, FSDP or ZeRO",
    "check": "Check this machine",
    "review": "Review my script",
    "browse": "Browse the knowledge base",
    "learn": "Learn: chapters and labs",
}
WITH_LOG = ("crashed", "memory")  # symptoms whose log tells most
OF_A_RUNNING_JOB = ("hangs", "slow", "wrong")  # symptoms for which a running job is inspected first


def symptom_of(answers: Mapping[str, str]) -> Symptom | None:
    """Return the symptom with which a case began, by its answers: the most specific that they include."""
    found = [symptom for symptom in SYMPTOMS if symptom.answers.items() <= answers.items()]
    return max(found, key=lambda symptom: len(symptom.answers), default=None)
