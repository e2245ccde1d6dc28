"""The examples of an entry: texts and logs that must lead to its cause."""

from collections.abc import Iterable
from typing import NamedTuple

from ...knowledge.schema import Cause, Knowledge
from ..evidence import RankedCause
from ..logs.read import source_of_text
from .case import Case
from .intake import read_sources

ORIGIN = "<example>"


class ReadExample(NamedTuple):
    """An example of a cause (``number`` from 0), and the causes that are ranked for it, best first."""

    cause: Cause
    number: int
    ranked: list[RankedCause]

    @property
    def place(self) -> int:
        """The place (from 0) of the cause among those with evidence for them, or -1."""
        ids = [each.id for each in self.ranked if each.because]
        return ids.index(self.cause.id) if self.cause.id in ids else -1

    @property
    def problem(self) -> str:
        """A sentence on which cause is first instead, or ""."""
        if self.place == 0:
            return ""
        first = next((each for each in self.ranked if each.because), None)
        instead = f"{first.id} ({first.confidence:.0%}) is first" if first else "no cause is supported"
        return f"example {self.number + 1} does not lead to {self.cause.id}: {instead}"


def read_examples(causes: Iterable[Cause], knowledge: Knowledge) -> list[ReadExample]:
    """Return the ranking for each example of the causes."""
    return [
        ReadExample(cause, number, _ranked(text, knowledge))
        for cause in causes
        for number, text in enumerate(cause.examples)
    ]


def _ranked(text: str, knowledge: Knowledge) -> list[RankedCause]:
    case = Case(knowledge)
    case.add(read_sources([source_of_text(text, ORIGIN)], knowledge).evidence)
    return case.diagnosis().causes
