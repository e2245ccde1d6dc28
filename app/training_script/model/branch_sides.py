"""The branches of a script as ranks see them: which ranks take each side, and the calls there that need other ranks."""

from collections.abc import Collection
from typing import Literal, NamedTuple

from .evaluated import Evaluated
from .function_steps import Attempt, Branch, Called, Item, Leave, Rounds, Summary
from .keys import RANKS, Key, Keys
from .sequences import Event, Site

Side = Literal["then", "other", "after"]


class RankCall(NamedTuple):
    """A call that needs other ranks: an ``event`` itself, or the call of a function that makes some."""

    kinds: tuple[str, ...]
    site: Site
    event: Event | None = None


def branches(evaluated: Evaluated) -> dict[Site, Branch]:
    """Return the branches of a program by their places."""
    found: dict[Site, Branch] = {}
    pending = [root.items for root in evaluated.roots]
    seen: set[int] = set()
    while pending:
        for item in pending.pop():
            match item:
                case Branch(then=first, other=second):
                    found.setdefault(item.site, item)
                    pending += [first, second]
                case Rounds(body=first, rest=second) | Attempt(first, second):
                    pending += [first, second]
                case Called(summary=Summary() as summary) if id(summary) not in seen:
                    seen.add(id(summary))
                    pending.append(summary.items)
                case _:
                    pass
    return found


def calls_of_ranks(items: list[Item]) -> list[RankCall]:
    """Return the calls in steps that need other ranks, in the order of the text; called functions are one call."""
    found: list[RankCall] = []
    pending = items[::-1]
    while pending:
        match pending.pop():
            case Event(kind=kind, site=site) as item:
                found.append(RankCall((kind,), site, item))
            case Called(summary=summary, site=site) if summary.kinds:
                found.append(RankCall(tuple(sorted(summary.kinds)), site))
            case Branch(then=first, other=second) | Rounds(body=first, rest=second) | Attempt(first, second):
                pending += [*first, *second][::-1]
            case _:
                pass
    return found


def side_of(branch: Branch, way: Collection[Site]) -> Side:
    """Return the side of a branch on which a call is, or one of the calls that lead to it."""
    for side, calls in _sides(branch):
        if any(call.site in way for call in calls):
            return side
    return "after"


def side_with(branch: Branch, kind: str) -> Side:
    """Return the side of a branch that alone has calls of one kind; "after" if none or both have."""
    having: list[Side] = [side for side, calls in _sides(branch) if any(kind in call.kinds for call in calls)]
    return having[0] if len(having) == 1 else "after"


def _sides(branch: Branch) -> list[tuple[Side, list[RankCall]]]:
    return [("then", calls_of_ranks(branch.then)), ("other", calls_of_ranks(branch.other))]


def ranks_on(branch: Branch, side: Side, keys: Keys) -> set[int]:
    """Return the ranks that go to a side; behind a branch that leaves, those that stay. Empty if it is not known."""
    if side == "after":
        leaving = [leaves(items) for items in (branch.then, branch.other)]
        if leaving[0] == leaving[1]:
            return set()
        side = "other" if leaving[0] else "then"
    test = branch.test if side == "then" else keys.make("not", branch.test)
    seen = {rank.rank: keys.specialise(test, rank) for rank in RANKS}
    sure = {rank for rank, key in seen.items() if key.is_constant and key.value}
    possible = {rank for rank, key in seen.items() if not key.is_constant or key.value}
    return next((ranks for ranks in (sure, possible) if 0 < len(ranks) < len(RANKS)), set())


def is_decided(test: Key, keys: Keys) -> bool:
    """Return whether the rank alone decides a test, for some rank at least."""
    return any(keys.specialise(test, rank).is_constant for rank in RANKS)


def leaves(items: list[Item]) -> bool:
    """Return whether steps may leave the function, the loop or the program."""
    pending = [items]
    while pending:
        for item in pending.pop():
            match item:
                case Leave(kind="raise"):
                    break
                case Leave():
                    return True
                case Branch(then=first, other=second) | Attempt(first, second):
                    pending += [first, second]
                case _:
                    pass
    return False


def surely_leaves(items: list[Item]) -> bool:
    """Return whether steps leave in any case."""
    return bool(items) and isinstance(items[-1], Leave)
