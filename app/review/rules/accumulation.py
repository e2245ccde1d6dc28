"""DW212, DW213 and DW220: gradients that are accumulated over several batches, and their number on several ranks."""

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from ...training_script.edits import Edit
from ...training_script.model.function_steps import Noted, Rounds
from ...training_script.model.keys import ARITHMETIC, BY_RANK, COMPARE, Key, parts
from ...training_script.model.library_calls import BACKWARD
from ...training_script.model.reach import Condition, Reach, Run, known_tests, without_not
from ...training_script.model.sequences import Event
from ...training_script.nodes import node_at, nodes_below
from ...training_script.syntax import FUNCTIONS, LOOPS
from ..patches.torch_names import INIT, distributed_module
from ..rule_context import Patch, Script, Violation, no_patch
from ..types import RelatedPlace
from ..violations import violation_at

SYNC_CONTROL = re.compile(r"no_sync|require_backward_grad_sync|set_requires_gradient_sync|gradient_accumulation_plugin")
COUNT = "torch.cuda.device_count"
SHARED = re.compile(r"accum|batch", re.IGNORECASE)
STARTS_RANKS = re.compile(r"spawn|nprocs|start_processes|\bProcess\(")
OF_ENVIRONMENT = re.compile(r"[\"'](?:RANK|WORLD_SIZE|LOCAL_RANK)[\"']")
WORLD_SIZE, SAME_CONDITION = "divide-by-world-size", "sync-at-step"
COUNTERS = ("number", "changing", "altered", "held")
CYCLES, ROUNDS = (2, 3, 4), 24  # numbers of batches for which two conditions are compared
MOST_LENGTHS = 3  # that are not known, for which a loop is computed


def check_missing(script: Script, run: Run) -> Iterator[Violation]:
    """DW212: yield the backward passes that reduce gradients in each round, though only some rounds use them."""
    steps = list(_steps(run))
    if not steps or script.mentions(SYNC_CONTROL):
        return
    for place, reach in enumerate(run.reached):
        if not isinstance(reach.fact, Event) or reach.fact.kind != BACKWARD or not reach.loops:
            continue
        step = next((each for each in run.reached[place:] if each in steps and each.loops == reach.loops), None)
        if step and any(_is_cycle(each.test) for each in step.conditions if each not in reach.conditions):
            message = "each of these rounds reduces the gradients over all ranks, and only the last one uses them"
            yield from violation_at(script, reach, message, 0.7)


def check_predicate(script: Script, run: Run) -> Iterator[Violation]:
    """DW213: yield the uses of no_sync in which the round of the step is one without synchronisation."""
    steps = list(_steps(run))
    for reach, _ in run.of(".no_sync"):
        by_rank = next((each for each in reach.conditions if each.test.differs_by & BY_RANK), None)
        if by_rank and run.distributed and any("backward" in each.name and each.several for each in run.reached):
            yield from violation_at(
                script,
                reach,
                "the rank decides whether gradients are reduced: the ranks that reduce them wait for the others",
                0.85,
                branch=by_rank.site.line,
            )
            continue
        own = [each for each in reach.conditions if _is_cycle(each.test)]
        for step in steps:
            its = [each for each in step.conditions if each not in reach.conditions and _is_cycle(each.test)]
            if own and its and step.loops == reach.loops and _is_counted_alike(reach, step, own) and _meet(own, its):
                line = step.fact.site.line
                message = f"no_sync also covers a round with a step (line {line}): the ranks apply different gradients"
                patch = (lambda own=own, its=its: _at_step(script, own, its)) if script.is_here(reach) else None
                place = _where_passed(script, reach, own[-1])
                yield from violation_at(script, place, message, 0.85, branch=own[-1].site.line, patch=patch)
                break
            window = [each for each in own if each not in step.conditions]
            if window and not its and _applies_rest(run, reach, window, step) and not _ends_reduced(reach, window):
                line = step.fact.site.line
                message = (
                    f"the step behind the loop (line {line}) applies what is left of a window, and no_sync also covers "
                    "its last round: the ranks apply different gradients"
                )
                place = _where_passed(script, reach, own[-1])
                related = [
                    RelatedPlace(path=step.fact.site.path, line=line, message="the step"),
                    *(RelatedPlace(path=at.path, line=at.line, message="called here") for at in step.calls[-1:]),
                    *(
                        RelatedPlace(path=script.source.path, line=node.lineno, message="decided here")
                        for node in nodes_below(script.source.tree)
                        if isinstance(node, ast.Compare) and script.evaluated.value(node) in _tests(own)
                    ),
                ]
                yield from violation_at(script, place, message, 0.8, branch=own[-1].site.line, related=related)
                break
            if (last := _last_round(reach)) and _is_behind_loop(run, reach, step):
                line = step.fact.site.line
                message = (
                    f"no_sync covers the last round of this loop, and the step behind it (line {line}) applies the "
                    "gradients: the ranks apply different ones"
                )
                yield from violation_at(script, reach, message, 0.85, branch=last.site.line)
                break


