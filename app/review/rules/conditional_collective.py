"""DW401: a collective that only some ranks reach.

Covers collectives under a condition on the rank, in the function itself or one call below it, and behind a ``return``,
``continue`` or ``break`` under such a condition. Silent if the other ranks reach the same collective elsewhere ("rank 0
first" pairs, an else branch, leader and worker), if a group is given, and if the text does not determine it.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable

from ...training_script.collectives import collective_name
from ...training_script.rank_conditions import PER_NODE, RANKS, UnknownParts, truth_assignments
from ...training_script.syntax import nodes_of_body
from ..collective_calls import BranchCondition, CollectiveCall, CollectiveCalls, function_bodies
from ..patches.hoist_collective import hoist_collective
from ..rule_context import Patch, Script, Violation, no_patch
from ..worker_loops import served_kinds

FIX = "hoist-collective"
KNOWN_MODULES = {*sys.stdlib_module_names, "torch", "numpy", "tqdm", "wandb", "yaml", "tensorboardX"}
KNOWN_METHODS = re.compile(
    r"add_argument|add_scalar|append|close|copy|cpu|critical|cuda|debug|detach|error|eval|exception|extend|float|flush"
    r"|format|get|info|int|items?|join|keys|log|numpy|open|pop|print|put|read|split|startswith|strip|to|values|warn(?:ing)?"
    r"|write"
)


def check(script: Script) -> list[Violation]:
    """Return every place in the script where some ranks enter a collective and others do not."""
    events = CollectiveCalls(script)
    suspects: list[CollectiveCall] = []
    workers: list[CollectiveCall] = []
    for body in function_bodies(script):
        by_kind: dict[str, list[CollectiveCall]] = defaultdict(list)
        for event in events.of(body):
            if any(condition.by_rank for condition in event.path):
                by_kind[event.kind].append(event)
        for group in by_kind.values():
            divided = [event for event in group if _divides(script, [event])]
            workers += [event for event in divided if event.protocol or _loops_inside(script, events, event)]
            if divided and _divides(script, divided) and not _paired(script, divided):
                suspects += [e for e in divided if e.sure and not e.protocol and not _answered(script, events, e)]
    served = served_kinds(script) if suspects else set[str]()
    suspects = [event for event in suspects if event.kind not in served]
    return _findings(script, _unpaired(script, suspects, workers))


def _findings(script: Script, suspects: list[CollectiveCall]) -> list[Violation]:
    """Return one finding for each branch, with all the collectives on it."""
    places: dict[tuple[ast.stmt, str], list[CollectiveCall]] = defaultdict(list)
    for event in suspects:
        condition = _decides(event)
        places[condition.guard, condition.place].append(event)
    found = [_finding(script, place[0], place[1], events) for place, events in places.items()]
    return sorted(found, key=lambda finding: (finding.line, finding.column))


def _finding(script: Script, guard: ast.stmt, place: str, events: list[CollectiveCall]) -> Violation:
    first = events[0]
    condition = _decides(first)
    text = script.source.one_line(condition.tests[0][0]) if isinstance(guard, ast.If) else ""
    kinds = list(dict.fromkeys(event.kind for event in events))
    names, be = _listed(kinds), "is" if len(kinds) == 1 else "are"
    through = f" in {first.through.name}()" if first.through else ""
    who, others = _who(script, first)
    leaves = place.startswith("after")
    further = any(not c.by_rank for c in first.path) or len(condition.tests) > 1
    if leaves:
        way = "may leave" if further else "leave"
        message = (
            f"{names}{through} {be} not reached by all: {others} {way} before it under line {guard.lineno} (`{text}`)"
        )
    elif text:
        message = f"{names}{through} {be} reached by {who} alone: line {guard.lineno} keeps {others} out (`{text}`)"
    else:
        message = f"{names}{through} {be} reached by {who} alone"
    return Violation(
        line=first.call.lineno,
        column=script.source.column(first.call),
        end_line=max(event.call.end_lineno or event.call.lineno for event in events),
        message=message,
        confidence=(0.7 if leaves else 0.95) - (0.1 if first.through else 0),
        severity="warning" if leaves and further else None,
        branch=guard.lineno,
        patch=lambda: _patch(script, guard, place, events),
    )


def _patch(script: Script, guard: ast.stmt, place: str, events: list[CollectiveCall]) -> Patch:
    if place.startswith("after"):
        return no_patch(FIX, "invert the branch that leaves: put the work under the condition and let every rank go on")
    if place != "body" or not isinstance(guard, ast.If):
        return no_patch(FIX, "the condition is part of an expression or of another branch: move the call out by hand")
    return hoist_collective(script, guard, events)


def _decides(event: CollectiveCall) -> BranchCondition:
    """Return the outermost condition on the rank that divides the ranks at ``event``."""
    return next(condition for condition in event.path if condition.by_rank)


# ---- who reaches what


def _reach(script: Script, event: CollectiveCall, unknown: UnknownParts) -> set[int]:
    ranks = set(RANKS)
    for condition in event.path:
        if condition.by_rank:
            ranks &= {rank for rank in RANKS if _passes(script, condition, rank, unknown)}
    return ranks


def _passes(script: Script, condition: BranchCondition, rank: int, unknown: UnknownParts) -> bool:
    fulfilled = [script.tests.truth(test, rank, unknown) == wanted for test, wanted in condition.tests]
    return all(fulfilled) != condition.negated


def _reaches(script: Script, events: list[CollectiveCall]) -> Iterable[list[set[int]]]:
    """Yield, for each combination of the unknown parts of the tests, the ranks that reach each event."""
    unknown = UnknownParts({})
    for event in events:
        _reach(script, event, unknown)
    for values in truth_assignments(unknown.met):
        yield [_reach(script, event, UnknownParts(values)) for event in events]


def _divides(script: Script, events: list[CollectiveCall]) -> bool:
    """Return whether, for some combination, some ranks reach one of the events and others none."""
    return any(0 < len(set().union(*reached)) < len(RANKS) for reached in _reaches(script, events))


def _paired(script: Script, events: list[CollectiveCall]) -> bool:
    """Return whether events on different branches can together be reached by every rank, though no single one is."""
    if len({(_decides(event).guard, _decides(event).place) for event in events}) < 2:
        return False
    everyone = set(RANKS)
    return any(set().union(*reached) == everyone and everyone not in reached for reached in _reaches(script, events))


def _unpaired(script: Script, suspects: list[CollectiveCall], workers: list[CollectiveCall]) -> list[CollectiveCall]:
    """Drop those that another function of the file pairs with (``__enter__`` and ``__exit__``, send and receive).

    ``workers`` are calls in loops in which some ranks answer the others: they pair with a call in any function.
    """
    by_kind: dict[str, list[CollectiveCall]] = defaultdict(list)
    for event in suspects:
        by_kind[event.kind].append(event)
    for event in workers:
        if event.kind in by_kind and event not in by_kind[event.kind]:
            by_kind[event.kind].append(event)
    paired = {kind for kind, events in by_kind.items() if _paired(script, events)}
    return [event for event in suspects if event.kind not in paired]


def _loops_inside(script: Script, events: CollectiveCalls, event: CollectiveCall) -> bool:
    """Return whether the called function has a ``while`` loop in which it may make the collective: a worker's loop."""
    return event.through is not None and any(
        isinstance(call, ast.Call) and _may_make(script, events, call, event.kind)
        for loop in nodes_of_body(event.through)
        if isinstance(loop, ast.While)
        for call in nodes_of_body(loop)
    )


