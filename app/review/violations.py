"""Violations at the facts of a program."""

import ast
from collections.abc import Callable, Iterator, Sequence

from ...knowledge.schema import Severity
from ..training_script.model.reach import Reach
from ..training_script.model.sequences import Event, Site
from .rule_context import Patch, Script, Violation
from .types import RelatedPlace

THERE = "there"  # the place of a fact, where the violation is at the call that leads to it


def violation_at(
    script: Script,
    reach: Reach,
    message: str,
    confidence: float,
    *,
    severity: Severity | None = None,
    cause: str = "",
    branch: int | None = None,
    patch: Callable[[], Patch] | None = None,
    related: list[RelatedPlace] | None = None,
) -> Iterator[Violation]:
    """Yield the violation at a fact, or at the call in this script that leads to it; none if it is elsewhere."""
    site = script.place(reach)
    if site is not None:
        at = reach.fact.site
        if at.path != site.path and not related:
            related = [RelatedPlace(path=at.path, line=at.line, message=THERE)]
        yield Violation(
            line=site.line,
            column_bytes=site.column,
            end_line=site.end_line,
            message=message,
            confidence=confidence,
            severity=severity,
            cause=cause,
            branch=branch,
            patch=patch,
            related=related or [],
        )


def violation_at_node(
    node: ast.expr | ast.stmt,
    message: str,
    confidence: float,
    *,
    branch: int | None = None,
    severity: Severity | None = None,
    cause: str = "",
    patch: Callable[[], Patch] | None = None,
    related: list[RelatedPlace] | None = None,
) -> Violation:
    """Return the violation at a node of the script."""
    return Violation(
        line=node.lineno,
        column_bytes=node.col_offset + 1,
        end_line=node.end_lineno or node.lineno,
        message=message,
        confidence=confidence,
        branch=branch,
        severity=severity,
        cause=cause,
        patch=patch,
        related=related or [],
    )


def in_function_of(reach: Reach, others: Sequence[Reach]) -> Reach:
    """Return a fact as the call that leads to it in the innermost function that it shares with one of other facts."""
    depth = max((sum(a == b for a, b in zip(reach.calls, each.calls, strict=False)) for each in others), default=0)
    if depth == len(reach.calls) or isinstance(reach.fact, Event):
        return reach
    return reach._replace(fact=reach.fact._replace(site=reach.calls[depth]), calls=reach.calls[:depth])


def at_node(script: Script, reach: Reach, node: ast.AST | None) -> Reach:
    """Return a fact at the place of an expression of the script, such as one of its arguments; as it is without one."""
    if not isinstance(node, ast.expr) or isinstance(reach.fact, Event):
        return reach
    site = Site(script.source.path, node.lineno, node.col_offset + 1, node.end_lineno or node.lineno)
    return reach._replace(fact=reach.fact._replace(site=site))