def _tests(conditions: Sequence[Condition]) -> set[Key]:
    return {without_not(each.test, each.truth)[0] for each in conditions}


def _applies_rest(run: Run, covered: Reach, own: Sequence[Condition], step: Reach) -> bool:
    """Return whether a step is behind the loop in which a condition on rounds alone decides about synchronisation."""
    reduced = any(covered.loops[:-1] == each.loops for each, _ in run.of("torch.distributed.all_reduce"))
    lengths = {part.args[2] for each in own for part in parts(each.test) if part.args[:1] == ("Mod",)}
    others = {leaf for each in own for leaf in _leaves(each.test)} - {
        leaf for each in lengths for leaf in _leaves(each)
    }
    return _is_behind_loop(run, covered, step) and not reduced and all(each.op in COUNTERS for each in others)


def _ends_reduced(at: Reach, own: Sequence[Condition]) -> bool:
    """Return whether the conditions keep no_sync away from the last round, whatever the length of the loop is."""
    loop = at.loops[-1]
    bound = _bound(loop)
    count = bound[0] if bound else loop.amount
    leaves = {leaf for key in (count, *(each.test for each in own)) for leaf in _leaves(key)}
    counters = {each for each in leaves if each.op == "number" and each.args[1] == loop.site.line}
    lengths = sorted(leaves - counters, key=id)
    if len(counters) != 1 or len(lengths) > MOST_LENGTHS:
        return False
    (counter,) = counters
    for numbers in product(CYCLES, repeat=len(lengths)):
        known = dict(zip(lengths, numbers, strict=True))
        try:
            last = _value(count, known)
            known[counter] = last - 1 if isinstance(last, int) else 0
            covered = [_value(each.test, known) == each.truth for each in own]
        except (TypeError, ZeroDivisionError):
            return False
        if not isinstance(last, int) or last < 1 or all(covered):
            return False
    return True


def _is_behind_loop(run: Run, covered: Reach, step: Reach) -> bool:
    """Return whether a step comes after the innermost loop around a fact."""
    at = [next(n for n, each in enumerate(run.reached) if each is reach) for reach in (covered, step)]
    return at[0] < at[1] and bool(covered.loops) and step.loops == covered.loops[:-1]


