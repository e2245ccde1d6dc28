"""The messages of each rank of a small job in order, where the program writes out how many there are.

A rank goes through the steps of the program with the numbers of its loops. What decides a message and does not follow
from the rank, from these numbers and from what is written out ends the attempt: then nothing is known.
"""

from typing import NamedTuple

from .function_steps import Attempt, Branch, Item, Noted, Rounds
from .keys import Key, Keys, Rank, parts
from .lengths import number, truth
from .members import Member
from .rank_traces import RankTrace, UnknownStepError
from .reach import argument
from .sequences import Event, Site

PREFIX = "torch.distributed."
SENDS = {f"{PREFIX}{name}" for name in ("send", "isend")}
RECEIVES = {f"{PREFIX}{name}" for name in ("recv", "irecv")}
OTHERS = {f"{PREFIX}{name}" for name in ("send_object_list", "recv_object_list")}
MADE = f"{PREFIX}P2POp"  # a message that batch_isend_irecv begins
MOST_STEPS = 10_000


class Way(NamedTuple):
    """The two ranks of a message, and its tag."""

    source: int
    to: int
    tag: int


class Step(NamedTuple):
    """A message that a rank sends or receives, or a call for which all ranks wait (no ``way``).

    ``counters``: numbers of the rounds around it. ``decided``: the innermost condition that asks for one of them, with
    the calls that lead to it. ``numbered``: the loop whose number is the tag. ``member``: the rank with these rounds.
    """

    name: str
    way: Way | None
    site: Site
    calls: tuple[Site, ...]
    counters: tuple[int, ...]
    decided: tuple[Site, tuple[Site, ...]] | None
    numbered: Rounds | None
    member: Member

    @property
    def sends(self) -> bool:
        return self.name in SENDS

    @property
    def waits(self) -> bool:
        """The rank waits there for the other."""
        return not self.name.endswith(("isend", "irecv"))


def traces(items: list[Item], keys: Keys, ranks: list[Rank]) -> list[list[Step]] | None:
    """Return the messages of each rank of a job in order, None if they are not known."""
    made = [_Trace(keys, rank) for rank in ranks]
    try:
        for each in made:
            each.follow(items)
    except (UnknownStepError, RecursionError):
        return None
    return [each.steps for each in made]


class _Trace(RankTrace):
    """The messages of one rank."""

    most_steps = MOST_STEPS

    def __init__(self, keys: Keys, rank: Rank) -> None:
        super().__init__(keys, rank)
        self.steps: list[Step] = []
        self._loops: tuple[Rounds, ...] = ()
        self._decided: tuple[Site, tuple[Site, ...]] | None = None

    def _counts(self, fact: Noted) -> bool:
        return fact.name == MADE or fact.name in SENDS | RECEIVES | OTHERS

    def _event(self, event: Event) -> None:
        if not event.sure or not event.wrapped:
            raise UnknownStepError
        self.steps.append(self._step(event.kind, None, event.site))

    def _noted(self, fact: Noted) -> None:
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
        return Step(name, way, site, self._calls, counters, self._decided, loop, self._member)

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
        counted = self._counted(item)
        if counted is None:
            raise UnknownStepError
        loops = self._loops
        self._loops = (*loops, item)
        end = self._repeat(item, counted)
        self._loops = loops
        return end

    def _attempt(self, item: Attempt) -> str:
        raise UnknownStepError


def name_of(fact: Noted) -> str:
    """Return the name of the call that sends or receives a message, also where a batch of them begins it."""
    operation = argument(fact, 0, "op") if fact.name == MADE else None
    return str(operation.key.args[0]) if operation and operation.key.op == "library" else fact.name
