"""DW431: receives for which no message is sent, or not before ranks wait, and sends that nothing receives."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial

from ...training_script.model.function_steps import Branch, Item, Leave, Noted, Rounds
from ...training_script.model.keys import LOCAL, Key, Rank, parts
from ...training_script.model.lengths import Member, counts_rounds, number, numbers
from ...training_script.model.reach import Reach, Run, argument
from ...training_script.model.values import Value
from ..patches.send_first import send_first
from ..rule_context import Script, Violation
from ..violations import violation_at
from .collective_arguments import BEGIN
from .message_order import Message, Way, in_order, stuck

PREFIX = "torch.distributed."
SENDS = {f"{PREFIX}{name}" for name in ("send", "isend")}
RECEIVES = {f"{PREFIX}{name}" for name in ("recv", "irecv")}
OTHERS = {f"{PREFIX}{name}" for name in ("batch_isend_irecv", "send_object_list", "recv_object_list")}
MOST_MESSAGES = 10_000
SIZES = [[Rank(rank, rank, 0, size, size) for rank in range(size)] for size in (2, 4)]  # of a job


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the first receive or send that has no counterpart, by the messages, their order, or by how ranks end."""
    calls = [(reach, fact) for reach, fact in run.of(*SENDS, *RECEIVES, *OTHERS)]
    if not calls or any(fact.name in OTHERS or reach.unsure or reach.attempted for reach, fact in calls):
        return
    jobs = [_messages(run, calls, ranks) for ranks in SIZES]
    known = [each for each in jobs if each is not None]
    unequal = [_unequal(each) for each in known] if len(known) == len(SIZES) else []
    waits = [stuck(each) for each in known] if len(known) == len(SIZES) else []
    if unequal and all(unequal):
        for reach, message in filter(None, unequal[:1]):
            yield from violation_at(script, reach, message, 0.8)
    elif waits and all(len(each) > 1 for each in waits):
        first, other = waits[0][:2]
        message = f"a rank waits here for one that waits in line {other.reach.fact.site.line}, and neither has sent"
        patch = partial(send_first, script, [each.reach for each in waits[0]])
        yield from violation_at(script, first.reach, message, 0.8, patch=patch)
    elif found := _without_end(calls) or _ended_early(calls):
        yield from violation_at(script, *found, 0.8)


def _unequal(found: list[list[Message]]) -> tuple[Reach, str] | None:
    """Return a call of two ranks that send and receive different numbers of messages."""
    sent, received = Counter[Way](), Counter[Way]()
    places = defaultdict[Way, dict[int, Reach]](dict)
    for each in itertools.chain(*found):
        (sent if each.sends else received)[each.way] += 1
        places[each.way][id(each.reach)] = each.reach
    for way in sorted({*sent, *received}):
        if received[way] > sent[way]:
            reach = next(each for each in places[way].values() if each.name in RECEIVES)
            return reach, (
                f"rank {way.to} waits here for {received[way]} messages of rank {way.source}, which sends {sent[way]}"
            )
        if sent[way] > received[way]:
            reach = next(each for each in places[way].values() if each.name in SENDS)
            return reach, f"rank {way.to} receives {received[way]} of the {sent[way]} messages that it is sent here"
    return None


def _messages(run: Run, calls: list[tuple[Reach, Noted]], ranks: list[Rank]) -> list[list[Message]] | None:
    """Return what each rank of a job sends and receives, in its order; None if not all messages are known."""
    found: list[list[Message]] = []
    for rank in ranks:
        member = Member(rank.rank, len(ranks))
        taken: list[tuple[Reach, Noted]] = []
        for reach, fact in calls:
            seen = [run.keys.specialise(each.test, rank) for each in reach.conditions]
            if not all(each.is_constant for each in seen):
                return None
            if all(bool(each.value) == condition.truth for each, condition in zip(seen, reach.conditions, strict=True)):
                taken.append((reach, fact))
        rounds = _rounds_of(taken, member)
        if rounds is None:
            return None
        made = in_order(taken, rounds, _Messages(member))
        if any(each is None for each in made):
            return None
        found.append([each for each in made if each])
    return found


def _rounds_of(calls: list[tuple[Reach, Noted]], rank: Member) -> dict[int, int] | None:
    """Return the number of rounds of each loop around calls; None if one is not known, or if they are too many."""
    rounds: dict[int, int] = {}
    for reach, _ in calls:
        times = 1
        for loop in reach.loops:
            found = number(loop.amount, rank)
            if found is None or _may_leave(loop.body):
                return None
            rounds[id(loop)] = max(found, 0)
            times *= rounds[id(loop)]
        if times > MOST_MESSAGES:
            return None
    return rounds


class _Messages:
    """The messages of the calls of one rank, each made out once for all rounds in which it is the same."""

    def __init__(self, rank: Member) -> None:
        self.rank = rank
        self._known: dict[tuple[int, int | None], Message | None] = {}

    def __call__(self, reach: Reach, fact: Noted, round_: tuple[int, ...]) -> Message | None:
        """Return the message of a call in a round of the loops around it; None if it is not known."""
        peer = _peer(fact)
        counted = [at for at, loop in enumerate(reach.loops) if peer and _counts(peer.key, loop)]
        which = id(reach), round_[counted[0]] if counted else None
        if which not in self._known:
            values = numbers(reach.loops[counted[0]].amount, self.rank) if counted else None
            rank = self.rank._replace(counter=values[which[1]]) if values and which[1] is not None else self.rank
            self._known[which] = (
                _message(rank, reach, fact) if len(counted) < 2 and bool(values) == bool(counted) else None
            )
        return self._known[which]


def _message(rank: Member, reach: Reach, fact: Noted) -> Message | None:
    sends, peer, tag = fact.name in SENDS, _peer(fact), argument(fact, 3, "tag")
    if peer is None or argument(fact, 2, "group") or {"group_dst", "group_src", "**"} & fact.named.keys():
        return None
    at, tagged = number(peer.key, rank), number(tag.key, rank) if tag else 0
    if at is None or tagged is None:
        return None
    way = Way(rank.rank, at, tagged) if sends else Way(at, rank.rank, tagged)
    return Message(reach, way, sends, fact.name.rpartition(".")[2] not in BEGIN)


def _peer(fact: Noted) -> Value | None:
    return argument(fact, 1, "dst" if fact.name in SENDS else "src")


def _counts(peer: Key, loop: Rounds) -> bool:
    """Return whether the number of the round of a loop decides the other rank of a message."""
    return any(counts_rounds(part, *loop.site[:2]) for part in parts(peer))


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
