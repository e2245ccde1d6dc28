"""``pair-exchange``: the blocking send and receive in which the ranks of a job wait become one exchange."""

import ast

from ...review.patches.exchange_at_once import exchange_at_once
from ..facts import CaseFacts
from .types import RecipeResult


def pair_exchange(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the line where the ranks wait and the opposite call next to it."""
    report = facts.context.report
    where = facts.place(report.verdict.where or "", "the ranks wait here") if report else None
    file = facts.file_as_started(where.path) if where else None
    if where is None or file is None:
        return RecipeResult()
    at_line = (node for node in ast.walk(file.source.tree) if isinstance(node, ast.Expr) and node.lineno == where.line)
    stmt = next(at_line, None)
    exchange = exchange_at_once(file.source, stmt) if stmt else None
    if exchange is None:
        return RecipeResult(places=[where])
    places = [file.place(each) for each in (exchange.first, exchange.second)]
    return RecipeResult(patches=[file.patched(exchange.edits)], places=places)
