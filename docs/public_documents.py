"""The JSON documents that commands print with ``--json``: their types, and the JSON Schema of each.

Types that the code has are used as they are; those of documents that a command builds as a dictionary are below. The
field names of a schema are final: fields may be added, none is renamed or removed.
"""

from typing import Any, Literal, NamedTuple

import msgspec
from ddpwizard.app.diagnosis.coverage import TopicCoverage
from ddpwizard.app.evidence import Diagnosis, Evidence, Status
from ddpwizard.app.fixes.records import AppliedFix
from ddpwizard.app.fixes.types import Place
from ddpwizard.app.fixes.undo import ListedFix
from ddpwizard.app.labs.course import ListedChapter
from ddpwizard.app.labs.quiz import ListedQuestion
from ddpwizard.app.plan.batch_scaling import BatchScaling
from ddpwizard.app.plan.exact_memory import TrackedStrategy
from ddpwizard.app.plan.strategies.scaling_curve import ScalePoint
from ddpwizard.app.plan.types import Candidate, TrainingSetup
from ddpwizard.app.review.types import CellPlace
from ddpwizard.app.snapshot import BenchRow, Snapshot
from ddpwizard.app.triage.types import Child, Connection, GpuUse, RankRow, Verdict
from ddpwizard.knowledge.schema import Cause, Rule, Safety, Severity, Term
from msgspec import UNSET, UnsetType

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class FixDocument(msgspec.Struct):
    """A fix: prose around code, commands, the places it is about, and its patches as one diff."""

    id: str
    cause: str
    title: str
    safety: Safety
    why_unsafe: str
    text: str
    code: str
    note: str
    commands: list[str]
    places: list[Place]
    again: str
    directory: str
    diff: str


class DiagnosisDocument(Diagnosis, frozen=True):
    """The ranked causes of a case, and the fix of the first. ``why`` is in the report of ``run`` only."""

    fix: FixDocument | UnsetType | None = UNSET
    why: str | UnsetType = UNSET


class ProcessThread(msgspec.Struct):
    """A thread other than the main one; frames as ``function (path:line)``, innermost first."""

    name: str
    stack: list[str]


class ProcessChild(Child, frozen=True, kw_only=True):
    """A process that a rank started."""

    stack: list[str]  # type: ignore[assignment]


class JobProcess(msgspec.Struct):
    """A process of a job. The counters are differences between its first and its last sample."""

    rank: int | None
    rank_from: str
    pid: int
    host: str
    command: list[str]
    children: list[ProcessChild]
    links: list[Connection]
    devices: list[GpuUse]
    output: list[str]
    output_from: str
    looks: int | UnsetType = UNSET
    seconds: float | UnsetType = UNSET
    process_state: str | UnsetType = UNSET
    cpu_seconds: float | UnsetType = UNSET
    switches: int | UnsetType = UNSET
    read_bytes: int | UnsetType = UNSET
    written_bytes: int | UnsetType = UNSET
    kernel_function: str | UnsetType = UNSET
    stack: list[str] | UnsetType = UNSET
    threads: list[ProcessThread] | UnsetType = UNSET


class TriagedJob(msgspec.Struct):
    """A job: its ranks, the verdict on it, and the diagnosis that follows."""

    id: str
    launcher: str
    world_size: int
    nodes: list[str]
    ranks: list[RankRow]
    verdict: Verdict
    processes: list[JobProcess]
    diagnosis: Diagnosis


class TriageDocument(msgspec.Struct):
    """The jobs of this machine, worst first. ``why`` is in the report of ``run`` only."""

    jobs: list[TriagedJob]
    hints: list[str] | UnsetType = UNSET
    why: str | UnsetType = UNSET


class FindingFix(msgspec.Struct):
    """The patch of a finding as a diff."""

    id: str
    safety: Safety
    why_unsafe: str | None
    diff: str


class FindingPlace(msgspec.Struct):
    """A place on the way of some ranks, and what they do there."""

    path: str
    line: int
    message: str
    cell: CellPlace | UnsetType = UNSET


class Finding(msgspec.Struct):
    """A place that violates a rule. ``cell`` is that of a notebook."""

    rule: str
    cause: str
    path: str
    line: int
    column: int
    end_line: int
    message: str
    why: str
    severity: Severity
    confidence: float
    branch: int | None
    related: list[FindingPlace]
    fix: FindingFix | None
    cell: CellPlace | UnsetType = UNSET


class Skipped(msgspec.Struct):
    """A file that was not reviewed."""

    path: str
    reason: str


class RuleCount(msgspec.Struct):
    """The number of findings of a rule."""

    rule: str
    findings: int


class ReviewDocument(msgspec.Struct):
    """The findings in the files that were reviewed; ``statistics`` with ``--statistics``."""

    findings: list[Finding]
    skipped: list[Skipped]
    files: int
    statistics: list[RuleCount] | UnsetType = UNSET


