"""Rounds of a loop that conditions keep without synchronisation of gradients, and the number of them."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from ...training_script.model.function_steps import Rounds
from ...training_script.model.keys import ARITHMETIC, COMPARE, Key, parts
from ...training_script.model.lengths import number
from ...training_script.model.members import PAIR
from ...training_script.model.reach import Condition, Reach, Run, known_tests

CYCLES = (2, 3, 4)  # numbers of batches for which two conditions are compared
MOST_LENGTHS = 3  # that are not known, for which a loop is computed


def ends_reduced(run: Run, at: Reach, own: Sequence[Condition]) -> bool:
    """Return whether the conditions keep no_sync away from the last round, whatever the length of the loop is."""
    loop = at.loops[-1]
    count = _count_of_rounds(run, at)
    tested = {leaf for each in own for leaf in leaves_of(each.test)}
    stepped = any(step.loops == at.loops for step in steps_in_loops(run))
    if not stepped and not count.is_constant and not tested & set(leaves_of(count)):
        # A loop without a step in it goes through whole windows, whose length the condition names.
        count = next((part.args[2] for each in own for part in parts(each.test) if part.args[:1] == ("Mod",)), count)
    leaves = tested | set(leaves_of(count))
    counters = {each for each in leaves if each.op == "number" and each.args[1] == loop.site.line}
    lengths = sorted(leaves - counters, key=id)
    if len(counters) != 1 or len(lengths) > MOST_LENGTHS:
        return False
    (counter,) = counters
    for numbers in product(CYCLES, repeat=len(lengths)):
        known: dict[Key, int] = dict(zip(lengths, numbers, strict=True))
        try:
            last = value_of(count, known)
            known[counter] = last - 1 if isinstance(last, int) else 0
            covered = [value_of(each.test, known) == each.truth for each in own]
        except (TypeError, ZeroDivisionError):
            return False
        if not isinstance(last, int) or last < 1 or all(covered):
            return False
    return True


def last_round(run: Run, reach: Reach) -> Condition | None:
    """Return the condition on the way to a fact that holds in the last round of the loop around it.

    It may hold in all rounds, where their number is surely the one that the condition asks for.
    """
    if not reach.loops:
        return None
    count = _count_of_rounds(run, reach)
    lengths = [count.value] if count.is_constant else CYCLES
    if not all(isinstance(each, int) and each > 0 for each in lengths):
        return None
    found: dict[Condition, bool] = {}
    for condition in reach.conditions:
        for test, truth in known_tests((condition,)).items():
            leaves = set(leaves_of(test))
            counters = {each for each in leaves if each.op == "number" and each.args[1] == reach.loops[-1].site.line}
            totals = leaves - counters
            if not counters:
                continue
            known = all(each.op == "length" or each is count for each in totals)
            if test.op != "compare" or is_cycle(test) or len(counters) != 1 or not known:
                found[condition] = False
                continue
            (counter,) = counters
            held = [
                [value_of(test, {counter: at, **dict.fromkeys(totals, n)}) == truth for at in range(n)] for n in lengths
            ]
            if all(rounds[-1] and not all(rounds) for rounds in held):
                return condition
            holds = all(map(all, held)) and (count.is_constant or count in totals)
            found[condition] = holds and found.get(condition, True)
    return next(iter(found), None) if all(found.values()) else None


def _count_of_rounds(run: Run, at: Reach) -> Key:
    """Return the number of rounds of the loop around a fact.

    It is a number that each loss in the loop is divided by and the loop asks its counter for, if nothing else says it.
    """
    loop = at.loops[-1]
    if bound := _bound(loop):
        return bound[0]
    if not any(part.op == "attribute" for part in parts(loop.amount)):  # an option, of which a default is known
        counts = {number(loop.amount, rank) for rank in PAIR}
        if len(counts) == 1 and (count := counts.pop()) is not None:
            return run.keys.constant(count)
    losses = [fact.owner.key for reach, fact in run.of(".backward") if reach.loops == at.loops and fact.owner]
    divisors = {each.args[2] if each.op == "binary" and each.args[0] == "Div" else None for each in losses}
    divisor = divisors.pop() if len(divisors) == 1 else None
    asked = {part for each in at.conditions for part in parts(each.test)}
    return divisor if divisor in asked and divisor is not None else loop.amount


def _bound(loop: Rounds) -> tuple[Key, ...]:
    """Return what ``range`` got, for a loop over it from zero."""
    over = loop.amount.args[0] if loop.amount.op == "length" else None
    return over.args if isinstance(over, Key) and over.op == "range" and len(over.args) == 1 else ()


def steps_in_loops(run: Run) -> Iterator[Reach]:
    """Yield the steps of optimizers that a loop makes."""
    yield from (reach for reach, _ in run.of(".step") if reach.loops)


def is_cycle(test: Key) -> bool:
    """Return whether a condition comes back after some rounds: it takes a remainder."""
    return any(part.op == "binary" and part.args[0] == "Mod" for part in parts(test))


def leaves_of(key: Key) -> Iterator[Key]:
    """Yield the values that an expression computes with, constants left out."""
    if key.op in ("binary", "compare", "and", "or", "not"):
        for arg in key.args:
            if isinstance(arg, Key):
                yield from leaves_of(arg)
    elif not key.is_constant:
        yield key


def value_of(key: Key, known: dict[Key, int]) -> object:
    """Return the value of an expression with known leaves; None if one is missing.

    Raises:
        TypeError: A part that is not known is computed with.
        ZeroDivisionError: A divisor is 0.
    """
    if key in known:
        return known[key]
    args: list[Any] = [value_of(arg, known) if isinstance(arg, Key) else arg for arg in key.args]
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
