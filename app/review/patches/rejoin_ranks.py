"""The patch for ranks that part: decide together, use the model inside DDP, or let the others go on as well."""

import ast

from ...training_script.model.divergence import Divergence
from ...training_script.model.keys import LOCAL
from ...training_script.nodes import node_at
from ..rule_context import Patch, Script, no_patch
from .agree_on_condition import agree_on_condition, agree_on_rounds
from .common_order import choice_of_first, common_order
from .use_inner_model import use_inner_model
from .work_under_condition import work_under_condition

BY_HAND = "rejoin-ranks"
WITH_MODEL = ("of DDP", "of FSDP", "the backward pass")


def rejoin_ranks(script: Script, found: Divergence) -> Patch:
    """Return the patch after which the ranks of a divergence stay together; display-only if none is known."""
    stmt = _statement(script, found)
    if isinstance(stmt, ast.For | ast.AsyncFor | ast.While) and found.rounds == "count":
        if not found.sure and found.first.site.path != script.source.path:
            return no_patch(BY_HAND, "whether the other file communicates in each round is not known: look there first")
        return agree_on_rounds(script, stmt)
    if found.first.kind.endswith(WITH_MODEL) and not found.by & LOCAL and not found.rounds and stmt:
        return use_inner_model(script, found, stmt)
    if isinstance(stmt, ast.For | ast.AsyncFor) or stmt is None:
        return _of_expression(script, found)
    if not isinstance(stmt, ast.If):
        return no_patch(BY_HAND, "the ranks part at an expression: decide before it, on all ranks")
    stops = bool(found.rounds) or isinstance(stmt.body[-1], ast.Break | ast.Raise)
    if found.by & LOCAL or (stops and not script.is_known_by_rank(stmt.test)):
        return agree_on_condition(script, stmt)
    if found.second is not None:
        return no_patch(BY_HAND, "each side waits in another call: make the same calls in one order on every rank")
    if found.leaves and not found.rounds and script.depends_on_rank(stmt.test):
        return work_under_condition(script, stmt)
    return no_patch(BY_HAND, "what the other ranks do there has to be decided: call it on every rank, or on none")


def _of_expression(script: Script, found: Divergence) -> Patch:
    """Return the patch for ranks that an expression parts: their order of calls, or their choice from a table."""
    at = found.decided
    call = node_at(script.source.tree, at.line, at.column, ast.Call) if at.path == script.source.path else None
    if call is not None and isinstance(call.func, ast.Name) and call.func.id == "sorted":
        return common_order(script, at.line, at.column)
    if call is not None and isinstance(call.func, ast.Subscript):
        return choice_of_first(script, call)
    return no_patch(BY_HAND, "the ranks part at an expression: decide before it, on all ranks")


def _statement(script: Script, found: Divergence) -> ast.stmt | None:
    """Return the statement of the script at which the ranks part."""
    if found.decided.path != script.source.path:
        return None
    return node_at(script.source.tree, found.decided.line, found.decided.column, ast.stmt)