class ListedRule(msgspec.Struct):
    """A rule of the review."""

    rule: str
    title: str
    cause: str
    severity: Severity
    why: str
    symptom: str
    fix: str
    safety: Safety


class RulesDocument(msgspec.Struct):
    """All rules of the review (``review --rules``)."""

    rules: list[ListedRule]


class MigrationNote(msgspec.Struct):
    """A remark on a line of the script."""

    line: int
    message: str


class MigrationDocument(msgspec.Struct):
    """A migrated script (``review --to``): the change, or why it is refused; ``applied`` is the id for ``undo``."""

    target: str
    path: str
    refusals: list[MigrationNote]
    reports: list[MigrationNote]
    diff: str
    applied: str | None


class LinkRates(msgspec.Struct):
    """Bandwidths and latencies that the step times are computed with; None: the usual value."""

    intra_gbps: float
    inter_gbps: float
    intra_latency_s: float
    inter_latency_s: float
    host_gbps: float | None
    nvme_gbps: float | None
    matmul_tflops: float | None
    measured: bool


class PlanInputs(TrainingSetup, frozen=True, kw_only=True):
    """The setting that was planned, and what was assumed for it."""

    links: LinkRates
    assumed: list[str]


class PlanDocument(msgspec.Struct):
    """The strategies, best first; the other parts with ``--reference-gpus``, ``--curve`` and ``--exact``."""

    inputs: PlanInputs
    candidates: list[Candidate]
    batch: BatchScaling | UnsetType = UNSET
    curve: list[ScalePoint] | UnsetType = UNSET
    more_gpus: str | UnsetType = UNSET  # if nothing works on the given GPUs
    exact: list[TrackedStrategy] | UnsetType = UNSET


class JobFile(msgspec.Struct):
    """A file that describes how a job is started."""

    path: str
    kind: str


class Conflict(msgspec.Struct):
    """A contradiction, with the lines (``path:line``) that contradict each other."""

    message: str
    where: list[str]


class AgreementDocument(msgspec.Struct):
    """The contradictions between the files of a job (``review --launch-files``)."""

    files: list[JobFile]
    conflicts: list[Conflict]


class MachineCheck(msgspec.Struct):
    """A check of this machine, with the cause that it supports most."""

    id: str
    status: Status
    title: str
    detail: str
    cause: str | None
    fix: str | None


class DoctorDocument(msgspec.Struct):
    """The snapshot of this machine, and its checks."""

    snapshot: Snapshot
    checks: list[MachineCheck]
    bench: list[BenchRow]


class RuleDocument(Rule, frozen=True, kw_only=True):
    """A rule of the review (``explain DW401``)."""

    id: str  # type: ignore[misc]


class ChapterLab(msgspec.Struct):
    """A lab of a chapter by its number and title; its cause is the answer."""

    number: str
    title: str


class ChapterDocument(msgspec.Struct):
    """A chapter (``explain CHAPTER``)."""

    id: str
    order: int
    title: str
    summary: str
    pages: list[str]
    labs: list[ChapterLab]


class TermDocument(Term, frozen=True, kw_only=True):
    """A term of the field (``explain TERM``)."""

    id: str  # type: ignore[misc]


class TitledEntry(msgspec.Struct):
    """An entry and its title."""

    id: str
    title: str


class ExplainSearchDocument(msgspec.Struct):
    """The causes and rules that have all words that were given (``explain WORDS``)."""

    term: str
    entries: list[TitledEntry]


class LearnDocument(msgspec.Struct):
    """The chapters, labs and questions of the quiz, with what is done."""

    chapters: list[ListedChapter]
    quiz: list[ListedQuestion]


class EntryProblem(msgspec.Struct):
    """An error in an entry, a chapter or a lab."""

    path: str
    line: int
    problem: str


class KbCheckDocument(msgspec.Struct):
    """The result of ``kb check``."""

    ok: bool
    problems: list[EntryProblem]


class ListedCause(msgspec.Struct):
    """A cause in the list."""

    id: str
    family: str
    title: str
    summary: str


class KbListDocument(msgspec.Struct):
    """The causes (``kb list``)."""

    causes: list[ListedCause]


class GraphNode(msgspec.Struct):
    """A node of the decision graph."""

    id: str
    kind: str
    text: str


class GraphEdge(msgspec.Struct, rename={"start": "from", "end": "to"}):
    """An edge of the decision graph; ``nats`` is its weight where it supports or refutes a cause."""

    start: str
    end: str
    relation: str
    nats: float | UnsetType = UNSET


class KbGraphDocument(msgspec.Struct):
    """The decision graph (``kb graph``)."""

    nodes: list[GraphNode]
    edges: list[GraphEdge]


class KbCoverageDocument(msgspec.Struct):
    """Coverage of each topic (``kb coverage``)."""

    topics: list[TopicCoverage]


