"""Names under which each rank keeps its data, where the program writes the data of all ranks out."""

from .amounts import DISTINCT
from .keys import Key, Keys
from .lengths import element_on
from .members import PAIR, Member

IN_ORDER = "in order"  # of the names, and not in that in which they come


def is_written_out(name: Key) -> bool:
    """Return whether a name is an element, or a part of one, of data that are written out for each rank."""
    if name.op == "item" and name.args[1].is_constant:
        name = name.args[0]
    return name.op == "element" and name.args[0].op == "item" and name.args[0].args[0].op in ("mapping", "sequence")


def in_order(keys: Keys, members: Key) -> Key:
    """Return the members of a mapping or a set in the order of their names, if these are known."""
    if not isinstance(members.args[-1], tuple) or IN_ORDER in members.args:
        return members
    *place, named = members.args
    return keys.make(DISTINCT, *place, IN_ORDER, named, differs_by=members.differs_by)


def distinct_names(members: Key, rank: Member) -> list[object] | None:
    """Return the names of a mapping, or the members of a set, in the order in which a rank goes through them."""
    if members.op != DISTINCT or not isinstance(members.args[-1], tuple):
        return None
    (name,) = members.args[-1]  # in a tuple, so that the data of a rank decide the members, and not its number
    place = name.args[1] if name.op == "item" else None
    data = (name.args[0] if place is not None else name).args[0]
    own = element_on(data.args[0], data.args[1], rank) if data.op == "item" else data
    if own is None or own.op != "sequence":
        return None
    found = [each if place is None else element_on(each, place, rank) for each in own.args]
    known = [each.value for each in found if each is not None and each.is_constant]
    if len(known) != len(found):
        return None
    return [*dict.fromkeys(sorted(known, key=str) if IN_ORDER in members.args else known)]


def same_number(members: Key) -> int | None:
    """Return the number of members of a mapping or a set, if two ranks surely have as many."""
    first, second = (distinct_names(members, rank) for rank in PAIR)
    return len(first) if first is not None and second is not None and len(first) == len(second) else None


def is_of_own(members: Key) -> bool:
    """Return whether data of each rank decide the number of members of a set or a mapping."""
    return members.op == DISTINCT and same_number(members) is None


def is_with_member(test: Key, then: Key, other: Key) -> bool:
    """Return whether one side of a branch adds a name that is missing, or both sides store under the same one."""
    if then.op != DISTINCT:
        return False
    asks = test.op == "compare" and test.args[0] == "NotIn" and test.args[2] is other
    return asks or (other.op == DISTINCT and isinstance(then.args[-1], tuple) and then.args[-1] == other.args[-1])
