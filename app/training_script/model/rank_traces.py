"""The way of one rank through the steps of a program, with the numbers of its loops."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from .function_steps import Attempt, Branch, Called, Item, Leave, Noted, Rounds
from .keys import Keys, Rank
from .lengths import number, numbers
from .members import Member
from .sequences import Event, Site

GOES_ON = ""


class UnknownStepError(Exception):
    """Raised where the next step of a rank does not follow from what is written out."""


class RankTrace(ABC):
    """The way of one rank. A subclass says which calls count, and what the rank does at each kind of step.

    Each kind of step returns how the rank leaves it: ``GOES_ON``, or the kind of a ``Leave``.
    """

    most_steps: int

    def __init__(self, keys: Keys, rank: Rank) -> None:
        self.keys, self.rank = keys, rank
        self._member = Member(rank.rank, rank.world_size, counters=())
        self._calls: tuple[Site, ...] = ()
        self._left = self.most_steps
        self._known: dict[int, bool] = {}

    def follow(self, items: Iterable[Item]) -> str:
        """Go through steps; return how the rank leaves them, ``GOES_ON`` if it goes on behind them."""
        for item in items:
            self._left -= 1
            if self._left < 0:
                raise UnknownStepError
            end = self._item(item)
            if end:
                return end
        return GOES_ON

    @abstractmethod
    def _event(self, event: Event) -> None: ...

    @abstractmethod
    def _noted(self, fact: Noted) -> None: ...

    @abstractmethod
    def _counts(self, fact: Noted) -> bool:
        """Return whether the trace is about a call."""

    @abstractmethod
    def _branch(self, item: Branch) -> str: ...

    @abstractmethod
    def _rounds(self, item: Rounds) -> str: ...

    @abstractmethod
    def _attempt(self, item: Attempt) -> str: ...

    def _item(self, item: Item) -> str:
        match item:
            case Event():
                self._event(item)
            case Noted():
                self._noted(item)
            case Leave(kind=kind):
                return kind
            case Branch() if self._matters(item):
                return self._branch(item)
            case Rounds() if self._matters(item):
                return self._rounds(item)
            case Attempt() if self._matters(item):
                return self._attempt(item)
            case Called() if self._matters(item):
                return self._call(item)
            case _:
                pass
        return GOES_ON

    def _counted(self, item: Rounds) -> Sequence[int] | None:
        """Return the numbers of the rounds of a loop, None if they are not known."""
        amount = self.keys.specialise(item.amount, self.rank)
        counted = numbers(amount, self._member)
        if counted is None:
            count = number(amount, self._member)
            counted = range(count) if count is not None else None
        return counted

    def _repeat(self, item: Rounds, values: Iterable[int | None]) -> str:
        """Go through the rounds of a loop with these numbers; None: a round whose number is not known."""
        member, end = self._member, GOES_ON
        for value in values:
            if value is not None:
                self._member = member._replace(counters=(*(member.counters or ()), (*item.site[:2], value)))
            end = self.follow(item.body)
            if end not in (GOES_ON, "next"):
                break
        self._member = member
        if end in (GOES_ON, "next"):
            return self.follow(item.rest)
        return GOES_ON if end == "break" else end

    def _call(self, item: Called) -> str:
        if item.perhaps or item.starts or item.summary.wrapped:
            raise UnknownStepError
        calls = self._calls
        self._calls = calls if item.hands_on else (*calls, item.site)
        end = self.follow(item.summary.items)
        self._calls = calls
        return GOES_ON if end == "return" else end

    def _matters(self, item: Item) -> bool:
        known = self._known.get(id(item))
        if known is None:
            known = self._known[id(item)] = self._holds(item)
        return known

    def _holds(self, item: Item) -> bool:
        """Return whether there may be calls that count, calls for which ranks wait, or an end of what is around.

        Errors are left out: what follows one is not the program's course.
        """
        pending, seen = [(item, False, False)], set[int]()
        while pending:
            each, in_loop, in_call = pending.pop()
            match each:
                case Event():
                    return True
                case Leave(kind=kind):
                    if kind == "exit" or (kind == "return" and not in_call):
                        return True
                    if kind in ("next", "break") and not in_loop:
                        return True
                case Noted() if self._counts(each):
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
