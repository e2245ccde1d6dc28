"""DW443: collectives for the members of a sequence, which each rank goes through in an order of its own."""

import ast
from collections.abc import Iterator

from ...training_script.collectives import GROUP_PLACE
from ...training_script.model.amounts import DISTINCT, SHUFFLED
from ...training_script.model.distinct_names import distinct_names
from ...training_script.model.keys import DIFFERS, RANKS, Key, Keys, parts
from ...training_script.model.lengths import number
from ...training_script.model.members import Member
from ...training_script.model.orders import ORDER
from ...training_script.model.reach import Run
from ...training_script.nodes import node_at
from ..rule_context import Script, Violation
from ..violations import violation_at
from .own_orders import is_own

PREFIX = "torch.distributed."
INNER = ("attribute", "changed")  # what a tensor is taken from, before its place in a sequence


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the collectives of which each round of a loop is for another member on each rank."""
    for reach, fact in run.of(*(PREFIX + name for name in GROUP_PLACE)):
        if not reach.several or not reach.loops or not script.is_here(reach):
            continue
        chosen = (_chosen(value.key) for value in (*fact.values, *fact.named.values()))
        held = next((each for each in chosen if each is not None and _differs(script, run.keys, each)), None)
        if held is not None:
            yield from violation_at(
                script,
                reach,
                f"each rank goes through this loop (line {reach.loops[-1].site.line}) in an order of its own: "
                f"{fact.name.removeprefix(PREFIX)} of one rank meets that of another for something else",
                0.8,
            )


def _chosen(tensor: Key) -> Key | None:
    """Return the sequence that a loop goes through, if a tensor is its member or is held under it."""
    while tensor.op in INNER:
        tensor = tensor.args[0]
    if tensor.op == "item" and tensor.args[1].op == "element":
        tensor = tensor.args[1]
    return tensor.args[0] if tensor.op == "element" else None


def _differs(script: Script, keys: Keys, held: Key) -> bool:
    """Return whether the members of a sequence come in another order on another rank."""
    for part in parts(held):
        if part.op == ORDER and part.differs_by & DIFFERS:
            return True
        if part.op == SHUFFLED:
            order = part.args[-1]
            if order.differs_by & DIFFERS or _is_drawn_by_each(script, order):
                return True
    found = [_members(keys.specialise(held, rank), Member(rank.rank, rank.world_size)) for rank in RANKS[:2]]
    return (
        None not in found
        and found[0] != found[1]
        and sorted(map(repr, found[0] or ())) == sorted(map(repr, found[1] or ()))
    )


def _is_drawn_by_each(script: Script, order: Key) -> bool:
    """Return whether a call of ``shuffle`` at a place takes numbers that each rank draws for itself."""
    if order.op != "at" or order.args[0] != script.source.path:
        return False
    call = node_at(script.source.tree, order.args[1], order.args[2], ast.Call)
    return isinstance(call, ast.Call) and is_own(script, call)


def _members(held: Key, rank: Member) -> list[object] | None:
    """Return the constants that a sequence has on a rank, in its order."""
    match held.op, held.args:
        case op, _ if op == DISTINCT:
            return distinct_names(held, rank)
        case "sequence", members:
            found: list[object] = [each.value if each.is_constant else number(each, rank) for each in members]
            if None in found and not any(each.differs_by & DIFFERS for each in members):
                return [id(each) for each in members]
            return found if None not in found else None
        case "constant", (tuple() as members,):
            return [*members]
        case "binary", ("Add", left, right):
            first, second = _members(left, rank), _members(right, rank)
            return None if first is None or second is None else first + second
        case "item", (whole, Key(op="slice", args=bounds)):
            members = _members(whole, rank)
            known = [None if each.is_constant and each.value is None else number(each, rank) for each in bounds]
            missing = [each.is_constant and each.value is None for each in bounds]
            if members is None or any(
                value is None and not absent for value, absent in zip(known, missing, strict=True)
            ):
                return None
            return members[slice(*known)]
        case "range", bounds:
            values = [number(each, rank) for each in bounds]
            numbers = [each for each in values if each is not None]
            return [*range(*numbers)] if len(numbers) == len(values) and 0 not in numbers[2:] else None
        case _:
            return None
