"""Violations at the facts of a program."""

from collections.abc import Callable, Iterator

from ...knowledge.schema import Severity
from ..training_script.model.reach import Reach
from .rule_context import Patch, Script, Violation
from .types import RelatedPlace


def violation_at(
    script: Script,
    reach: Reach,
    message: str,
    confidence: float,
    *,
    severity: Severity | None = None,
    branch: int | None = None,
    patch: Callable[[], Patch] | None = None,
    related: list[RelatedPlace] | None = None,
) -> Iterator[Violation]:
    """Yield the violation at a fact, or at the call in this script that leads to it; none if it is elsewhere."""
    site = script.place(reach)
    if site is not None:
        yield Violation(
            line=site.line,
            column=site.column,
            end_line=site.end_line,
            message=message,
            confidence=confidence,
            severity=severity,
            branch=branch,
            patch=patch,
            related=related or [],
        )
