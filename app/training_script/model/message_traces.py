"""The messages of each rank of a small job in order, where the program writes out how many there are.

A rank goes through the steps of the program with the numbers of its loops. What decides a message and does not follow
from the rank, from these numbers and from what is written out ends the attempt: then nothing is known.
"""

from collections.abc import Iterable
from typing import NamedTuple

from .function_steps import Attempt, Branch, Called, Item, Leave, Noted, Rounds
from .keys import Key, Keys, Rank, parts
from .lengths import number, numbers, truth
from .members import Member
from .reach import argument
from .sequences import Event, Site

PREFIX = "torch.distributed."
SENDS = {f"{PREFIX}{name}" for name in ("send", "isend")}
RECEIVES = {f"{PREFIX}{name}" for name in ("recv", "irecv")}
OTHERS = {f"{PREFIX}{name}" for name in ("send_object_list", "recv_object_list")}
MADE = f"{PREFIX}P2POp"  # a message that batch_isend_irecv begins
MOST_STEPS = 10_000
GOES_ON = ""


class Way(NamedTuple):
    """The two ranks of a message, and its tag."""

    source: int
    to: int
    tag: int


class Step(NamedTuple):
    """A message that a rank sends or receives, or a call for which all ranks wait (no ``way``).

    ``counters``: numbers of the rounds around it. ``decided``: the innermost condition that asks for one of them, with
    the calls that lead to it. ``numbered``: the loop whose number is the tag.
    """

    name: str
    way: Way | None
    site: Site
    calls: tuple[Site, ...]
    counters: tuple[int, ...]
    decided: tuple[Site, tuple[Site, ...]] | None
    numbered: Rounds | None

    @property
    def sends(self) -> bool:
        return self.name in SENDS

    @property
    def waits(self) -> bool:
        """The rank waits there for the other."""
        return not self.name.endswith(("isend", "irecv"))


class UnknownStepError(Exception):
    """Raised where the next step of a rank does not follow from what is written out."""


def traces(items: list[Item], keys: Keys, ranks: list[Rank]) -> list[list[Step]] | None:
    """Return the messages of each rank of a job in order, None if they are not known."""
    made = [_Trace(keys, rank) for rank in ranks]
    try:
        for each in made:
            each.follow(items)
    except (UnknownStepError, RecursionError):
        return None
    return [each.steps for each in made]


class _Trace:
    """The way of one rank."""

    def __init__(self, keys: Keys, rank: Rank) -> None:
        self.keys, self.rank, self.steps = keys, rank, list[Step]()
        self._member = Member(rank.rank, rank.world_size, counters=())
        self._calls: tuple[Site, ...] = ()
        self._loops: tuple[Rounds, ...] = ()
        self._decided: tuple[Site, tuple[Site, ...]] | None = None
        self._left = MOST_STEPS
        self._known: dict[int, bool] = {}

    def follow(self, items: Iterable[Item]) -> str:
        """Go through steps; return how the rank leaves them, an empty string if it goes on behind them."""
        for item in items:
            self._left -= 1
            if self._left < 0:
                raise UnknownStepError
            end = self._item(item)
            if end:
                return end
        return GOES_ON

    def _item(self, item: Item) -> str:
        match item:
            case Event():
                self._event(item)
            case Noted():
                self._message(item)
            case Leave(kind=kind):
                return kind
            case Branch() if self._matters(item):
                return self._branch(item)
            case Rounds() if self._matters(item):
                return self._rounds(item)
            case Attempt() if self._matters(item):
                raise UnknownStepError
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

    def _event(self, event: Event) -> None:
        if not event.sure or not event.wrapped:
            raise UnknownStepError
        self.steps.append(self._step(event.kind, None, event.site))

    def _message(self, fact: Noted) -> None:
        if fact.name in OTHERS:
            raise UnknownStepError
        name = name_of(fact)
        if name not in SENDS | RECEIVES:
            if fact.name == MADE:
                raise UnknownStepError
            return
        sends, place = name in SENDS, 1 if fact.name == MADE else 0
        peer, tag = (
            argument(fact, 1 + place, "peer" if place else "dst" if sends else "src"),
            argument(fact, 3 + place, "tag"),
        )
        others = {"group_dst", "group_src", "group_peer", "**"}
        if peer is None or argument(fact, 2 + place, "group") or others & fact.named.keys():
            raise UnknownStepError
        other, tagged = number(peer.key, self._member), number(tag.key, self._member) if tag else 0
        if other is None or tagged is None:
            raise UnknownStepError
        way = Way(self.rank.rank, other, tagged) if sends else Way(other, self.rank.rank, tagged)
        self.steps.append(self._step(name, way, fact.site, tag.key if tag else None))

    def _step(self, name: str, way: Way | None, site: Site, tag: Key | None = None) -> Step:
        counted = [part.args[:2] for part in parts(tag) if part.op == "number"] if tag else []
        loop = next((each for each in reversed(self._loops) if each.site[:2] in counted), None)
        counters = tuple(value for *_, value in self._member.counters or ())
        return Step(name, way, site, self._calls, counters, self._decided, loop)

    def _branch(self, item: Branch) -> str:
        test = self.keys.specialise(item.test, self.rank)
        held = truth(test, self._member)
        if held is None:
            raise UnknownStepError
        decided = self._decided
        if any(part.op == "number" for part in parts(test)):
            self._decided = item.site, self._calls
        end = self.follow(item.then if held else item.other)
        self._decided = decided
        return end

    def _rounds(self, item: Rounds) -> str:
        amount = self.keys.specialise(item.amount, self.rank)
        counted = numbers(amount, self._member)
        if counted is None:
            count = number(amount, self._member)
            if count is None:
                raise UnknownStepError
            counted = range(count)
        member, loops = self._member, self._loops
        self._loops = (*loops, item)
        end = GOES_ON
        for value in counted:
            self._member = member._replace(counters=(*(member.counters or ()), (*item.site[:2], value)))
            end = self.follow(item.body)
            if end not in (GOES_ON, "next"):
                break
        self._member, self._loops = member, loops
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


def name_of(fact: Noted) -> str:
    """Return the name of the call that sends or receives a message, also where a batch of them begins it."""
    operation = argument(fact, 0, "op") if fact.name == MADE else None
    return str(operation.key.args[0]) if operation and operation.key.op == "library" else fact.name


def _matters(item: Item) -> bool:
    """Return whether there may be messages, calls for which ranks wait, or an end of what is around, in a step.

    Errors are left out: what follows one is not the program's course.
    """
    pending, seen = [(item, False, False)], set[int]()
    while pending:
        each, in_loop, in_call = pending.pop()
        match each:
            case Event():
                return True
            case Leave(kind=kind):
                if kind == "exit" or (kind == "return" and not in_call) or (kind in ("next", "break") and not in_loop):
                    return True
            case Noted(name=name) if name == MADE or name in SENDS | RECEIVES | OTHERS:
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
