"""DW431: receives for which no message is sent, and sends that nothing receives."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ...training_script.model.function_steps import Branch, Item, Leave, Noted, Rounds
from ...training_script.model.keys import LOCAL, Rank, parts
from ...training_script.model.lengths import Member, counts_rounds, number, numbers
from ...training_script.model.reach import Reach, Run, argument
from ..rule_context import Script, Violation
from ..violations import violation_at

PREFIX = "torch.distributed."
SENDS = {f"{PREFIX}{name}" for name in ("send", "isend")}
RECEIVES = {f"{PREFIX}{name}" for name in ("recv", "irecv")}
OTHERS = {f"{PREFIX}{name}" for name in ("batch_isend_irecv", "send_object_list", "recv_object_list")}
MOST_MESSAGES = 10_000
SIZES = [[Rank(rank, rank, 0, size, size) for rank in range(size)] for size in (2, 4)]  # of a job


class Way(NamedTuple):
    """The two ranks of a message, and its tag."""

    source: int
    to: int
    tag: int


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the first receive or send that has no counterpart, by the numbers of messages or by how ranks end."""
    calls = [(reach, fact) for reach, fact in run.of(*SENDS, *RECEIVES, *OTHERS)]
    if not calls or any(fact.name in OTHERS or reach.unsure or reach.attempted for reach, fact in calls):
        return
    found = _unequal(run, calls) or _without_end(calls) or _ended_early(calls)
    if found:
        reach, message = found
        yield from violation_at(script, reach, message, 0.8)


def _unequal(run: Run, calls: list[tuple[Reach, Noted]]) -> tuple[Reach, str] | None:
    """Return a call of two ranks that send and receive different numbers of messages, whatever the number of ranks."""
    found = [_unequal_of(run, calls, ranks) for ranks in SIZES]
    return found[0] if all(found) else None


def _unequal_of(run: Run, calls: list[tuple[Reach, Noted]], ranks: list[Rank]) -> tuple[Reach, str] | None:
    """Return such a call for one number of ranks, if all messages are known."""
    sent, received = Counter[Way](), Counter[Way]()
    places = defaultdict[Way, list[Reach]](list)
    for reach, fact in calls:
        for rank in ranks:
            seen = [run.keys.specialise(each.test, rank) for each in reach.conditions]
            if not all(each.is_constant for each in seen):
                return None
            if any(bool(each.value) != condition.truth for each, condition in zip(seen, reach.conditions, strict=True)):
                continue
            ways = _ways(reach, fact, Member(rank.rank, len(ranks)))
            if ways is None:
                return None
            (sent if fact.name in SENDS else received).update(ways)
            for way in ways:
                places[way].append(reach)
    for way in sorted({*sent, *received}):
        if received[way] > sent[way]:
            reach = next(each for each in places[way] if each.name in RECEIVES)
            return reach, (
                f"rank {way.to} waits here for {received[way]} messages of rank {way.source}, which sends {sent[way]}"
            )
        if sent[way] > received[way]:
            reach = next(each for each in places[way] if each.name in SENDS)
            return reach, f"rank {way.to} receives {received[way]} of the {sent[way]} messages that it is sent here"
    return None


def _ways(reach: Reach, fact: Noted, rank: Member) -> list[Way] | None:
    """Return the messages of a call on one rank; None if they are not known."""
    sends = fact.name in SENDS
    peer, tag = argument(fact, 1, "dst" if sends else "src"), argument(fact, 3, "tag")
    if peer is None or argument(fact, 2, "group") or {"group_dst", "group_src", "**"} & fact.named.keys():
        return None
    ranks, times = [rank], 1
    for loop in reach.loops:
        rounds = number(loop.amount, rank)
        if rounds is None or _may_leave(loop.body):
            return None
        if len(ranks) == 1 and any(counts_rounds(part, *loop.site[:2]) for part in parts(peer.key)):
            values = numbers(loop.amount, rank)
            if values is None:
                return None
            ranks = [rank._replace(counter=value) for value in values]
        else:
            times *= rounds
    if len(ranks) * times > MOST_MESSAGES:
        return None
    ways: list[Way] = []
    for each in ranks:
        at, tagged = number(peer.key, each), number(tag.key, each) if tag else 0
        if at is None or tagged is None:
            return None
        ways += [Way(rank.rank, at, tagged) if sends else Way(at, rank.rank, tagged)] * times
    return ways


def _may_leave(items: list[Item]) -> bool:
    """Return whether a round may end its loop."""
    return any(_leaves(item, 0) for item in items)


def _leaves(item: Item, spread: int) -> bool:
    """Return whether a step may end the loop around it, under a condition of a certain spread if one is given."""
    match item:
        case Leave(kind=kind):
            return not spread and kind in ("break", "return")
        case Branch(then=first, other=second, test=test):
            inner = 0 if test.spread & spread else spread
            return any(_leaves(each, inner) for each in (*first, *second))
        case _:
            return False


def _without_end(calls: list[tuple[Reach, Noted]]) -> tuple[Reach, str] | None:
    """Return a receive in an endless loop that one message has to end, if each message that is sent asks for an answer.

    The rank that receives leaves the loop without an answer; the other one waits for an answer to all that it sends.
    """
    for place, (reach, fact) in enumerate(calls):
        if fact.name not in RECEIVES or not reach.loops or not _is_endless(reach.loops[-1]):
            continue
        answers = [
            each
            for each, other in calls[place + 1 :]
            if other.name in SENDS and each.loops == reach.loops and each.ranks == reach.ranks
        ]
        if not answers or all(set(each.conditions) == set(reach.conditions) for each in answers):
            continue
        others = [(at, each) for at, each in enumerate(calls) if each[0].ranks != reach.ranks]
        asked = [at for at, (_, other) in others if other.name in SENDS]
        if asked and all(_waits_for_answer(calls, at) for at in asked):
            return (
                reach,
                "one message has to end this loop, and each one that is sent is followed by a wait for an answer",
            )
    return None


def _waits_for_answer(calls: list[tuple[Reach, Noted]], at: int) -> bool:
    """Return whether a rank that sends receives next, in any case."""
    reach = calls[at][0]
    after = calls[at + 1] if at + 1 < len(calls) else None
    if after is None or after[1].name not in RECEIVES or after[0].ranks != reach.ranks:
        return False
    return after[0].loops == reach.loops and after[0].conditions == reach.conditions


def _is_endless(loop: Rounds) -> bool:
    return loop.amount.op == "while" and loop.amount.args[0].is_constant


def _ended_early(calls: list[tuple[Reach, Noted]]) -> tuple[Reach, str] | None:
    """Return a receive in a loop of so many rounds, if the rank that sends may leave its loop by its own data."""
    sends = [reach for reach, fact in calls if fact.name in SENDS]
    early = [each for each in sends if any(_leaves(item, LOCAL) for loop in each.loops for item in loop.body)]
    if not sends or len(early) != len(sends):
        return None
    for reach, fact in calls:
        counted = [loop for loop in reach.loops if loop.amount.op == "length" and not loop.amount.spread]
        if fact.name not in RECEIVES or any(reach.ranks & each.ranks for each in sends) or not counted:
            continue
        if not any(_may_leave(loop.body) or loop.amount.op == "while" for loop in reach.loops):
            line = early[0].loops[-1].site.line
            why = f"the rank that sends may end its loop (line {line}) earlier"
            return reach, f"this loop receives in each of its rounds, and {why}"
    return None
