"""DW446: collectives in a group that ranks reach which are no members of it."""

from collections.abc import Iterator

from ...training_script.collectives import GROUP_PLACE
from ...training_script.model.keys import RANKS, Key, Keys, Rank
from ...training_script.model.lengths import Member, number, numbers
from ...training_script.model.reach import Run, argument
from ...training_script.model.sequences import Event
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at

PREFIX = "torch.distributed."
SIZES = (2, 4)  # of a job


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the collectives whose group is made of ranks that are written out, and that others reach as well."""
    made = {each.fact.site[:3]: each.fact for each in run.reached if isinstance(each.fact, Event) and each.fact.of}
    for reach, fact in run.of(*(PREFIX + name for name in GROUP_PLACE)):
        group = argument(fact, GROUP_PLACE[fact.name.removeprefix(PREFIX)], "group")
        new = made.get(group.key.args[-3:]) if group and group.key.op == "shared" else None
        if new is None or new.of is None or not reach.several:
            continue
        missing = [_outside(new.of, run.keys, size, reach.ranks) for size in SIZES]
        if all(missing):
            who = ", ".join(str(rank) for rank in missing[-1] or ())
            yield from violation_at(
                script,
                reach,
                f"of 4 ranks, {who} reach this and are not in the group: they go on with what they had",
                0.8,
                related=[RelatedPlace(path=new.site.path, line=new.site.line, message="the group is made here")],
            )


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
