"""The collectives of each rank of a small job in order, paired as they meet.

A rank goes through the steps of the program. Where a condition or a number of rounds is not known, but the same on all
ranks, each rank takes both sides, or one round: their calls still meet in this order. What differs between ranks and
does not follow from their numbers ends the trace.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from .function_steps import Attempt, Branch, Item, Noted, Rounds
from .keys import DIFFERS, TOUCHED, Keys, Rank
from .lengths import truth
from .rank_traces import GOES_ON, RankTrace, UnknownStepError
from .reach import argument
from .sequences import Event, Site

PREFIX = "torch.distributed."
SLEEP = "time.sleep"
MOST_STEPS = 5_000
MOST_ROUNDS = 50  # of a loop that are followed one by one


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


def meetings(items: list[Item], keys: Keys, ranks: list[Rank]) -> Iterator[tuple[Meeting, ...]]:
    """Yield the calls that meet in turn, one of each rank, as long as they are of one kind."""
    traces = [_Trace(keys, rank).run(items) for rank in ranks]
    for met in zip(*traces, strict=False):
        if len({each.kind for each in met}) > 1:
            return
        yield met


class _Trace(RankTrace):
    """The meetings of one rank."""

    most_steps = MOST_STEPS

    def __init__(self, keys: Keys, rank: Rank) -> None:
        super().__init__(keys, rank)
        self.found: list[Meeting] = []
        self._slept_s, self._slept_at = 0.0, None

    def run(self, items: list[Item]) -> list[Meeting]:
        """Return the meetings of the rank, up to the step that is not known."""
        with suppress(UnknownStepError, RecursionError):
            self.follow(items)
        return self.found

    def _counts(self, fact: Noted) -> bool:
        return fact.name == SLEEP

    def _event(self, event: Event) -> None:
        if not event.sure or not event.wrapped or event.on_demand:
            return
        rounds = tuple(self._member.counters or ())
        self.found.append(Meeting(event.kind, event.site, self._calls, rounds, self._slept_s, self._slept_at))
        self._slept_s, self._slept_at = 0.0, None

    def _noted(self, fact: Noted) -> None:
        if fact.name == SLEEP:
            self._sleep(fact)
            return
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
            return self.follow(item.then if held else item.other)
        if item.test.differs_by & (DIFFERS | TOUCHED):
            raise UnknownStepError
        ends = [self.follow(side) for side in (item.then, item.other)]
        return ends[0] if ends[0] == ends[1] else GOES_ON

    def _rounds(self, item: Rounds) -> str:
        counted = self._counted(item)
        if counted is not None and len(counted) <= MOST_ROUNDS:
            return self._repeat(item, counted)
        if item.amount.differs_by & (DIFFERS | TOUCHED) or item.free:
            raise UnknownStepError
        return self._repeat(item, (None,))

    def _attempt(self, item: Attempt) -> str:
        return self.follow(item.body)
