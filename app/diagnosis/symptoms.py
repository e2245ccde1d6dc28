"""Symptoms with which a diagnosis begins. A list of its own, as it is shown before the knowledge base is loaded."""

from typing import NamedTuple


class Symptom(NamedTuple):
    """One symptom: its id, its label, and the answer it gives to the question ``symptom`` of the knowledge base."""

    id: str
    label: str
    answer: str


SYMPTOMS = (
    Symptom("hangs", "My job hangs", "hangs"),
    Symptom("crashed", "It crashed; I have an error or a log", "crashes"),
    Symptom("slow", "It runs, but wrong or too slow", "wrong-or-slow"),
    Symptom("dead-start", "It does not even start", "does-not-start"),
)
