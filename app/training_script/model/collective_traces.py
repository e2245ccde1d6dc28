"""The collectives of each rank of a small job in order, paired as they meet.

A rank goes through the steps of the program. Where a condition or a number of rounds is not known, but the same on all
ranks, each rank takes both sides, or one round: their calls still meet in this order. What differs between ranks and
does not follow from their numbers ends the trace.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from .function_steps import Attempt, Branch, Called, Item, Leave, Noted, Rounds
from .keys import DIFFERS, TOUCHED, Key, Keys, Rank
from .lengths import number, numbers, truth
from .members import Member
from .reach import argument
from .sequences import Event, Site

PREFIX = "torch.distributed."
SLEEP = "time.sleep"
MOST_STEPS = 5_000
MOST_ROUNDS = 50  # of a loop that are followed one by one
GOES_ON = ""


class Meeting(NamedTuple):
    """A call at which a rank waits for the others. ``slept_s``: how long it has slept since the one before.

    ``fact``: the call, if rules ask for it. ``rounds``: the numbers of the rounds around it, by the place of the loop.
    """

    kind: str
    site: Site
    calls: tuple[Site, ...]
    rounds: tuple[tuple[str, int, int], ...]
    slept_s: float
    slept_at: Site | None
    fact: Noted | None = None


class _EndError(Exception):
    """Raised where the next step of a rank is not known."""


def meetings(items: list[Item], keys: Keys, ranks: list[Rank]) -> Iterator[tuple[Meeting, ...]]:
    """Yield the calls that meet in turn, one of each rank, as long as they are of one kind."""
    traces = [_Trace(keys, rank).run(items) for rank in ranks]
    for met in zip(*traces, strict=False):
        if len({each.kind for each in met}) > 1:
            return
        yield met


class _Trace:
    """The way of one rank."""

    def __init__(self, keys: Keys, rank: Rank) -> None:
        self.keys, self.rank, self.found = keys, rank, list[Meeting]()
        self._member = Member(rank.rank, rank.world_size, counters=())
        self._calls: tuple[Site, ...] = ()
        self._slept_s, self._slept_at = 0.0, None
        self._left = MOST_STEPS
        self._known: dict[int, bool] = {}

    def run(self, items: list[Item]) -> list[Meeting]:
        """Return the meetings of the rank, up to the step that is not known."""
        with suppress(_EndError, RecursionError):
            self._follow(items)
        return self.found

    def _follow(self, items: Iterable[Item]) -> str:
        for item in items:
            self._left -= 1
            if self._left < 0:
                raise _EndError
            end = self._item(item)
            if end:
                return end
        return GOES_ON

    def _item(self, item: Item) -> str:
        match item:
            case Event():
                self._meet(item)
            case Noted(name=name) if name == SLEEP:
                self._sleep(item)
            case Noted(name=name) if name.startswith(PREFIX):
                self._note(item)
            case Leave(kind=kind):
                return kind
            case Branch() if self._matters(item):
                return self._branch(item)
            case Rounds() if self._matters(item):
                return self._rounds(item)
            case Attempt(body=body) if self._matters(item):
                return self._follow(body)
            case Called() if self._matters(item):
                return self._call(item)
            case _:
                pass
        return GOES_ON

    def _matters(self, item: Item) -> bool:
        known = self._known.get(id(item))
        if known is None:
            known = self._known[id(item)] = _matters(item)
        return known

    def _meet(self, event: Event) -> None:
        if not event.sure or not event.wrapped or event.on_demand:
            return
        rounds = tuple(self._member.counters or ())
        self.found.append(Meeting(event.kind, event.site, self._calls, rounds, self._slept_s, self._slept_at))
        self._slept_s, self._slept_at = 0.0, None

    def _note(self, fact: Noted) -> None:
        last = self.found[-1] if self.found else None
        if last and last.site == fact.site and last.fact is None and fact.name == PREFIX + last.kind:
            self.found[-1] = last._replace(fact=fact)

    def _sleep(self, fact: Noted) -> None:
        given = argument(fact, 0, "secs")
        if given and given.key.is_constant and isinstance(given.key.value, int | float):
            self._slept_s += given.key.value
            self._slept_at = self._calls[-1] if self._calls else fact.site

    def _branch(self, item: Branch) -> str:
        test = self.keys.specialise(item.test, self.rank)
        held = truth(test, self._member)
        if held is not None:
            return self._follow(item.then if held else item.other)
        if item.test.spread & (DIFFERS | TOUCHED):
            raise _EndError
        ends = [self._follow(side) for side in (item.then, item.other)]
        return ends[0] if ends[0] == ends[1] else GOES_ON

    def _rounds(self, item: Rounds) -> str:
        amount = self.keys.specialise(item.amount, self.rank)
        count = self._numbers(amount)
        if count is None and (item.amount.spread & (DIFFERS | TOUCHED) or item.free):
            raise _EndError
        member, end = self._member, GOES_ON
        for value in count if count is not None else (None,):
            if value is not None:
                self._member = member._replace(counters=(*(member.counters or ()), (*item.site[:2], value)))
            end = self._follow(item.body)
            if end not in (GOES_ON, "next"):
                break
        self._member = member
        if end in (GOES_ON, "next"):
            return self._follow(item.rest)
        return GOES_ON if end == "break" else end

    def _numbers(self, amount: Key) -> "range | None":
        """Return the numbers of the rounds of a loop, None if there are too many or they are not known."""
        counted = numbers(amount, self._member)
        if counted is None:
            count = number(amount, self._member)
            counted = range(count) if count is not None else None
        return None if counted is None or len(counted) > MOST_ROUNDS else counted

    def _call(self, item: Called) -> str:
        if item.perhaps or item.starts or item.summary.wrapped:
            raise _EndError
        calls = self._calls
        self._calls = calls if item.hands_on else (*calls, item.site)
        end = self._follow(item.summary.items)
        self._calls = calls
        return GOES_ON if end == "return" else end


def _matters(item: Item) -> bool:
    """Return whether ranks may wait for each other in a step, sleep there, or leave what is around it."""
    pending, seen = [(item, False, False)], set[int]()
    while pending:
        each, in_loop, in_call = pending.pop()
        match each:
            case Event():
                return True
            case Noted(name=name) if name == SLEEP:
                return True
            case Leave(kind=kind):
                if kind == "exit" or (kind == "return" and not in_call) or (kind in ("next", "break") and not in_loop):
                    return True
            case Branch(then=first, other=second) | Attempt(first, second):
                pending += [(inner, in_loop, in_call) for inner in (*first, *second)]
            case Rounds(body=first, rest=second):
                pending += [(inner, True, in_call) for inner in (*first, *second)]
            case Called(summary=summary) if id(summary) not in seen:
                seen.add(id(summary))
                pending += [(inner, True, True) for inner in summary.items]
            case _:
                pass
    return False
