"""Findings of static review. The field names are the public JSON of ``ddpwizard review``."""

import msgspec

from ...knowledge.schema import Safety, Severity
from ..training_script.edits import Edit


class RuleFix(msgspec.Struct, frozen=True, kw_only=True):
    """A patch for one finding: edits on the file's text, their safety, and the diff for people."""

    id: str
    safety: Safety
    why_unsafe: str | None
    edits: list[Edit]
    diff: str


class ReviewFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One place that violates a rule. ``column`` counts from 1; ``branch`` is the line of the condition, if any."""

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
    branch: int | None = None
    fix: RuleFix | None = None
