"""The order in which two or more ranks send and receive: whether all of them may wait for a message at once."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...training_script.model.function_steps import Noted, Rounds
from ...training_script.model.reach import Reach
from ...training_script.model.sequences import Site


class Way(NamedTuple):
    """The two ranks of a message, and its tag."""

    source: int
    to: int
    tag: int


class Message(NamedTuple):
    """A send or a receive of one rank; ``waits``: the rank goes on only when the message is there."""

    reach: Reach
    way: Way
    sends: bool
    waits: bool


class _Place(NamedTuple):
    """The loops around a call, outermost first, each with the calls that lead to it."""

    reach: Reach
    fact: Noted
    loops: "tuple[tuple[int, tuple[Site, ...]], ...]"


# The message of a call in the rounds, by their numbers, of the loops around it; None if it is not known.
MessageOf = Callable[[Reach, Noted, tuple[int, ...]], "Message | None"]


def in_order(
    calls: Sequence[tuple[Reach, Noted]], rounds: Mapping[int, int], message: MessageOf
) -> "list[Message | None]":
    """Return the messages of a rank in the order in which it comes to them: loops are written out.

    ``rounds``: how many rounds the loops have on this rank, by their identity.
    """
    places = [_Place(reach, fact, _loops(reach)) for reach, fact in calls]
    return [*_written_out(places, (), rounds, message)]


def stuck(ranks: Sequence[Sequence[Message]]) -> list[Message]:
    """Return the receives in which ranks wait for ever, even if no send waits; none if all of them end."""
    waiting = [deque(steps) for steps in ranks]
    sent, taken = Counter[Way](), defaultdict[Way, int](int)
    moved = True
    while moved:
        moved = False
        for steps in waiting:
            while steps:
                step = steps[0]
                if not step.sends and step.waits and sent[step.way] <= taken[step.way]:
                    break
                (sent if step.sends else taken)[step.way] += 1
                steps.popleft()
                moved = True
    return [steps[0] for steps in waiting if steps]


def _written_out(
    places: Sequence[_Place], round_: tuple[int, ...], rounds: Mapping[int, int], message: MessageOf
) -> "Iterator[Message | None]":
    depth, at = len(round_), 0
    while at < len(places):
        first = places[at]
        if len(first.loops) == depth:
            yield message(first.reach, first.fact, round_)
            at += 1
            continue
        end = at
        while end < len(places) and places[end].loops[: depth + 1] == first.loops[: depth + 1]:
            end += 1
        for number in range(rounds[id(first.reach.loops[depth])]):
            yield from _written_out(places[at:end], (*round_, number), rounds, message)
        at = end


def _loops(reach: Reach) -> "tuple[tuple[int, tuple[Site, ...]], ...]":
    return tuple([(id(loop), _calls_to(reach, loop)) for loop in reach.loops])


def _calls_to(reach: Reach, loop: Rounds) -> tuple[Site, ...]:
    """Return the calls on the way to a loop around a fact: those before the first one inside of it."""
    path, first, _, last = loop.site
    inside = (at for at, call in enumerate(reach.calls) if call.path == path and first <= call.line <= last)
    return reach.calls[: next(inside, len(reach.calls))]
