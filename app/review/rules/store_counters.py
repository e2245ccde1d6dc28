"""DW428: counters in the key-value store that ranks wait for and that do not get as far."""

import ast
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, Rank
from ...training_script.model.lengths import Member, number
from ...training_script.model.reach import Reach, Run
from ...training_script.model.sequences import Site
from ...training_script.nodes import walk
from ...training_script.syntax import last_name
from ..rule_context import Script, Violation
from ..violations import violation_at
from .store_keys import SETS, SIZES, WAITS

ADD = SETS[1]
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


def _wanted(script: Script, fact: Noted) -> tuple[ast.expr, ast.While] | None:
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
        isinstance(node, ast.Break | ast.Return | ast.Raise)
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
