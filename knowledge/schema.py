"""What the knowledge base may say. Every type here is strict: an unknown key or a wrong type is an error.

Nothing in an entry is weighed by prose: what counts for or against a cause is the id of a finding, of a review
rule, of an answer to a question, or a log signature of the entry itself.
"""

from pathlib import Path
from typing import Literal

import msgspec

BUILT_IN = Path(__file__).parent  # the entries that come with the wizard
UNFINISHED = "(to be written:)"  # what a drafted entry marks the places with that a person must fill
Weight = Literal["decisive", "strong", "moderate", "weak", "against"]

# Log-odds in nats. A decisive observation takes a cause from 1 in 20 to 9 in 10 by itself; a weak one
# never decides alone; one against undoes a strong one.
NATS: dict[Weight, float] = {"decisive": 5.5, "strong": 3.2, "moderate": 1.7, "weak": 0.7, "against": -3.0}

Family = Literal["launch", "ddp", "fsdp", "zero", "hang", "nccl", "elastic", "memory", "performance"]
Safety = Literal["safe", "unsafe", "display"]
Severity = Literal["error", "warning", "info"]
Intrusiveness = Literal["given", "reads", "connects", "allocates", "perturbs"]
Role = Literal["root", "symptom", "confirmation"]


class StrictStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of everything read from YAML."""


class Signature(StrictStruct, frozen=True):
    """A line in a log. ``pattern`` is a Python regular expression; ``literal`` a part of it that must be there.

    ``role``: a root names the cause itself, a symptom is what it looks like from outside (it never
    outranks a root), a confirmation counts only beside other evidence. Named groups of the pattern (rank, op, seq,
    timeout_ms, port, host, bytes) become the values of the evidence.
    """

    pattern: str
    literal: str
    weight: Weight
    role: Role = "root"
    since: str = ""
    until: str = ""


class Clue(StrictStruct, frozen=True):
    """What people say in their own words: every term of ``all``, close together.

    A term is a word or a short phrase, ``a|b`` means either, a final ``*`` any ending. Words are compared by stem
    and with their synonyms (``synonyms.yaml``); case and punctuation do not count.
    """

    all: list[str]
    weight: Weight = "moderate"


class FixSpec(StrictStruct, frozen=True):
    """A way to mend a cause. ``patch`` names a review rule; ``config``, ``code``, ``command``, ``env`` a generator."""

    id: str
    kind: Literal["patch", "config", "code", "command", "env", "text"]
    title: str
    rule: str = ""
    generator: str = ""
    safety: Safety = "display"
    why_unsafe: str = ""
    text: str = ""


class Verification(StrictStruct, frozen=True):
    """What proves the fix: the probe that is run again, and the finding it must (or must no longer) show."""

    probe: str
    gone: list[str] = []
    seen: list[str] = []
    within_s: int = 60


class Reference(StrictStruct, frozen=True):
    """A source; ``checked`` is the version it was read or run for."""

    title: str
    url: str
    checked: str


class OutdatedAdvice(StrictStruct, frozen=True):
    """Something older advice says otherwise: what is true now, and since which version."""

    since: str
    what: str


class Cause(StrictStruct, frozen=True):
    """One thing that can be wrong. The file name is ``causes/<family>/<id>.yaml``."""

    id: str
    title: str
    family: Family
    summary: str
    symptoms: list[str]
    explain: str
    fixes: list[FixSpec]
    verify: Verification
    holds_for: dict[str, str]
    sources: list[Reference]
    covers: list[str] = []
    prior: float = 0.0  # nats added to the common prior: how often people meet it
    generic: bool = False  # names a mechanism that many roots share: steps back where one of these is shown
    one_process: bool = False  # one process meets it as well: need not be told of several
    signatures: list[Signature] = []
    clues: list[Clue] = []
    questions: dict[str, dict[str, Weight]] = {}
    findings: dict[str, Weight] = {}
    tells_apart: dict[str, str] = {}  # other cause id: what distinguishes it from this one
    changed: list[OutdatedAdvice] = []
    see_also: list[str] = []


class Question(StrictStruct, frozen=True):
    """Something only a person can answer. ``cost_s`` is the time it takes them.

    ``heard``: for an answer, the clues (lists of terms, all close together) by which a text gives it unasked.
    """

    ask: str
    why: str
    answers: dict[str, str]
    heard: dict[str, list[list[str]]] = {}
    cost_s: float = 5.0


class Probe(StrictStruct, frozen=True):
    """Something the wizard can look at by itself. Finding ids are ``<probe>.<name>``."""

    title: str
    intrusiveness: Intrusiveness
    limit_s: float
    cost_s: float
    findings: dict[str, str]


class Message(StrictStruct, frozen=True):
    """A line people paste that is no cause: harmless (``benign``), only the echo of one (``consequence``), or a mistake
    that has nothing to do with several ranks (``unrelated``)."""

    pattern: str
    literal: str
    kind: Literal["benign", "consequence", "unrelated"]
    says: str


class Rule(StrictStruct, frozen=True):
    """A review rule; the code that decides it stands in ``app/review``. Its finding id is ``review.<rule>``."""

    title: str
    cause: str
    severity: Severity
    why: str
    symptom: str
    fix: str
    safety: Safety
    why_unsafe: str = ""


class Knowledge(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the wizard knows, checked as a whole."""

    causes: dict[str, Cause]
    questions: dict[str, Question]
    probes: dict[str, Probe]
    messages: dict[str, Message]
    rules: dict[str, Rule]
    scope_words: list[str]
    synonyms: list[list[str]]
    topics: dict[str, str]
    several: list[str]  # patterns: what in a text speaks of several ranks
    glossary: dict[str, str]  # terms in other languages, with the words they are heard as
    version: str
    stems: dict[str, str] = {}  # of every phrase that is listened for

    def findings(self) -> dict[str, str]:
        """Every declared finding id with what it says, the review rules' among them."""
        said = {f"{probe}.{name}": text for probe, spec in self.probes.items() for name, text in spec.findings.items()}
        return said | {f"review.{rule}": spec.title for rule, spec in self.rules.items()}