def _last_round(reach: Reach) -> Condition | None:
    """Return the condition on the way to a fact that holds in the last round of the loop around it."""
    if not reach.loops:
        return None
    loop = reach.loops[-1]
    bound = _bound(loop)
    lengths = tuple(each.value for each in bound if each.is_constant) or CYCLES
    for condition in reach.conditions:
        for test, truth in known_tests((condition,)).items():
            leaves = set(_leaves(test))
            counters = {each for each in leaves if each.op == "number" and each.args[1] == loop.site.line}
            totals = leaves - counters
            known = all(each.op == "length" or each in bound for each in totals)
            if test.op != "compare" or _is_cycle(test) or len(counters) != 1 or not known:
                continue
            (counter,) = counters
            found = [
                [_value(test, {counter: at, **dict.fromkeys(totals, n)}) == truth for at in range(n)] for n in lengths
            ]
            if all(rounds[-1] and not all(rounds) for rounds in found):
                return condition
    return None


def _bound(loop: Rounds) -> tuple[Key, ...]:
    """Return what ``range`` got, for a loop over it from zero."""
    over = loop.amount.args[0] if loop.amount.op == "length" else None
    return over.args if isinstance(over, Key) and over.op == "range" and len(over.args) == 1 else ()


def check_share(script: Script, run: Run) -> Iterator[Violation]:
    """DW220: yield the shares of a batch that are computed with the GPUs of one node."""
    counts = list(run.of(COUNT))
    if not counts or not run.distributed or script.mentions(STARTS_RANKS) or not script.mentions(OF_ENVIRONMENT):
        return
    for reach, fact in counts:
        if script.is_here(reach) and _divides_batch(script, fact.node):
            message = "this is the number of GPUs of this node, not of ranks: on more nodes the batch gets larger"
            yield from violation_at(script, reach, message, 0.7, patch=lambda fact=fact: _by_world(script, fact))


def _where_passed(script: Script, reach: Reach, condition: Condition) -> Reach:
    """Return a fact as the call that passes its condition, where the function around it only gets that."""
    test = _test(script, condition)
    function = script.names.enclosing_function(test) if isinstance(test, ast.Name) else None
    if not reach.calls or isinstance(reach.fact, Event) or not isinstance(function, FUNCTIONS):
        return reach
    handed_on = isinstance(test, ast.Name) and test.id in (each.arg for each in function.args.args)
    return (
        reach._replace(fact=reach.fact._replace(site=reach.calls[-1]), calls=reach.calls[:-1]) if handed_on else reach
    )


def _steps(run: Run) -> Iterator[Reach]:
    yield from (reach for reach, _ in run.of(".step") if reach.loops)


def _is_cycle(test: Key) -> bool:
    return any(part.op == "binary" and part.args[0] == "Mod" for part in parts(test))


def _is_counted_alike(covered: Reach, step: Reach, own: Sequence[Condition]) -> bool:
    """Return whether a counter has one value at two facts: an object may hold another one in other functions."""
    held = any(part.op == "held" for each in own for part in parts(each.test))
    return not held or covered.calls == step.calls


def _meet(first: Sequence[Condition], second: Sequence[Condition]) -> bool:
    """Return whether conditions on one counter and one length of a cycle are fulfilled together in some round.

    They may also ask for the last round: a number that the counter is compared with.
    """
    tests = [each.test for each in (*first, *second)]
    lengths = {part.args[2] for test in tests for part in parts(test) if part.op == "binary" and part.args[0] == "Mod"}
    others = {leaf for test in tests for leaf in _leaves(test)} - lengths
    counters = {each for each in others if each.op in COUNTERS}
    totals = others - counters
    written = len(lengths) > 1 and all(each.is_constant for each in lengths)
    if not (written or len(lengths) == 1) or len(counters) != 1 or len(totals) > 1:
        return False
    length, (counter,) = next(iter(lengths)), counters
    if not all(_is_number_of_rounds(each, counter, test) for each in totals for test in tests):
        return False
    cycles: list[dict[Key, int]] = [{}] if length.is_constant else [{length: each} for each in CYCLES]
    rounds = [{counter: n, **dict.fromkeys(totals, total)} for total in range(1, ROUNDS) for n in range(total)]
    return all(
        any(all(_value(each.test, numbers | cycle) == each.truth for each in (*first, *second)) for numbers in rounds)
        for cycle in cycles
    )


