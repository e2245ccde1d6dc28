"""Types of the knowledge base. Every type is strict: an unknown key or a wrong type is an error.

Evidence for or against a cause is the id of a finding, of a review rule, of an answer to a question, or a log signature
of the entry itself; its prose has no weight.
"""

from pathlib import Path
from typing import Literal

import msgspec

BUILT_IN = Path(__file__).parent  # the built-in entries
UNFINISHED = "(to be written:)"  # marks the parts of a drafted entry that the author must write
Weight = Literal["decisive", "strong", "moderate", "weak", "against"]

# Log-odds in nats. A decisive observation alone takes a cause from 1 in 20 to 9 in 10; a weak one
# never decides alone; one against undoes a strong one.
NEUTRAL_ANSWERS = ("unsure", "not-tried")  # to any question: they are no evidence
NATS: dict[Weight, float] = {"decisive": 5.5, "strong": 3.2, "moderate": 1.7, "weak": 0.7, "against": -3.0}

Family = Literal["launch", "ddp", "fsdp", "zero", "hang", "nccl", "elastic", "memory", "performance"]
Safety = Literal["safe", "unsafe", "display"]
Severity = Literal["error", "warning", "info"]
Intrusiveness = Literal["given", "reads", "connects", "allocates", "perturbs"]
Role = Literal["root", "symptom", "confirmation"]
# Of a training job: one is enough, or two of them. Names of programs that train nothing, and what outweighs these.
TrainingWords = Literal["sure", "likely", "others", "unless"]


class StrictStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of everything read from YAML."""


class Signature(StrictStruct, frozen=True):
    """A line in a log. ``pattern`` is a Python regular expression; ``literal`` a part of it that must be there.

    ``role``: a root names the cause itself, a symptom is its visible effect (it never outranks a
    root), a confirmation counts only together with other evidence. Named groups of the pattern (rank, op, seq,
    timeout_ms, port, host, bytes) become the values of the evidence. Fixes of the same cause name it by its ``name``
    (``line.<name>``) under ``when`` and ``unless``; several signatures may have one name.
    """

    pattern: str
    literal: str
    weight: Weight
    role: Role = "root"
    since: str = ""
    until: str = ""
    name: str = ""


class Clue(StrictStruct, frozen=True):
    """Words of users: every term of ``all``, close together.

    A term is a word or a short phrase, ``a|b`` means either, ``$name`` any phrase of a group of ``phrases.yaml``, a
    final ``*`` any ending. Words are compared by stem and with their synonyms (``synonyms.yaml``); case and punctuation
    do not count. ``why``: what the words show.
    """

    all: list[str]
    why: str
    weight: Weight = "moderate"


class CallOption(StrictStruct, frozen=True):
    """An argument that a patch gives to every call of a function or class (``torch.load``).

    ``place`` is its position among the positional arguments. A call that has it is left alone, unless ``replace``.
    """

    call: str
    argument: str
    value: str
    place: int | None = None
    replace: bool = False


class FixSpec(StrictStruct, frozen=True):
    """A fix of a cause. ``patch`` names a review rule, a recipe, or arguments to ``set``; ``config``, ``code``,
    ``command``, ``env`` a generator.

    ``text`` and ``note`` are prose, shown before and after ``code``, whose lines are shown and copied as they are. In
    all three ``{name|fallback}`` is a fact of the case (``facts.yaml``), and ``code`` gets the user's variable names.
    ``at``: the calls of the user's script that it is about. It is offered first if one of ``when`` holds, after all
    others if none of them does, and last if one of ``unless`` does; both name findings, conditions of
    ``facts.yaml`` or the cause's own signatures.
    ``diagnostic``: it shows the fault and does not remove it, so it comes after those that do.
    """

    id: str
    kind: Literal["patch", "config", "code", "command", "env", "text"]
    title: str
    rule: str = ""
    generator: str = ""
    safety: Safety = "display"
    why_unsafe: str = ""
    text: str = ""
    code: str = ""
    note: str = ""
    recipe: str = ""
    set: list[CallOption] = []
    at: list[str] = []
    diagnostic: bool = False
    when: list[str] = []
    unless: list[str] = []


class Verification(StrictStruct, frozen=True):
    """Proof of a fix: the probe that runs again, and the finding it must (or must no longer) show."""

    probe: str
    gone: list[str] = []
    seen: list[str] = []
    within_s: int = 60


class Reference(StrictStruct, frozen=True):
    """A source; ``checked`` is the version that was read or run."""

    title: str
    url: str
    checked: str


class OutdatedAdvice(StrictStruct, frozen=True):
    """Correction of older advice: the current fact, and the version since which it holds."""

    since: str
    what: str


class Cause(StrictStruct, frozen=True):
    """A cause of a problem. The file name is ``causes/<family>/<id>.yaml``.

    ``examples``: descriptions and logs that lead to it, which the tests and ``kb check`` read. ``tells_apart``: for
    another cause "there …; here …", which its entry need not repeat. ``no_lab``: why no lab shows it, if none does.
    """

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
    examples: list[str] = []
    covers: list[str] = []
    no_lab: str = ""
    prior: float = 0.0  # nats added to the common prior: how frequent it is
    generic: bool = False  # a mechanism that many causes share: ranked lower when one of these is supported
    one_process: bool = False  # a single process can have it as well
    distributed: bool = True  # False: no fault of distributed training, so that a diagnosis it leads is out of scope
    signatures: list[Signature] = []
    clues: list[Clue] = []
    questions: dict[str, dict[str, Weight]] = {}
    findings: dict[str, Weight] = {}
    tells_apart: dict[str, str] = {}  # other cause id: what distinguishes it from this one
    changed: list[OutdatedAdvice] = []
    see_also: list[str] = []


class Question(StrictStruct, frozen=True):
    """A question to the user. ``cost_s`` is the time to answer it.

    ``heard``: for an answer, the clues (lists of terms, all close together) by which a text implies it. It is asked
    only if no better source is in the case: ``fits`` holds, for other questions, the answers with which it makes
    sense; ``answered_by`` the sources of evidence that answer it; ``pointless_after`` ids of evidence after which it
    need not be asked. ``asked_first``: it comes before questions that tell more about the cause. ``general``: a
    description tells it too, so that after one a more specific question is asked. ``of_causes``: each cause is an
    answer as well, and the most likely ones are offered; it is asked about a description. ``of_scope``: whether there
    are several ranks at all; it is asked before all others about a description that does not show it.
    """

    ask: str
    why: str
    answers: dict[str, str]
    heard: dict[str, list[list[str]]] = {}
    fits: dict[str, list[str]] = {}
    answered_by: list[Literal["log", "probe", "job", "review"]] = []
    pointless_after: list[str] = []
    asked_first: bool = False
    general: bool = False
    of_causes: bool = False
    of_scope: bool = False
    cost_s: float = 5.0


class Probe(StrictStruct, frozen=True):
    """A check that runs without the user. Finding ids are ``<probe>.<name>``.

    ``between_nodes``: the findings that matter only if the job spans several nodes.
    """

    title: str
    intrusiveness: Intrusiveness
    limit_s: float
    cost_s: float
    findings: dict[str, str]
    between_nodes: list[str] = []


class Message(StrictStruct, frozen=True):
    """A pasted line that is no cause: harmless (``benign``), a consequence of one (``consequence``), or an error
    unrelated to distributed training (``unrelated``). ``lost_rank``: the rank that prints it has lost another one, or
    waited for it in vain."""

    pattern: str
    literal: str
    kind: Literal["benign", "consequence", "unrelated"]
    says: str
    lost_rank: bool = False


class Rule(StrictStruct, frozen=True):
    """A review rule; its code is in ``app/review/rules``. Its finding id is ``review.<rule>``.

    ``parts_ranks``: ranks then call different collectives, or one of them fewer, and wait for each other.
    """

    title: str
    cause: str
    severity: Severity
    why: str
    symptom: str
    fix: str
    safety: Safety
    why_unsafe: str = ""
    parts_ranks: bool = False


class Term(StrictStruct, frozen=True):
    """A term of the field, for those who meet it first.

    ``text``: two sentences. ``chapter`` explains more; ``causes`` are entries in which it counts; ``also``: other
    spellings and names by which it is found.
    """

    text: str
    chapter: str
    causes: list[str] = []
    also: list[str] = []


class Knowledge(msgspec.Struct, frozen=True, kw_only=True):
    """The complete, validated knowledge base."""

    causes: dict[str, Cause]
    questions: dict[str, Question]
    probes: dict[str, Probe]
    messages: dict[str, Message]
    rules: dict[str, Rule]
    in_scope_words: list[str]
    synonyms: list[list[str]]
    phrases: dict[str, list[str]] = {}  # named groups, of which clues and heard answers are expanded when they are read
    topics: dict[str, str]
    notices: list[str] = []  # sentences that libraries print in healthy runs
    multi_rank_words: list[str]  # patterns by which a text mentions several ranks
    training_words: dict[TrainingWords, list[str]] = {}  # patterns of what a training job has, or another program
    glossary: dict[str, str]  # terms in other languages, with their English words
    version: str
    terms: dict[str, Term] = {}
    facts: dict[str, str] = {}  # what the fixes of an entry may name: values, and conditions (``case.…``)
    stems: dict[str, str] = {}  # of every phrase that is matched
    left_out: list[str] = []  # path:line: problem of each invalid entry of a team

    def findings(self) -> dict[str, str]:
        """Return every declared finding id with its text, including those of the review rules."""
        texts = {f"{probe}.{name}": text for probe, spec in self.probes.items() for name, text in spec.findings.items()}
        return texts | {f"review.{rule}": spec.title for rule, spec in self.rules.items()}
