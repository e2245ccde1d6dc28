"""Types of the JSON documents about scripts, plans and launch files that a command builds as a dictionary."""

import msgspec
from ddpwizard.app.plan.batch_scaling import BatchScaling
from ddpwizard.app.plan.exact_memory import TrackedStrategy
from ddpwizard.app.plan.plan_answer import ScalePoint
from ddpwizard.app.plan.types import Candidate, TrainingSetup
from ddpwizard.app.review.public_findings import Finding, ListedRule, Skipped
from msgspec import UNSET, UnsetType


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
