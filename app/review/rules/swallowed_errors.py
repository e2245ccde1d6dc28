"""DW411: errors of one rank that are passed over where the other ranks communicate."""

import ast
from collections.abc import Iterator
from functools import partial

from ...training_script.model.collective_effects import is_agreed
from ...training_script.model.function_steps import Branch, Called, Item, Leave, kinds
from ...training_script.model.library_calls import BACKWARD
from ...training_script.model.reach import Attempted, Reach, Run
from ...training_script.model.sequences import Event, Site
from ...training_script.nodes import node_at, try_with_handler
from ...training_script.syntax import FUNCTIONS, last_name
from ..epoch_loops import loop_around
from ..patches.agree_on_error import BY_HAND, FIX, agree_on_error
from ..rule_context import Patch, Script, Violation, no_patch
from ..types import RelatedPlace
from . import skipped_rounds
from .raising_calls import are_of_data, may_raise, taken_by

FORWARD, NEXT_ROUND = "the forward pass", "the next round"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the handlers behind which a rank goes on without a step that the others are in."""
    yield from skipped_rounds.check(script, run)
    seen: set[Site] = set()
    waits = {site for reach in run.reached if isinstance(reach.fact, Event) for site in _way(script, reach)}
    for at, reach in enumerate(run.reached):
        if not isinstance(reach.fact, Event) or not reach.several:
            continue
        for each in reach.attempts[-1:]:
            site = each.attempt.site
            if site is None or site in seen or site.path != script.source.path:
                continue
            handler = each.attempt.handler
            if _end(handler) == "raise" or reach.fact.kind in kinds(handler) or _raise_together(each.attempt.body):
                continue  # no rank goes on behind it, or in time for the others
            goes_on = _reaches_more(each, run.reached[at + 1 :])
            made_up = goes_on.startswith(BACKWARD) and goes_on in kinds(each.attempt.body)
            raises = _may_raise_before(script, reach, site, waits) or (
                goes_on == NEXT_ROUND and _may_raise_in_function(script, reach, site, waits)
            )
            if goes_on and not made_up and raises:
                seen.add(site)
                yield Violation(
                    line=site.line,
                    column_bytes=site.column,
                    end_line=site.line,
                    message="an error of one rank is passed over here: this rank goes on to "
                    f"{goes_on} while the others wait in {reach.fact.kind}",
                    confidence=0.6,
                    related=_places(reach),
                    patch=partial(_patch, script, reach, site),
                )


def _places(reach: Reach) -> list[RelatedPlace]:
    """Return where the other ranks wait, and the last call that leads there."""
    kind = reach.fact.kind if isinstance(reach.fact, Event) else ""
    calls = [(site, f"one rank calls the function that leads to {kind}") for site in reach.calls[-1:]]
    return [
        RelatedPlace(path=site.path, line=site.line, message=message)
        for site, message in (*calls, (reach.fact.site, f"the others wait in {kind}"))
    ]


def _patch(script: Script, reach: Reach, handler: Site) -> Patch:
    attempt, way = try_with_handler(script.source.tree, handler.line), _way(script, reach)
    tried = range(attempt.lineno, handler.line) if attempt else range(0)
    inside = next((at for at, site in enumerate(way) if site.line in tried), None)
    own = isinstance(reach.fact, Event) and not reach.fact.implied
    if attempt is None or inside is None or not own or not script.is_here(reach):
        return no_patch(FIX, BY_HAND)
    return agree_on_error(script, attempt, way[inside:])


def _way(script: Script, reach: Reach) -> list[Site]:
    """Return the calls in a script that lead to a fact, and the fact's own place."""
    return [site for site in (*reach.calls, reach.fact.site) if site.path == script.source.path]


def _reaches_more(each: Attempted, later: list[Reach]) -> str:
    """Return what a rank reaches next after the handler, or an empty string."""
    leaves_loop = _last_leave(each.attempt.handler) == "break"
    if each.loops and not leaves_loop:
        return NEXT_ROUND
    behind = (fact for fact in later if all(other.attempt is not each.attempt for other in fact.attempts))
    events = (fact.fact.kind for fact in behind if isinstance(fact.fact, Event))
    return next((kind for kind in events if not kind.startswith(FORWARD)), "")


def _last_leave(items: list[Item]) -> str:
    return items[-1].kind if items and isinstance(items[-1], Leave) else ""


def _raise_together(items: list[Item]) -> bool:
    """Return whether all ranks raise an error where one of them has failed, by what they have reduced."""
    for item in items:
        match item:
            case Branch(test=test, then=then, other=other):
                if is_agreed(test) and "raise" in (_end(then), _end(other)):
                    return True
            case Called(summary=summary) if _raise_together(summary.items):
                return True
            case _:
                pass
    return False


def _end(items: list[Item]) -> str:
    """Return how ranks surely leave these steps, an empty string if they may go on or leave in several ways."""
    for item in items:
        if isinstance(item, Leave):
            return item.kind
        if isinstance(item, Called) and _end(item.summary.items) == "raise":
            return "raise"
        if isinstance(item, Branch):
            sides = [item.then, item.other]
            ends = {_end(side) for side in ([sides[not item.test.value]] if item.test.is_constant else sides)}
            if ends != {""}:
                return ends.pop() if len(ends) == 1 else ""
    return ""


def _may_raise_before(script: Script, reach: Reach, handler: Site, waits: set[Site]) -> bool:
    """Return whether something may raise on one rank before the others wait for it.

    ``waits``: the calls in which ranks wait for each other, and raise together.
    """
    attempt = try_with_handler(script.source.tree, handler.line)
    taken = taken_by(attempt, handler) if attempt else None
    if isinstance(reach.fact, Event) and reach.fact.kind.startswith(BACKWARD) and not are_of_data(taken):
        return True
    if attempt is None:
        return False
    tried = range(attempt.lineno, handler.line)
    place = next((site for site in _way(script, reach) if site.line in tried), None)
    if place is None:
        return False
    return may_raise(script, attempt.body, (place.line, place.column), waits, taken)


def _may_raise_in_function(script: Script, reach: Reach, handler: Site, waits: set[Site]) -> bool:
    """Return whether something may raise on one rank in a function that is tried, before the others wait for it there.

    In a loop that may be after the collective of the round before.
    """
    attempt = try_with_handler(script.source.tree, handler.line)
    taken = taken_by(attempt, handler) if attempt else None
    tried = range(attempt.lineno, handler.line) if attempt else range(0)
    decorators = _functions_around(script, attempt) if attempt else set[str]()
    is_inside = False
    for site in _way(script, reach):
        call = node_at(script.source.tree, site.line, site.column, ast.Call)
        around = script.names.enclosing_function(call) if call else None
        decorated = isinstance(around, FUNCTIONS) and any(
            last_name(each) in decorators for each in around.decorator_list
        )
        if site.line in tried or not (is_inside or decorated):
            is_inside = is_inside or site.line in tried
            continue
        is_inside = True
        if call is None or not isinstance(around, FUNCTIONS):
            continue
        loop = loop_around(script, call)
        last = loop.end_lineno or site.line if loop else site.line
        if may_raise(script, around.body, (last, site.column), waits, taken):
            return True
    return False


def _functions_around(script: Script, node: ast.AST) -> set[str]:
    """Return the names of the functions around a node, of which one may be a decorator."""
    found, around = set[str](), script.names.enclosing_function(node)
    while around is not None:
        found |= {around.name} if isinstance(around, FUNCTIONS) else set()
        around = script.names.enclosing_function(around)
    return found
