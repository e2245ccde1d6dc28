"""The types shared by all parts: evidence, ranked causes, and the next step."""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from ..knowledge.schema import NATS, Cause, Knowledge, Weight

Source = Literal["answer", "log", "description", "probe", "job", "review"]
Support = Literal["log", "probe", "answer", "words"]  # what a ranking rests on
Status = Literal["ok", "warn", "fail", "skip", "unknown"]


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """One observation about a case.

    ``id`` is the key in the knowledge base: a finding (``host.shm-small``, ``review.DW401``), an answer
    (``answer:same-place=same-step``), a log signature (``log:port-in-use/0``), a clue in the user's words
    (``clue:wrong-nic/0``), words typical of a cause (``words:wrong-nic``) or like an entry of a team
    (``likeness:our-cluster``), or a message listed as harmless or as a consequence (``message:sigterm``). ``where`` is
    a place to check: ``path:line`` (``path:line:column`` of a sentence), an interface, a process. ``strength`` in 0..1
    scales the weight (a match of words is rarely complete). ``values`` are the numbers and names in a message.
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
    """Result of a judge about one property of the machine. With a ``finding`` it is evidence, else only information.

    ``detail`` is the observation and its consequence, ``fix`` the command or setting that fixes it. ``is_evidence`` is
    False if the measurement does not reach what the finding weighs for: a test on CPUs says nothing of GPUs.
    """

    id: str
    status: Status
    title: str
    detail: str = ""
    finding: str = ""
    where: str = ""
    fix: str = ""
    is_evidence: bool = True

    def evidence(self) -> "Evidence | None":
        """Return the evidence of this check, or None if it is only information."""
        if not self.finding or not self.is_evidence:
            return None
        what = f"{self.title}: {self.detail}" if self.detail else self.title
        return Evidence(self.finding, "probe", what, where=self.where)


class ReasonLine(msgspec.Struct, frozen=True):
    """A piece of evidence and the weight it adds to a cause, in nats (negative: against)."""

    source: Source
    what: str
    where: str
    weight: float

    @property
    def strength(self) -> str:
        """The nearest weight of the knowledge base: ``strong``; ``against`` if it counts against the cause."""
        return "against" if self.weight <= 0 else min(NATS, key=lambda word: abs(NATS[word] - self.weight))


class RankedCause(msgspec.Struct, frozen=True):
    """A cause with its share of the probability and the lines that explain it.

    ``distributed``: it is a fault of distributed training, not one that any program can have.
    """

    id: str
    title: str
    confidence: float
    because: list[ReasonLine]
    against: list[ReasonLine]
    fixes: list[str]
    distributed: bool = True

    @property
    def rests_on_log(self) -> bool:
        """True if only lines of a log support it."""
        return all(line.source == "log" for line in self.because)


class AnswerOption(msgspec.Struct, frozen=True):
    """An answer that a question offers. ``command`` gives it, in the documents of ``diagnose``."""

    id: str
    text: str
    command: str | msgspec.UnsetType = msgspec.UNSET


class NextStep(msgspec.Struct, frozen=True):
    """A question to the user with its answers, or a probe to run, with its expected information gain in bits.

    ``command`` runs the probe, in the documents of ``diagnose``.
    """

    kind: Literal["question", "probe"]
    id: str
    text: str
    expected_gain: float
    answers: list[AnswerOption] = []
    command: str | msgspec.UnsetType = msgspec.UNSET


SIGNIFICANT = ("decisive", "strong", "moderate")  # weights of a signature that names an error
MIN_SHARE_SHOWN = 0.01  # the share from which a cause still matters
LEAST_FIX_SHARE = 0.3  # below it a fix of the first cause would be wrong in most cases
LIKELY = 0.5  # from this share on a cause is more likely than all others together


class Diagnosis(msgspec.Struct, frozen=True):
    """Ranked causes, best first, and ``other``: the probability of none of them.

    ``in_scope``: False if nothing given is about distributed training, or if the likely cause is no fault of it.
    ``several``: the first two have evidence of their own; each confidence is then independent of the others.
    ``support``: what the first cause rests on.
    """

    in_scope: bool
    causes: list[RankedCause]
    other: float
    several: bool
    support: Support
    next: list[NextStep]
    evidence: list[Evidence]

    def named(self, most: int) -> list[RankedCause]:
        """Return the causes with evidence for them that still matter, best first; out of scope only the one that is."""
        if not self.in_scope:
            return self.causes[:1] if is_led_from_outside(self.causes) else []
        shown = [cause for cause in self.causes if cause.because and cause.confidence >= MIN_SHARE_SHOWN]
        if self.was_stopped:  # its log names a cause only if one is likely
            shown = [cause for cause in shown if cause.confidence >= LIKELY or not cause.rests_on_log]
        return shown[:most]

    @property
    def cause_to_fix(self) -> RankedCause | None:
        """The first cause if it is likely enough to show its fix."""
        return next((cause for cause in self.named(1) if cause.confidence >= LEAST_FIX_SHARE), None)

    @property
    def was_stopped(self) -> bool:
        """True if the job was stopped from outside before anything failed."""
        return any(item.id == STOPPED for item in self.evidence)

    def rest(self, shown: Sequence[RankedCause]) -> float:
        """Return the probability of all that is not shown: other causes, and none of the known ones."""
        return self.other if self.several else max(0.0, 1 - sum(cause.confidence for cause in shown))


def is_led_from_outside(causes: Sequence[RankedCause]) -> bool:
    """Return whether the first cause is likely, and no fault of distributed training."""
    return bool(causes) and not causes[0].distributed and causes[0].confidence >= LIKELY


DESYNC = "collective-desync"
EXPLAIN_DESYNC = frozenset(  # causes that send ranks to different collectives, so that these do not match
    {
        *("rank-conditional-collective", "uneven-inputs", "per-rank-decision", "p2p-deadlock", "group-order-cycle"),
        "data-dependent-forward",
    }
)
STARTING = "job.starting"  # the finding of a running job in which nothing can be wrong yet
MOVING = ("job.progressing", "job.straggler")  # the findings of a running job that makes progress
NOT_HUNG = (STARTING, *MOVING, "job.all-ranks-moved")  # of a job that may be healthy
ONE_PROCESS = "text:one-process"  # the evidence id of a text about one process only
OTHER_PROGRAM = "text:other-program"  # of the output of programs that train nothing
OTHER_SUBJECT = "text:other-subject"  # of a description that is about something else
TEXT_SOURCES = ("log", "description")


SCRIPT_ERROR = "log.script-error"  # the finding of a Python exception of the script in a job of several ranks
STOPPED = "log.stopped-from-outside"  # the launcher received a signal before anything failed
RAISED = "exception"  # key of its type among the values of that finding; ``file`` is the name of the script's file


def answer_id(question: str, answer: str) -> str:
    """Return the evidence id of an answer."""
    return f"answer:{question}={answer}"


SCOPE = "several-ranks"  # the question whether it is about a training in several processes
ONE_RANK, NO_TRAINING = answer_id(SCOPE, "one"), answer_id(SCOPE, "no-training")  # its answers


def answer_parts(id_: str) -> tuple[str, str]:
    """Return the question and the answer of the evidence id of an answer."""
    question, _, answer = id_.removeprefix("answer:").partition("=")
    return question, answer


def signature_id(cause: Cause, index: int) -> str:
    """Return the evidence id of a cause's log signature."""
    return f"log:{cause.id}/{index}"