class DraftedFile(msgspec.Struct):
    """A file that was drafted."""

    path: str
    text: str


class KbNewDocument(msgspec.Struct):
    """A drafted entry or lab (``kb new``): the first file, and all of them."""

    id: str
    path: str
    text: str
    files: list[DraftedFile]


class ListedSession(msgspec.Struct):
    """A session; times in seconds since 1970."""

    id: str
    path: str
    begun_at: float
    updated_at: float
    steps: int
    open: bool
    outcome: str | None
    about: str


class SessionsDocument(msgspec.Struct):
    """The sessions, newest first."""

    sessions: list[ListedSession]


class ExportDocument(msgspec.Struct):
    """An exported session: its text, or with ``--output`` the path of the file."""

    id: str
    format: Literal["md", "html"]
    public: bool
    path: str | None
    text: str | UnsetType = UNSET


class UndoListDocument(msgspec.Struct):
    """The applied fixes, newest first (``undo --list``)."""

    fixes: list[ListedFix]


class CompletionDocument(msgspec.Struct):
    """The completion script of a shell."""

    shell: Literal["bash", "zsh", "fish"]
    script: str


class ServeDocument(msgspec.Struct):
    """The address of the server, with its token."""

    url: str


class ErrorDocument(msgspec.Struct):
    """The reason why a command has failed (exit codes 2 and 3), and what to do next."""

    message: str
    next: str


class PublicDocument(NamedTuple):
    """A kind of document: the command that prints it, and the type of its body."""

    command: str
    body: Any


DOCUMENTS = {
    "agreement": PublicDocument("review --launch-files", AgreementDocument),
    "cause": PublicDocument("explain CAUSE", Cause),
    "chapter": PublicDocument("explain CHAPTER", ChapterDocument),
    "completion": PublicDocument("completion", CompletionDocument),
    "diagnosis": PublicDocument("diagnose", DiagnosisDocument),
    "doctor": PublicDocument("doctor", DoctorDocument),
    "error": PublicDocument("any command", ErrorDocument),
    "explain-search": PublicDocument("explain WORDS", ExplainSearchDocument),
    "export": PublicDocument("sessions export", ExportDocument),
    "kb-check": PublicDocument("kb check", KbCheckDocument),
    "kb-coverage": PublicDocument("kb coverage", KbCoverageDocument),
    "kb-graph": PublicDocument("kb graph", KbGraphDocument),
    "kb-list": PublicDocument("kb list", KbListDocument),
    "kb-new": PublicDocument("kb new", KbNewDocument),
    "learn": PublicDocument("learn", LearnDocument),
    "migration": PublicDocument("review --to", MigrationDocument),
    "plan": PublicDocument("plan", PlanDocument),
    "review": PublicDocument("review", ReviewDocument),
    "rule": PublicDocument("explain RULE", RuleDocument),
    "rules": PublicDocument("review --rules", RulesDocument),
    "serve": PublicDocument("serve", ServeDocument),
    "sessions": PublicDocument("sessions list", SessionsDocument),
    "term": PublicDocument("explain TERM", TermDocument),
    "triage": PublicDocument("triage", TriageDocument),
    "undo": PublicDocument("undo", AppliedFix),
    "undo-list": PublicDocument("undo --list", UndoListDocument),
}
OMIT_DEFAULTS = {Evidence.__name__}
HEAD = {
    "schema": {"const": ""},
    "ddpwizard_version": {"type": "string"},
    "knowledge_version": {"type": "string", "description": "Empty if the command reads no entries."},
}


def json_schema(kind: str, *, closed: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document. ``closed``: properties that it does not name are errors."""
    document = DOCUMENTS[kind]
    (reference,), types = msgspec.json.schema_components([document.body], ref_template="#/$defs/{name}")
    types = {name: _object(each, closed) for name, each in types.items()}
    body = types.pop(reference["$ref"].rpartition("/")[2])
    head = HEAD | {"schema": {"const": f"ddpwizard.{kind}/1"}}
    if kind == "error":
        del head["ddpwizard_version"], head["knowledge_version"]
    return {
        "$schema": DIALECT,
        "title": f"ddpwizard.{kind}/1",
        "description": body.get("description", ""),
        **{key: value for key, value in body.items() if key not in ("title", "description")},
        "properties": head | body["properties"],
        "required": [*head, *body["required"]],
        "$defs": types,
    }


def _object(schema: dict[str, Any], closed: bool) -> dict[str, Any]:
    """Return the schema of an object as it is printed: with all its fields, those with defaults among them."""
    if schema.get("type") != "object" or "properties" not in schema:
        return schema
    names = schema["properties"]
    printed = [] if schema.get("title") in OMIT_DEFAULTS else [name for name in names if "default" in names[name]]
    required = [name for name in names if name in (*schema.get("required", []), *printed)]
    return schema | {"required": required, "additionalProperties": not closed}
