"""The types everything speaks in: what was observed, what it points at, and what would tell more."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from ..knowledge.schema import Cause, Knowledge

Source = Literal["answer", "log", "description", "probe", "job", "review"]
Status = Literal["ok", "warn", "fail", "skip", "unknown"]


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was observed about a case.

    ``id`` is what the knowledge base weighs: a finding (``host.shm-small``, ``review.DW401``), an answer
    (``answer:same-place=same-step``), a log signature (``log:port-in-use/0``), a clue or likeness in the user's words
    (``clue:wrong-nic/0``, ``words:wrong-nic``), or a message that is told as harmless or as a consequence
    (``message:sigterm``). ``where`` is ``path:line``, an interface, a process: whatever lets a person go and look.
    ``strength`` in 0..1 scales the weight (a match of words is rarely whole). ``values`` are the numbers and names that
    a message tells.
    """

    id: str
    source: Source
    what: str
    where: str = ""
    rank: int | None = None
    host: str = ""
    pid: int | None = None
    strength: float = 1.0
    values: dict[str, str] = {}


class Check(msgspec.Struct, frozen=True, omit_defaults=False):
    """What a judge says about one thing of the box. With a ``finding`` it is evidence; without it only told.

    ``detail`` is what was observed and what it breaks, ``fix`` the command or setting that mends it.
    """

    id: str
    status: Status
    title: str
    detail: str = ""
    finding: str = ""
    where: str = ""
    fix: str = ""

    def evidence(self) -> "Evidence | None":
        """The evidence this check gives, or None where it only informs."""
        if not self.finding:
            return None
        what = f"{self.title}: {self.detail}" if self.detail else self.title
        return Evidence(self.finding, "probe", what, where=self.where)


class ReasonLine(msgspec.Struct, frozen=True):
    """One line of the reckoning: a piece of evidence and what it adds to a cause, in nats (negative: against)."""

    source: Source
    what: str
    where: str
    weight: float


class RankedCause(msgspec.Struct, frozen=True):
    """A cause with its share of the probability and the lines that explain it."""

    id: str
    title: str
    confidence: float
    because: list[ReasonLine]
    against: list[ReasonLine]
    fixes: list[str]


class NextStep(msgspec.Struct, frozen=True):
    """A question to a person or a probe the wizard can run, with the information it is expected to bring, in bits."""

    kind: Literal["question", "probe"]
    id: str
    text: str
    expected_gain: float


MIN_SHARE_SHOWN = 0.01  # the share from which a cause still matters


class Diagnosis(msgspec.Struct, frozen=True):
    """Ranked causes, best first, and ``other``: the probability that it is none of them.

    ``several``: the first two are each shown by evidence of their own; then each confidence stands for itself.
    """

    in_scope: bool
    causes: list[RankedCause]
    other: float
    several: bool
    next: list[NextStep]
    evidence: list[Evidence]

    def named(self, most: int) -> list[RankedCause]:
        """The causes that anything speaks for and that still matter, best first."""
        return [cause for cause in self.causes if cause.because and cause.confidence >= MIN_SHARE_SHOWN][:most]


ONE_PROCESS = "text:one-process"  # the evidence id of a text that speaks of nothing else


def answer_id(question: str, answer: str) -> str:
    """The evidence id of an answer."""
    return f"answer:{question}={answer}"


def signature_id(cause: Cause, index: int) -> str:
    """The evidence id of a cause's log signature."""
    return f"log:{cause.id}/{index}"


def clue_id(cause: Cause, index: int) -> str:
    """The evidence id of a cause's clue in a person's words."""
    return f"clue:{cause.id}/{index}"


def similar_text_id(cause: Cause) -> str:
    """The evidence id of a person's words being like a cause's symptoms."""
    return f"words:{cause.id}"


def confirmed_id(cause: str, was: bool) -> str:
    """The evidence id of a person's word that it was this cause, or was not."""
    return f"{'confirmed' if was else 'rejected'}:{cause}"


def shows_unrelated(knowledge: Knowledge, items: Iterable[Evidence]) -> bool:
    """Whether a message of a mistake was seen that has nothing to do with several ranks."""
    messages = [knowledge.messages.get(item.id.removeprefix("message:")) for item in items]
    return any(message is not None and message.kind == "unrelated" for message in messages)
