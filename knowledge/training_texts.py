"""The texts from which the text model is trained, with the cause that each describes.

``reports/<cause>.yaml`` lists descriptions of a cause as users write them, ``reports/out-of-scope.yaml`` those of
something else. They are read only to train the model, and are not part of an installed package.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from .schema import BUILT_IN, Cause, Knowledge
from .yaml_file import KnowledgeError, convert

REPORTS = BUILT_IN / "reports"
OUT_OF_SCOPE = "out-of-scope"  # the name of the file of texts about something else; their label is ""


class TrainingText(NamedTuple):
    """A text and its label: the id of a cause, or "" if it is about something else."""

    label: str
    text: str


def training_texts(knowledge: Knowledge) -> list[TrainingText]:
    """Return the training texts of the built-in entries.

    Raises:
        KnowledgeError: A file of reports is invalid, or named after no cause.
    """
    of_entries = [text for cause in knowledge.causes.values() for text in _texts_of_entry(cause)]
    return sorted({*of_entries, *_reports(knowledge)})


def digest(texts: list[TrainingText], same: Mapping[str, str]) -> str:
    """Return the hash of the texts and synonymous stems, by which a model shows what it was trained from."""
    lines = [f"{label}\t{text}" for label, text in (*texts, *sorted(same.items()))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _texts_of_entry(cause: Cause) -> Iterator[TrainingText]:
    """Yield the title, the symptoms and both halves of "there …; here …" of ``tells_apart``."""
    yield TrainingText(cause.id, cause.title)
    for symptom in cause.symptoms:
        yield TrainingText(cause.id, symptom)
    for other, difference in cause.tells_apart.items():
        there, _, here = difference.partition(";")
        yield TrainingText(other, there.strip().removeprefix("there").strip(" ,"))
        if here:
            yield TrainingText(cause.id, here.strip().removeprefix("here").strip(" ,"))


def _reports(knowledge: Knowledge) -> Iterator[TrainingText]:
    for path in sorted(REPORTS.glob("*.yaml")):
        if path.stem != OUT_OF_SCOPE and path.stem not in knowledge.causes:
            raise KnowledgeError(path, 1, f"no cause {path.stem!r}")
        label = "" if path.stem == OUT_OF_SCOPE else path.stem
        for text in read_reports(path):
            yield TrainingText(label, text)


def read_reports(path: Path) -> list[str]:
    """Return the texts of a file of reports.

    Raises:
        KnowledgeError: The file is not a list of texts.
    """
    return convert(path, path.read_bytes(), list[str])