def is_root_error(id_: str, knowledge: Knowledge) -> bool:
    """Return whether an evidence id is that of a log signature that names its cause, not one that many causes share."""
    if not id_.startswith("log:"):
        return False
    cause, _, index = id_.removeprefix("log:").rpartition("/")
    entry = knowledge.causes.get(cause)
    if entry is None or entry.generic:
        return False
    signature = entry.signatures[int(index)]
    return signature.role == "root" and signature.weight in SIGNIFICANT


def shows_several_ranks(id_: str, knowledge: Knowledge) -> bool:
    """Return whether an evidence id is that of a root error or a finding that a single process hardly has."""
    if id_.startswith("log."):
        known = [cause for cause in knowledge.causes.values() if _is_strong(cause.findings.get(id_))]
        return any(not cause.generic and not cause.one_process for cause in known)
    if not is_root_error(id_, knowledge):
        return False
    cause, _, index = id_.removeprefix("log:").rpartition("/")
    entry = knowledge.causes[cause]
    return not entry.one_process and _is_strong(entry.signatures[int(index)].weight)


def _is_strong(weight: Weight | None) -> bool:
    return weight is not None and NATS[weight] >= NATS["strong"]


def rule_finding_id(rule: str) -> str:
    """Return the evidence id of a finding of a review rule."""
    return f"review.{rule}"


def rule_of_finding(id_: str) -> str:
    """Return the rule of the finding of a review."""
    return id_.removeprefix("review.")


def rule_error_id(rule: str) -> str:
    """Return the evidence id of an exception to which a finding of this rule leads."""
    return f"error-of:{rule}"


def clue_id(cause: Cause, index: int) -> str:
    """Return the evidence id of a cause's clue in the user's words."""
    return f"clue:{cause.id}/{index}"


def typical_words_id(cause: str) -> str:
    """Return the evidence id of words that the text model finds typical of a cause."""
    return f"words:{cause}"


def similar_text_id(cause: Cause) -> str:
    """Return the evidence id of a similarity between the user's words and the symptoms of a team's entry."""
    return f"likeness:{cause.id}"


def quoted_text_id(cause: Cause) -> str:
    """Return the evidence id of a title or symptom of a team's entry that the user's text has word for word."""
    return f"quote:{cause.id}"


def verdict_id(cause: str) -> str:
    """Return the evidence id of a triage's verdict that names this cause."""
    return f"verdict:{cause}"


def confirmed_id(cause: str, was: bool) -> str:
    """Return the evidence id of the user's confirmation or rejection of a cause."""
    return f"{'confirmed' if was else 'rejected'}:{cause}"


def shows_unrelated(knowledge: Knowledge, items: Iterable[Evidence]) -> bool:
    """Return whether a message was seen of an error that has nothing to do with several ranks, and no rank of a job
    ended with it."""
    items = list(items)
    if any(item.id == SCRIPT_ERROR for item in items):
        return False
    messages = [knowledge.messages.get(item.id.removeprefix("message:")) for item in items]
    return any(message is not None and message.kind == "unrelated" for message in messages)
