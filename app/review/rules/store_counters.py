"""DW428 and DW480: counters in the key-value store that do not get as far as ranks wait for, or are there already."""

import ast
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, Rank, parts
from ...training_script.model.lengths import number
from ...training_script.model.members import Member
from ...training_script.model.noted_calls import STORE
from ...training_script.model.reach import Reach, Run
from ...training_script.model.sequences import Site
from ...training_script.nodes import walk
from ...training_script.syntax import last_name
from ..rule_context import Script, Violation
from ..violations import violation_at
from .store_keys import SETS, SIZES, WAITS

ADD = SETS[1]
RESETS = (SETS[0], SETS[2], f"{STORE}delete_key")
WAITING = (ast.Lt, ast.NotEq)  # the comparisons of a counter by which a loop goes on
MIRRORED = (ast.Gt, ast.NotEq)  # with the counter on the right
ENOUGH, AT_MOST = (ast.GtE, ast.Eq), (ast.LtE, ast.Eq)  # by which it ends


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the loops that wait until a counter reaches a number to which the ranks do not add up."""
    for reach, fact in run.of(ADD, *WAITS):
        found_in = _wanted(script, fact) if script.is_here(reach) else None
        if found_in is None or reach.unsure or not fact.values:
            continue
        wanted, loop = found_in
        around = [each.site for each in reach.loops if each.site.line != loop.lineno]
        key = script.evaluated.value(wanted)
        numbers = [number(key, Member(0, len(ranks))) if key else None for ranks in SIZES]
        totals = [_total(run, fact.values[0].key, around, ranks) for ranks in SIZES]
        found = [(total, each) for total, each in zip(totals, numbers, strict=True) if total and each and total < each]
        # A number that is written out is that of a job of one size.
        if len(found) == len(SIZES) and numbers[0] != numbers[-1]:
            total, least = found[0]
            yield from violation_at(
                script,
                reach,
                f"this waits until the counter is {least} with {len(SIZES[0])} ranks, and they add {total} to it",
                0.85,
            )


def check_reused(script: Script, run: Run) -> Iterator[Violation]:
    """DW480: yield the counts of ranks that come under one key in each round of a loop."""
    kept = {fact.values[0].key for _, fact in run.of(*RESETS) if fact.values}
    for reach, fact in run.of(ADD):
        if not (fact.values and reach.by_all and _adds(fact)) or fact.values[0].key in kept:
            continue
        reads = [(each, read) for each, read in run.of(ADD) if _is_read(read)]
        polls = [(each, read) for each, read in reads if read.values[0].key is fact.values[0].key]
        if reach.loops and any(_counts_up(script, *each) for each in polls) and _is_written_out(fact.values[0].key):
            yield from violation_at(
                script,
                reach,
                "the ranks count themselves under one key in each round: the counts of earlier rounds stay in it, and "
                "from the second round on they wait for another number than that of one round",
                0.85,
            )


def waits_in_store(reach: Reach) -> bool:
    """Return whether several ranks wait there for what another has set in the store, under a key of its own."""
    fact = reach.fact
    if not isinstance(fact, Noted) or not reach.several or not (fact.name in WAITS or _is_read(fact)):
        return False
    rounds = len(reach.loops) - (fact.name not in WAITS)
    return bool(fact.values) and (rounds <= 0 or not _is_written_out(fact.values[0].key))


def _is_read(fact: Noted) -> bool:
    """Return whether a call reads a counter."""
    return fact.name == ADD and len(fact.values) > 1 and fact.values[1].key.is_constant and not fact.values[1].key.value


def _adds(fact: Noted) -> bool:
    return len(fact.values) > 1 and fact.values[1].key.is_constant and bool(fact.values[1].key.value)


def _is_written_out(key: Key) -> bool:
    """Return whether a key is the same text in each round."""
    return all(part.is_constant or part.op in ("text", "binary") for part in parts(key))


def _counts_up(script: Script, poll: Reach, read: Noted) -> bool:
    """Return whether a loop goes on until a counter has a number that is the same in each round."""
    found = _wanted(script, read, may_raise=True) if script.is_here(poll) else None
    key = script.evaluated.value(found[0]) if found else None
    return key is not None and all(part.is_constant or part.op in ("world", "binary") for part in parts(key))


def _wanted(script: Script, fact: Noted, *, may_raise: bool = False) -> tuple[ast.expr, ast.While] | None:
    """Return what a loop compares a counter with that it reads to go on, or to end, and the loop.

    None if the loop has another end, or does something else with the store.
    """
    parents, read = script.source.parents, fact.node
    compared = parents.get(read)
    while isinstance(compared, ast.Call) and last_name(compared.func) == "int":
        read, compared = compared, parents.get(compared)
    match compared:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            pass
        case _:
            return None
    on_left = left is read
    match parents.get(compared):
        case ast.While(body=others) as loop if isinstance(op, WAITING if on_left else MIRRORED):
            pass
        case ast.If(body=[*_, ast.Break() | ast.Return()]) as end if isinstance(op, ENOUGH if on_left else AT_MOST):
            loop = parents.get(end)
            if not isinstance(loop, ast.While) or not isinstance(loop.test, ast.Constant):
                return None
            others = [stmt for stmt in loop.body if stmt is not end]
        case _:
            return None
    leaves = any(
        isinstance(node, ast.Break | ast.Return)
        or (isinstance(node, ast.Raise) and not may_raise)
        or (isinstance(node, ast.Call) and last_name(node.func) in ("add", "set", "exit", "compare_set"))
        for stmt in others
        for node in walk(stmt)
    )
    return None if leaves else (right if on_left else left, loop)


def _total(run: Run, key: Key, around: list[Site], ranks: list[Rank]) -> int | None:
    """Return what all ranks of a job add to a counter in a round of some loops, None if it is not known."""
    total = 0
    for reach, each in run.of(*SETS):
        if not each.values or (each.values[0].key is not key and not each.values[0].key.is_constant):
            return None
        if each.values[0].key is not key:
            continue
        given = each.values[1].key if len(each.values) > 1 else None
        if given is None or not given.is_constant or reach.unsure:
            return None
        if given.value in (0, "0"):
            continue
        if each.name != ADD or type(given.value) is not int or [loop.site for loop in reach.loops] != around:
            return None
        reached = [_reaches(run, reach, rank) for rank in ranks]
        if None in reached:
            return None
        total += given.value * reached.count(True)
    return total


def _reaches(run: Run, reach: Reach, rank: Rank) -> bool | None:
    """Return whether a rank reaches a call, None if that is not known."""
    seen = [(run.keys.specialise(each.test, rank), each.truth) for each in reach.conditions]
    if any(test.is_constant and bool(test.value) != truth for test, truth in seen):
        return False
    return True if all(test.is_constant for test, _ in seen) else None
