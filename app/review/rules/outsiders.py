"""DW446: collectives in a group that ranks reach which are no members of it, or whose root is none."""

import ast
import re
from collections.abc import Iterator

from ...training_script.collectives import GROUP_PLACE
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import RANKS, Key, Keys, Rank
from ...training_script.model.lengths import number, numbers
from ...training_script.model.members import Member
from ...training_script.model.noted_calls import RANK_IN_GROUP
from ...training_script.model.reach import Run, alternatives, argument
from ...training_script.model.sequences import Event
from ...training_script.torch_classes import DDP_CLASSES
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .collective_arguments import OF_ONE

PREFIX = "torch.distributed."
ASKS = re.compile(r"-\s*1\b|>=? *0|< *0|_rank_not_in_group|non_group_member", re.IGNORECASE)
SIZES = (2, 4)  # of a job
GROUPS = {PREFIX + name: (place, "group") for name, place in GROUP_PLACE.items()}
GROUPS |= {RANK_IN_GROUP: (0, "group")}
GROUPS |= dict.fromkeys(DDP_CLASSES, (6, "process_group"))


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the collectives whose group is made of ranks that are written out, and that others reach as well."""
    made = {each.fact.site[:3]: each.fact for each in run.reached if isinstance(each.fact, Event) and each.fact.of}
    for reach, fact in run.of(*GROUPS):
        group = argument(fact, *GROUPS[fact.name])
        chosen = [key for key in alternatives(group.key) if key.op == "shared"] if group else []
        new = made.get(chosen[0].args[-3:]) if len(chosen) == 1 else None
        if group is None or new is None or new.of is None:
            continue
        members = _by_default(run.keys, new.of)
        of_all = not reach.unsure and group.key.op == "shared"
        missing = [_outside(members, run.keys, size, reach.ranks) for size in SIZES] if of_all else [[]]
        root = _root(run, fact)
        if fact.name == RANK_IN_GROUP and not _is_place(script, fact):
            continue
        if all(missing) and reach.several:
            who = ", ".join(str(rank) for rank in missing[-1] or ())
            why = f"of 4 ranks, {who} reach this and are not in the group: they go on with what they had"
            if fact.name == RANK_IN_GROUP:
                why = f"of 4 ranks, {who} are not in the group: their number in it is -1, which takes the last place"
            if fact.name in DDP_CLASSES:
                why = f"of 4 ranks, {who} reach this and are not in the group: DDP raises an error there"
        elif root is not None and all(root in _outside(members, run.keys, size, 1 << root) for size in SIZES):
            why = f"rank {root} is the root here, and no member of the group"
        else:
            continue
        yield from violation_at(
            script,
            reach,
            why,
            0.8,
            related=[RelatedPlace(path=new.site.path, line=new.site.line, message="the group is made here")],
        )


def _by_default(keys: Keys, key: Key) -> Key:
    """Return a value with the default of each option of the command line."""
    if key.op == "attribute" and key.args[0].op == "options" and len(key.args) > 2 and key.args[2].is_constant:
        return key.args[2]
    if key.op not in ("range", "sequence", "binary"):
        return key
    return keys.make(key.op, *(_by_default(keys, arg) if isinstance(arg, Key) else arg for arg in key.args))


def _is_place(script: Script, fact: Noted) -> bool:
    """Return whether a number is computed with, or chooses an element, and nothing asks whether it is one."""
    if script.mentions(ASKS):
        return False
    used, at = [fact.node], script.source.parents.get(fact.node)
    if isinstance(at, ast.Assign) and len(at.targets) == 1 and isinstance(at.targets[0], ast.Name):
        around = script.names.enclosing_function(at) or script.source.tree
        name = at.targets[0].id
        used = [node for node in ast.walk(around) if isinstance(node, ast.Name) and node.id == name]
    parents = (script.source.parents.get(each) for each in used)
    return any(isinstance(each, ast.Subscript | ast.BinOp | ast.Slice) for each in parents)


def _root(run: Run, fact: Noted) -> int | None:
    """Return the one rank that a collective names by its number, if that is written out."""
    root = argument(fact, *OF_ONE.get(fact.name.removeprefix(PREFIX), (-1, "")))
    known = root is not None and root.key.is_constant and type(root.key.value) is int
    return root.key.value if root and known and 0 <= root.key.value < len(RANKS) else None


def _outside(members: Key, keys: Keys, size: int, reaching: int) -> list[int]:
    """Return the ranks of a job that reach a collective and are not among the members of the group that they make."""
    outside: list[int] = []
    for place in range(min(size, len(RANKS))):
        inside = _inside(keys.specialise(members, Rank(place, place, 0, size, size)), Member(place, size))
        if inside is None:
            return []
        if reaching & 1 << place and place not in inside:
            outside.append(place)
    return outside


def _inside(members: Key, rank: Member) -> set[int] | None:
    """Return the members of a group, None if they are not all known."""
    if members.op == "sequence":
        known = {number(each, rank) for each in members.args}
        return {each for each in known if each is not None} if None not in known else None
    counted = numbers(members, rank)
    return None if counted is None else set(counted)
