"""DW431: receives for which no message is sent, or not before ranks wait, and sends that nothing receives."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from ...training_script.model.function_steps import Branch, Item, Leave, Noted, Rounds
from ...training_script.model.keys import LOCAL, Key, Rank, parts
from ...training_script.model.message_traces import MADE, OTHERS, RECEIVES, SENDS, Step, Way, traces
from ...training_script.model.reach import Reach, Run
from ...training_script.model.sequences import Site
from ...training_script.nodes import nodes_below
from ..patches.send_first import send_first
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .collective_arguments import check_receive

BATCH = "torch.distributed.batch_isend_irecv"
SIZES = [[Rank(rank, rank, 0, size, size) for rank in range(size)] for size in (2, 4)]  # of a job


class Place(NamedTuple):
    """A statement that decides about messages, with the calls that lead to it."""

    site: Site
    calls: tuple[Site, ...]


class Found(NamedTuple):
    """The place where ranks wait for ever, and why. ``waits``: the messages for which they wait for each other."""

    at: Step | Place
    message: str
    waits: tuple[Step, ...] = ()


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the first receive or send that has no counterpart, by the messages, their order, or by how ranks end."""
    calls = [(reach, fact) for reach, fact in run.of(*SENDS, *RECEIVES, *OTHERS, MADE)]
    if not calls or any(fact.name in OTHERS or reach.unsure for reach, fact in calls):
        return
    if any(fact.name == MADE for _, fact in calls) and not any(run.of(BATCH)):
        return  # nothing begins these messages
    if not run.knows_callers(reach for reach, _ in calls):
        return
    if found := _found(script, run):
        if any(check_receive(script, run)):
            return
        waits = [reach for step in found.waits for reach, fact in calls if _is_of(step, reach, fact)]
        reach, fact = next((call for call in calls if isinstance(found.at, Step) and _is_of(found.at, *call)), calls[0])
        if isinstance(found.at, Place):
            reach = reach._replace(fact=fact._replace(site=found.at.site), calls=found.at.calls)
        patch = partial(send_first, script, waits) if len(waits) > 1 else None
        counted = [
            RelatedPlace(path=script.source.path, line=node.lineno, message="a number of messages is computed here")
            for node in nodes_below(script.source.tree)
            if isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Div | ast.FloorDiv)
            and _counts(script, node, calls)
        ]
        yield from violation_at(script, reach, found.message, 0.8, patch=patch, related=counted)
    elif (
        not any(fact.name == MADE for _, fact in calls)
        and not any(reach.attempted for reach, _ in calls)
        and (ended := _without_end(calls) or _ended_early(calls))
    ):
        yield from violation_at(script, *ended, 0.8)


def _counts(script: Script, node: ast.expr, calls: list[tuple[Reach, Noted]]) -> bool:
    """Return whether a number decides how many rounds a loop with messages has."""
    key = script.evaluated.value(node)
    return key is not None and any(key in parts(loop.amount) for reach, _ in calls for loop in reach.loops)


def _is_of(step: Step, reach: Reach, fact: Noted) -> bool:
    return (fact.site, reach.calls) == (step.site, step.calls)


def _found(script: Script, run: Run) -> Found | None:
    """Return where ranks wait for ever whatever their number is, if all messages are known."""
    root = next((each for each in script.evaluated.roots if each.function is run.function), None)
    found = [_stuck(steps) if root and (steps := traces(root.items, run.keys, ranks)) else None for ranks in SIZES]
    return found[0] if all(found) else None


def _stuck(steps: list[list[Step]]) -> Found | None:
    """Return the first message that is not received or not sent, or the place where ranks wait for each other."""
    messages = [each for rank in steps for each in rank if each.way]
    counts = [Counter(each.way for each in messages if each.sends is sends) for sends in (False, True)]
    received, sent = counts
    for way in sorted({each.way for each in messages if each.way}):
        if received[way] != sent[way]:
            waits = received[way] > sent[way]
            step = next(each for each in messages if each.way == way and each.sends is not waits)
            other = next((each for each in messages if _is_numbered_otherwise(step, each)), None)
            if other and step.numbered and other.numbered:
                return _at_loop(step, other)
            out_of_step = _out_of_step(steps)
            if out_of_step and not isinstance(out_of_step.at, Step):
                return out_of_step
            if waits:
                number = f"{received[way]} messages of rank {way.source}, which sends {sent[way]}"
                return Found(step, f"rank {way.to} waits here for {number}")
            number = f"{received[way]} of the {sent[way]} messages that it is sent here"
            return Found(step, f"rank {way.to} receives {number}")
    return _out_of_step(steps)


def _is_numbered_otherwise(step: Step, other: Step) -> bool:
    """Return whether a message between two ranks is the counterpart of another one but for the number in its tag."""
    if step.way is None or other.way is None or step.sends is other.sends or not step.numbered or not other.numbered:
        return False
    return step.way[:2] == other.way[:2] and _first(step.numbered) != _first(other.numbered)