def _is_number_of_rounds(total: Key, counter: Key, test: Key) -> bool:
    """Return whether a test asks for a number only in comparisons with a counter."""
    compared = [part for part in parts(test) if part.op == "compare" and total in _leaves(part)]
    return all(counter in _leaves(part) for part in compared) and (bool(compared) or total not in _leaves(test))


def _leaves(key: Key) -> Iterator[Key]:
    if key.op in ("binary", "compare", "and", "or", "not"):
        for arg in key.args:
            if isinstance(arg, Key):
                yield from _leaves(arg)
    elif not key.is_constant:
        yield key


def _value(key: Key, known: dict[Key, int]) -> object:
    if key in known:
        return known[key]
    args: list[Any] = [_value(arg, known) if isinstance(arg, Key) else arg for arg in key.args]
    match key.op:
        case "constant":
            return key.value
        case "binary" | "compare" if args[0] in (table := ARITHMETIC if key.op == "binary" else COMPARE):
            return table[args[0]](args[1], args[2])
        case "not":
            return not args[0]
        case "and":
            return bool(args[0] and args[1])
        case "or":
            return bool(args[0] or args[1])
    return None


def _at_step(script: Script, own: Sequence[Condition], its: Sequence[Condition]) -> Patch:
    tests = [_test(script, each) for each in (own[-1], its[-1])]
    if len(own) != 1 or len(its) != 1 or not all(tests) or not its[0].truth:
        return no_patch(SAME_CONDITION, "leave no_sync in the round of the step: use its condition for both")
    sync, step = tests
    assert sync is not None and step is not None
    code = script.source.one_line(step)
    return Patch(
        id=SAME_CONDITION,
        safety="unsafe",
        why_unsafe="the step then has the gradients of all ranks, so that the training takes another course",
        edits=[script.source.replace(sync, f"not ({code})" if own[0].truth else code)],
    )


def _test(script: Script, condition: Condition) -> ast.expr | None:
    """Return the test of the ``if`` or conditional expression at a place."""
    found = node_at(script.source.tree, condition.site.line, condition.site.column, ast.If, ast.IfExp)
    return found.test if found else None


def _divides_batch(script: Script, call: ast.Call) -> bool:
    """Return whether a call is what a size or number of batches is divided by."""
    match script.source.parents.get(call):
        case ast.AugAssign(op=ast.Div() | ast.FloorDiv(), target=left, value=value) if value is call:
            return bool(SHARED.search(ast.unparse(left)))
        case ast.BinOp(op=ast.Div() | ast.FloorDiv(), left=left, right=right) if right is call:
            return bool(SHARED.search(ast.unparse(left)))
    return False


def _by_world(script: Script, fact: Noted) -> Patch:
    distributed = distributed_module(script, fact.node)
    made = [
        call
        for call in script.names.scope_of
        if isinstance(call, ast.Call)
        and script.names.qualified(call.func) == INIT
        and call.lineno < fact.site.line
        and _around(script, call) <= _around(script, fact.node)
    ]
    if not distributed or not made:
        return no_patch(WORLD_SIZE, "divide by the number of ranks: WORLD_SIZE, or get_world_size()")
    edits: list[Edit] = [script.source.replace(fact.node, f"{distributed}.get_world_size()")]
    return Patch(
        id=WORLD_SIZE,
        safety="unsafe",
        why_unsafe="where fewer ranks run than the node has GPUs, each gets a larger share than before",
        edits=edits,
    )


def _around(script: Script, node: ast.AST) -> set[ast.AST]:
    """Return the functions, conditions and loops around a node."""
    found: set[ast.AST] = set()
    at = script.source.parents.get(node)
    while at is not None:
        if isinstance(at, (*FUNCTIONS, *LOOPS, ast.If, ast.Try)):
            found.add(at)
        at = script.source.parents.get(at)
    return found
