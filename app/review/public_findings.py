"""Public JSON of findings, rules and files that were not reviewed; their types are the schema of the documents."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from ...knowledge.schema import Rule, Safety, Severity
from ..text.json_output import fields_from
from .types import CellPlace, ReviewFinding, SkippedFile


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


def finding_as_json(finding: ReviewFinding) -> dict[str, Any]:
    """Return the public JSON of a finding."""
    related = [FindingPlace(**fields_from(place, FindingPlace)) for place in finding.related]
    fix = FindingFix(**fields_from(finding.fix, FindingFix)) if finding.fix else None
    return msgspec.to_builtins(Finding(**fields_from(finding, Finding) | {"related": related, "fix": fix}))


def skipped_as_json(skipped: SkippedFile) -> dict[str, Any]:
    """Return the public JSON of a file that was not reviewed."""
    return msgspec.to_builtins(Skipped(path=str(Path(skipped.path).absolute()), reason=skipped.reason))


def rule_as_json(id_: str, rule: Rule) -> dict[str, Any]:
    """Return the public JSON of a rule."""
    return msgspec.to_builtins(ListedRule(rule=id_, **fields_from(rule, ListedRule)))
