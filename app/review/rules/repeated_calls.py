"""DW463: calls that may be made once, and are made again."""

import ast
from collections.abc import Callable, Iterator
from functools import partial

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import parts
from ...training_script.model.lengths import number
from ...training_script.model.members import PAIR
from ...training_script.model.noted_calls import DESTROY, INIT
from ...training_script.model.reach import Reach, Run, together
from ...training_script.model.sequences import Site
from ...training_script.nodes import node_at, nodes_of_kinds, walk
from ...training_script.syntax import FUNCTIONS, is_main_block
from ..patches.init_once import init_once
from ..rule_context import Patch, Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .missing_groups import asks_for_group

# Call: what makes it possible again, and whether it is counted by object.
ONCE: dict[str, tuple[str, bool]] = {INIT: (DESTROY, False), ".register_comm_hook": ("", True)}
# Parts of conditions that have one value in all rounds of a loop.
OUTSIDE_ROUNDS = {"constant", "compare", "not", "and", "or", "rank", "world", "attribute", "options", "binary"}
OF_ROUNDS = (
    "init_process_group is called in each round of a loop, and no round destroys the group: the second call raises "
    "an error"
)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """DW463: yield the second of two calls of which the first one is surely made before it in one process."""
    if ONCE.keys().isdisjoint(run.places):
        return
    made: dict[tuple[str, object], Reach] = {}
    for reach in run.reached:
        if not isinstance(reach.fact, Noted):
            continue
        for name, (again, _) in ONCE.items():
            if reach.name == again:
                made = {key: each for key, each in made.items() if key[0] != name}
        if reach.name not in ONCE or reach.unsure or reach.attempted:
            continue
        fact, of_object = reach.fact, ONCE[reach.name][1]
        owner = fact.owner.key if of_object and fact.owner else None
        if of_object and not (fact.owner and "ddp" in fact.owner.facts):
            continue
        key = reach.name, owner
        before = made.get(key)
        if before is None:
            made[key] = reach
            if reach.name == INIT and (loop := _loop_around(script, run, reach)) and not asks_for_group(script, reach):
                related = [RelatedPlace(path=loop.path, line=loop.line, message="the loop")]
                yield from violation_at(
                    script, reach, OF_ROUNDS, 0.85, related=related, patch=_patch(script, reach, fact)
                )
            continue
        again = _is_again(before, reach)
        if not (again or _is_next_round(script, before, reach)):
            continue
        if asks_for_group(script, reach) or asks_for_group(script, before):
            continue
        line = before.fact.site.line
        message = f"{reach.name.rpartition('.')[2]} is called again (first in line {line}): this raises an error"
        yield from violation_at(
            script,
            reach,
            message if again else OF_ROUNDS,
            0.85,
            related=[RelatedPlace(path=before.fact.site.path, line=line, message="called first here")],
            patch=_patch(script, reach, fact),
        )


def _patch(script: Script, reach: Reach, fact: Noted) -> Callable[[], Patch] | None:
    return partial(init_once, script, fact.node) if fact.name == INIT and script.is_here(reach) else None


def _is_again(before: Reach, reach: Reach) -> bool:
    """Return whether a rank that makes the second call has surely made the first one, in another place."""
    conditions = {(each.test, each.truth) for each in reach.conditions}
    held = (each for each in before.conditions if not each.test.is_constant)
    return (
        before.started == reach.started
        and (before.fact.site, before.calls) != (reach.fact.site, reach.calls)
        and reach.ranks & before.ranks == reach.ranks
        and together(before, reach)
        and all((each.test, each.truth) in conditions for each in held)
    )


def _is_next_round(script: Script, before: Reach, reach: Reach) -> bool:
    """Return whether a call is that of a further round of a loop over elements that are written out."""
    same = (before.fact.site, before.calls) == (reach.fact.site, reach.calls)
    return reach.name == INIT and same and not reach.started and not reach.loops and _is_sure(script, reach)


def _loop_around(script: Script, run: Run, reach: Reach) -> Site | None:
    """Return a loop of one process in which surely two rounds come to a call, and no round destroys the group."""
    if not _is_sure(script, reach):
        return None
    for loop in reach.loops:
        destroyed = any(loop.site in [each.site for each in other.loops] for other, _ in run.of(DESTROY))
        rounds = number(loop.amount, PAIR[0])
        if rounds is None or rounds < 2 or destroyed or loop.site.path != script.source.path:
            continue
        if not (reach.started and not _is_in_function_of(script, reach, loop.site)) and not _is_left(script, loop.site):
            return loop.site
    return None


def _is_sure(script: Script, reach: Reach) -> bool:
    """Return whether no condition that a round may change is around a call, or around one that leads to it."""
    tests = [each.test for each in reach.conditions]
    for site in (*reach.calls, reach.fact.site):
        node: ast.AST | None = node_at(script.source.tree, site.line, site.column, ast.Call)
        if node is None or site.path != script.source.path:
            return False
        while (node := script.source.parents.get(node)) is not None and not isinstance(node, FUNCTIONS):
            if isinstance(node, ast.If | ast.IfExp) and not is_main_block(node):
                key = script.evaluated.value(node.test)
                if key is None:
                    return False
                tests.append(key)
    return all(each.op in OUTSIDE_ROUNDS for test in tests for each in parts(test))


def _is_in_function_of(script: Script, reach: Reach, loop: Site) -> bool:
    """Return whether a loop is in the function that makes a call itself, rather than around the start of a process."""
    site = reach.fact.site
    node = node_at(script.source.tree, site.line, site.column, ast.Call) if script.is_here(reach) else None
    around = script.names.enclosing_function(node) if node else None
    return around is not None and around.lineno <= loop.line <= (around.end_lineno or around.lineno)


def _is_left(script: Script, loop: Site) -> bool:
    """Return whether something ends a loop before its last round."""
    statement = next((each for each in nodes_of_kinds(script.source.tree, ast.For) if each.lineno == loop.line), None)
    return statement is not None and any(
        isinstance(each, ast.Break | ast.Return | ast.Raise) for each in walk(statement)
    )