def _at_loop(step: Step, other: Step) -> Found:
    """Return the loop whose numbers are tags that the other rank does not use: the one that says where it begins."""
    assert step.numbered is not None and other.numbered is not None
    first, second = (step, other) if _first(step.numbered) else (other, step)
    assert first.numbered is not None and second.numbered is not None
    line = second.numbered.site.line
    message = f"the tags of messages are numbered from here, and otherwise by the rank at the other end (line {line})"
    depth = len(first.calls)
    while depth and first.calls[depth - 1].path == first.numbered.site.path and _is_inside(first, depth):
        depth -= 1
    return Found(Place(first.numbered.site, first.calls[:depth]), message)


def _is_inside(step: Step, depth: int) -> bool:
    """Return whether a call on the way to a message is inside of the loop that numbers it."""
    loop = step.numbered
    return loop is not None and loop.site.line < step.calls[depth - 1].line <= loop.site.end_line


def _bounds(loop: Rounds) -> tuple[Key, ...]:
    """Return the bounds of the numbers that a loop counts."""
    held = loop.amount.args[0] if loop.amount.op == "length" and len(loop.amount.args) == 1 else loop.amount
    return held.args if held.op == "range" else ()


def _first(loop: Rounds) -> Key | None:
    """Return the number with which a loop begins, None for 0."""
    bounds = _bounds(loop)
    return bounds[0] if len(bounds) > 1 and not (bounds[0].is_constant and bounds[0].value == 0) else None


def _out_of_step(steps: list[list[Step]]) -> Found | None:
    """Return where ranks wait for each other for ever: a send ends when it is received (gloo), as a receive does.

    The place is the condition behind which a message was taken for one of another round, if there is such a one.
    """
    at = [0] * len(steps)
    posted: dict[tuple[Way, bool], list[Step]] = defaultdict(list)
    early: Step | None = None
    moved = True
    while moved:
        moved = False
        for rank, own in enumerate(steps):
            while at[rank] < len(own) and (step := own[at[rank]]).way:
                pair = _counterpart(steps, at, posted, step)
                if pair is not None:
                    other, place = pair
                    if place is not None:
                        at[place] += 1
                    early = early or _of_other_round(step, other)
                elif step.waits:
                    break
                else:
                    posted[step.way, step.sends].append(step)
                at[rank] += 1
                moved = True
        waiting = [own[at[rank]] for rank, own in enumerate(steps) if at[rank] < len(own)]
        if len(waiting) == len(steps) and all(each.way is None for each in waiting):
            if len({each.name for each in waiting}) > 1:
                return None  # other rules compare what all ranks call
            at = [each + 1 for each in at]
            moved = True
    stuck = [own[at[rank]] for rank, own in enumerate(steps) if at[rank] < len(own) and own[at[rank]].way]
    if not stuck:
        return None
    if early and early.decided:
        return Found(
            Place(*early.decided),
            "the rank at the other end decides otherwise in which rounds it sends or receives: a message is taken for "
            "that of another round, and the ranks wait for each other",
        )
    step, receives = stuck[0], tuple(each for each in stuck if not each.sends)
    assert step.way is not None
    other = step.way.to if step.sends else step.way.source
    behind = steps[other][at[other]] if at[other] < len(steps[other]) else None
    why = f"which waits in line {behind.site.line}" if behind else "which has ended"
    rank = step.way.source if step.sends else step.way.to
    return Found(step, f"rank {rank} waits here for rank {other}, {why}", receives)


def _counterpart(
    steps: list[list[Step]], at: list[int], posted: dict[tuple[Way, bool], list[Step]], step: Step
) -> tuple[Step, int | None] | None:
    """Return the other end of a message if it is there already, and the rank that waits at it."""
    assert step.way is not None
    waiting = posted[step.way, not step.sends]
    if waiting:
        return waiting.pop(0), None
    place = step.way.to if step.sends else step.way.source
    if not 0 <= place < len(steps) or at[place] >= len(steps[place]):
        return None
    other = steps[place][at[place]]
    return (other, place) if other.way == step.way and other.sends is not step.sends else None


def _of_other_round(step: Step, other: Step) -> Step | None:
    """Return the end of a message that is behind a condition on the round, if the other end is of another round."""
    if step.counters == other.counters or not (step.decided or other.decided):
        return None
    receives, sends = (other, step) if step.sends else (step, other)
    return receives if receives.decided else sends


def _may_leave(items: list[Item]) -> bool:
    """Return whether a round may end its loop."""
    return any(_leaves(item, 0) for item in items)


def _leaves(item: Item, differs_by: int) -> bool:
    """Return whether a step may end the loop around it, under a condition that differs so if one is given."""
    match item:
        case Leave(kind=kind):
            return not differs_by and kind in ("break", "return")
        case Branch(then=first, other=second, test=test):
            inner = 0 if test.differs_by & differs_by else differs_by
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
        counted = [loop for loop in reach.loops if loop.amount.op == "length" and not loop.amount.differs_by]
        if fact.name not in RECEIVES or any(reach.ranks & each.ranks for each in sends) or not counted:
            continue
        if not any(_may_leave(loop.body) or loop.amount.op == "while" for loop in reach.loops):
            line = early[0].loops[-1].site.line
            why = f"the rank that sends may end its loop (line {line}) earlier"
            return reach, f"this loop receives in each of its rounds, and {why}"
    return None
