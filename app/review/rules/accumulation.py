"""DW212, DW213 and DW220: gradients that are accumulated over several batches, and their number on several ranks."""

import ast
import re
from collections.abc import Iterator, Sequence

from ...training_script.edits import Edit
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, Key, parts
from ...training_script.model.library_calls import BACKWARD
from ...training_script.model.reach import Condition, Reach, Run, without_not
from ...training_script.model.sequences import Event
from ...training_script.nodes import node_at, nodes_below
from ...training_script.syntax import FUNCTIONS, LOOPS
from ..patches.torch_names import INIT, distributed_module
from ..rule_context import Patch, Script, Violation, no_patch
from ..types import RelatedPlace
from ..violations import violation_at
from .covered_rounds import CYCLES, ends_reduced, is_cycle, last_round, leaves_of, steps_in_loops, value_of

SYNC_CONTROL = re.compile(r"no_sync|require_backward_grad_sync|set_requires_gradient_sync|gradient_accumulation_plugin")
COUNT = "torch.cuda.device_count"
SHARED = re.compile(r"accum|batch", re.IGNORECASE)
STARTS_RANKS = re.compile(r"spawn|nprocs|start_processes|\bProcess\(")
OF_ENVIRONMENT = re.compile(r"[\"'](?:RANK|WORLD_SIZE|LOCAL_RANK)[\"']")
WORLD_SIZE, SAME_CONDITION = "divide-by-world-size", "sync-at-step"
COUNTERS = ("number", "changing", "altered", "held")
ROUNDS = 24  # for which two conditions are compared


def check_missing(script: Script, run: Run) -> Iterator[Violation]:
    """DW212: yield the backward passes that reduce gradients in each round, though only some rounds use them."""
    steps = list(steps_in_loops(run))
    if not steps or script.mentions(SYNC_CONTROL):
        return
    for place, reach in enumerate(run.reached):
        if not isinstance(reach.fact, Event) or reach.fact.kind != BACKWARD or not reach.loops:
            continue
        step = next((each for each in run.reached[place:] if each in steps and each.loops == reach.loops), None)
        if step and any(is_cycle(each.test) for each in step.conditions if each not in reach.conditions):
            message = "each of these rounds reduces the gradients over all ranks, and only the last one uses them"
            yield from violation_at(script, reach, message, 0.7)


def check_predicate(script: Script, run: Run) -> Iterator[Violation]:
    """DW213: yield the uses of no_sync in which the round of the step is one without synchronisation."""
    steps = list(steps_in_loops(run))
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
        own = [each for each in reach.conditions if is_cycle(each.test)]
        for step in steps:
            its = [each for each in step.conditions if each not in reach.conditions and is_cycle(each.test)]
            if own and its and step.loops == reach.loops and _is_counted_alike(reach, step, own) and _meet(own, its):
                line = step.fact.site.line
                message = f"no_sync also covers a round with a step (line {line}): the ranks apply different gradients"
                patch = (lambda own=own, its=its: _at_step(script, own, its)) if script.is_here(reach) else None
                place = _where_passed(script, reach, own[-1])
                yield from violation_at(script, place, message, 0.85, branch=own[-1].site.line, patch=patch)
                break
            window = [each for each in own if each not in step.conditions]
            if window and not its and _applies_rest(run, reach, window, step) and not ends_reduced(run, reach, window):
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
            if (last := last_round(run, reach)) and _is_behind_loop(run, reach, step):
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
    others = {leaf for each in own for leaf in leaves_of(each.test)} - {
        leaf for each in lengths for leaf in leaves_of(each)
    }
    return _is_behind_loop(run, covered, step) and not reduced and all(each.op in COUNTERS for each in others)


def _is_behind_loop(run: Run, covered: Reach, step: Reach) -> bool:
    """Return whether a step comes after the innermost loop around a fact."""
    at = [next(n for n, each in enumerate(run.reached) if each is reach) for reach in (covered, step)]
    return at[0] < at[1] and bool(covered.loops) and step.loops == covered.loops[:-1]


def check_share(script: Script, run: Run) -> Iterator[Violation]:
    """DW220: yield the shares of a batch that are computed with the GPUs of one node."""
    counts = list(run.of(COUNT))
    if (
        not counts
        or not run.distributed
        or script.mentions(STARTS_RANKS, "spawn", "nprocs", "start_processes", "Process(")
        or not script.mentions(OF_ENVIRONMENT)
    ):
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
    others = {leaf for test in tests for leaf in leaves_of(test)} - lengths
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
        any(all(value_of(each.test, numbers | cycle) == each.truth for each in (*first, *second)) for numbers in rounds)
        for cycle in cycles
    )


def _is_number_of_rounds(total: Key, counter: Key, test: Key) -> bool:
    """Return whether a test asks for a number only in comparisons with a counter."""
    compared = [part for part in parts(test) if part.op == "compare" and total in leaves_of(part)]
    return all(counter in leaves_of(part) for part in compared) and (bool(compared) or total not in leaves_of(test))


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