def _answered(script: Script, events: CollectiveCalls, event: CollectiveCall) -> bool:
    """Return whether the ranks that do not reach this run something else that may make the same collective."""
    return any(
        _may_make(script, events, call, event.kind)
        for stmt in _other_side(script, _decides(event))
        for call in (stmt, *nodes_of_body(stmt))
        if isinstance(call, ast.Call)
    )


def _other_side(script: Script, condition: BranchCondition) -> list[ast.stmt]:
    guard = condition.guard
    if not isinstance(guard, ast.If):
        return []
    if condition.place.startswith("after"):
        return guard.body if condition.place.endswith("body") else guard.orelse
    here, there = (guard.body, guard.orelse) if condition.place == "body" else (guard.orelse, guard.body)
    return [*there, *(_rest(script, guard) if here and isinstance(here[-1], (ast.Return, ast.Continue)) else [])]


def _rest(script: Script, stmt: ast.stmt) -> list[ast.stmt]:
    """Return the statements behind ``stmt`` in its block."""
    parent = script.source.parents[stmt]
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, [])
        if isinstance(block, list) and stmt in block:
            return block[block.index(stmt) + 1 :]
    return []


def _may_make(script: Script, events: CollectiveCalls, call: ast.Call, kind: str) -> bool:
    names = script.names
    if made := collective_name(call, names):
        return made == kind
    if function := names.function(call):
        return kind in events.possible_calls(function)
    full = names.qualified(call.func)
    if full:
        return full.partition(".")[0] not in KNOWN_MODULES
    if isinstance(call.func, ast.Name):
        return bool(names.lookup(call.func.id, names.scope_of.get(call.func, names.module)))
    return not (isinstance(call.func, ast.Attribute) and KNOWN_METHODS.fullmatch(call.func.attr))


# ---- words


def _who(script: Script, event: CollectiveCall) -> tuple[str, str]:
    """Return which ranks reach the collective and which do not, in words."""
    for reached in _reaches(script, [event]):
        here = reached[0]
        if not 0 < len(here) < len(RANKS):
            continue
        if here == {0}:
            return "rank 0", "the other ranks"
        if here == set(RANKS) - {0}:
            return "the ranks but 0", "rank 0"
        if here == {rank for rank in RANKS if rank % PER_NODE == 0}:
            return "the first rank of each node", "the other ranks"
        if here == {rank for rank in RANKS if rank % PER_NODE}:
            return "the ranks of each node but its first", "the first rank of each node"
        if len(here) == 1:
            return "one rank", "the other ranks"
    return "some ranks", "the others"


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
