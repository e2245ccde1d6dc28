"""The patch for ranks that part: of what is there, or of the same code with its condition or its call written apart."""

import ast
from collections.abc import Callable, Iterator

from ...training_script.model.divergence import Divergence
from ...training_script.model.keys import LOCAL, RANKS, Key
from ...training_script.nodes import node_at, nodes_of_kinds
from ..deciding_branch import DecidingBranch
from ..patches.agree_on_condition import agree_on_condition
from ..patches.apply_edits import apply_edits, edits_between
from ..patches.call_before_choice import call_before_choice
from ..patches.elsewhere_under_condition import exit_at, make_on_every_rank, undecorated
from ..patches.extract_calls import call_on_every_rank, with_extracted_calls
from ..patches.hoist_collective import FIX, hoist_collective
from ..patches.rejoin_ranks import rejoin_ranks
from ..patches.rest_under_condition import rest_under_condition
from ..patches.work_under_condition import only_leaves
from ..rule_context import Patch, Script, Violation, no_patch

Check = Callable[[Script], Iterator[tuple[str, Violation]]]
BY_HAND = "the condition is part of an expression or of another branch: move the call out by hand"


def divergence_patch(script: Script, rule: str, found: Divergence, deciding: DecidingBranch, check: Check) -> Patch:
    """Return the patch of a divergence; ``check`` finds those of a script that says the same in other words."""
    if rule not in ("DW401", "DW403") or deciding.side == "after" or (found.second and deciding.has_other_calls):
        patch = rejoin_ranks(script, found)
        return (
            patch
            if patch.edits
            else _without_exit(script, found, check) or _elsewhere(script, found, deciding) or patch
        )
    nodes = deciding.nodes() if deciding.side == "then" else []
    if deciding.guard is None or not nodes:
        call = _call_here(script, found)
        if call is None:
            return _elsewhere(script, found, deciding) or no_patch(FIX, BY_HAND)
        return call_before_choice(script, call) or call_on_every_rank(script, call)
    way = (*found.calls, found.first.site)
    patch = hoist_collective(script, deciding.guard, nodes, way, by_first=deciding.who[0] == "rank 0")
    if patch.edits:
        return patch
    text = with_extracted_calls(script, nodes)
    return _of_text(script, text, found.decided.line, check) or patch


def _without_exit(script: Script, found: Divergence, check: Check) -> Patch | None:
    """Return the patch that puts what is behind an early exit under its condition, and moves the collectives out."""
    leaving = exit_at(script, found)
    if leaving is None or found.rounds or found.by & LOCAL or not script.depends_on_rank(leaving.test):
        return None
    patch = _of_text(script, *undecorated(script, found, leaving), check)
    return patch or _of_text(script, rest_under_condition(script, leaving), leaving.lineno, check)


def _elsewhere(script: Script, found: Divergence, deciding: DecidingBranch) -> Patch | None:
    """Return the patch for an object that some ranks have, or for an exit that only their data decide."""
    guard = exit_at(script, found)
    if guard is None or found.rounds or found.second or found.by & LOCAL or not script.depends_on_rank(guard.test):
        return None
    if found.leaves is None or deciding.chooses_what_runs:
        return make_on_every_rank(script, found, guard, by_first=_by_first(script, guard))
    if only_leaves(guard.body[-1]) and not any(each.is_constant for each in _by_rank(script, guard.test)):
        return agree_on_condition(script, guard)
    return None


def _by_first(script: Script, guard: ast.If) -> bool:
    """Return whether a condition lets rank 0 through alone."""
    return [each.is_constant and bool(each.value) for each in _by_rank(script, guard.test)] == [True, *[False] * 3]


def _by_rank(script: Script, test: ast.expr) -> list[Key]:
    """Return what a condition is on each of some ranks."""
    key, keys = script.evaluated.value(test), script.evaluated.keys
    return [keys.specialise(key, rank) for rank in RANKS] if key else []


def _of_text(script: Script, text: str, line: int, check: Check) -> Patch | None:
    """Return the patch for the condition in a line of a text that does the same as a script, as one of the script."""
    again = Script(text, script.source.path) if text else None
    for _, violation in check(again) if again else ():
        patch = violation.patch() if violation.branch == line and violation.patch else None
        if patch and patch.edits:
            edits = edits_between(script.source.text, apply_edits(text, patch.edits))
            return Patch(id=patch.id, safety="unsafe", why_unsafe=patch.why_unsafe, edits=edits)
    return None


def _call_here(script: Script, found: Divergence) -> ast.Call | None:
    """Return the call in the statement that parts the ranks which leads to where they wait."""
    at = found.decided
    matches = nodes_of_kinds(script.source.tree, ast.Match)
    chosen = (node for node in matches if node.lineno <= at.line <= (node.end_lineno or node.lineno))
    last = max((node.end_lineno or 0 for node in chosen), default=max(at.end_line, at.line))
    for site in (*found.calls, found.first.site):
        if site.path == script.source.path == at.path and at.line <= site.line <= last:
            return node_at(script.source.tree, site.line, site.column, ast.Call)
    return None
