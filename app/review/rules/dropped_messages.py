"""DW431: messages that a rank sends only in some rounds of a loop, for another that receives one in each round."""

from collections.abc import Iterator

from ...training_script.model.function_steps import Attempt, Branch, Item, Leave, Noted, Rounds
from ...training_script.model.keys import BY_RANK, Key, parts
from ...training_script.model.lengths import number
from ...training_script.model.members import PAIR
from ...training_script.model.message_traces import RECEIVES, SENDS
from ...training_script.model.reach import Condition, Reach, Run
from ...training_script.model.sequences import Site
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at

OBJECTS = {True: "torch.distributed.send_object_list", False: "torch.distributed.recv_object_list"}
OF_ROUND = {"element", "number"}  # what differs between the rounds of a loop


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the receives in each round of a loop of as many rounds as that of the rank that may not send in each."""
    sends = [*run.of(*SENDS, OBJECTS[True])]
    receives = [(reach, fact) for reach, fact in run.of(*RECEIVES, OBJECTS[False]) if not fact.name.endswith("irecv")]
    calls = [reach for reach, _ in (*sends, *receives)]
    if not sends or not receives or any(reach.unsure or reach.attempted for reach in calls):
        return
    dropped = [_dropped_at(reach) for reach, _ in sends]
    if None in dropped or _covers_all(sends):
        return
    for reach, fact in receives:
        others = [(send, other) for send, other in sends if not send.ranks & reach.ranks]
        if len(others) != len(sends) or not reach.loops or not _in_each_round(reach):
            continue
        send, other = others[0]
        if fact.name.endswith("object_list") == other.name.endswith("object_list") and _as_many(send, reach):
            at = dropped[0]
            assert at is not None
            yield from violation_at(
                script,
                reach,
                f"this receives one message in each round, and the rank that sends leaves some out (line {at.line}): "
                "it waits for one that does not come",
                0.8,
                related=[
                    RelatedPlace(path=at.path, line=at.line, message="no message is sent for some rounds"),
                    RelatedPlace(path=other.site.path, line=other.site.line, message="sent here"),
                ],
            )
            return


def _dropped_at(send: Reach) -> Site | None:
    """Return the place where a round of the loop around a send may go on without it."""
    if not send.loops:
        return None
    loop = send.loops[-1]
    found = next((each.site for each in send.conditions if _is_of_rounds(each, loop, send.fact.site)), None)
    return found or _skips_by_error(loop.body)


def _is_of_rounds(condition: Condition, loop: Rounds, call: Site) -> bool:
    """Return whether a condition on the way to a call has another result in each round of a loop."""
    made = (_is_made_between(part, loop.site, call) for part in parts(condition.test))
    return not condition.test.differs_by & BY_RANK and any(made)


def _is_made_between(part: Key, loop: Site, call: Site) -> bool:
    """Return whether a value is one of each round: an element of what a loop goes over, or made before a call in it."""
    if part.op in OF_ROUND:
        return True
    place = part.args[:2] if part.op == "at" else part.args[1:3] if part.op == "local" else ()
    path, line = place if len(place) == 2 else ("", 0)
    return path == loop.path and type(line) is int and loop.line < line <= call.line


def _skips_by_error(body: list[Item]) -> Site | None:
    """Return the place where a round goes on to the next one after an error, before it sends."""
    for item in body:
        if isinstance(item, Noted) and item.name in (*SENDS, OBJECTS[True]):
            return None
        if isinstance(item, Attempt):
            skip = next((each for each in item.handler if isinstance(each, Leave) and each.kind == "next"), None)
            if skip is not None:
                return skip.site
    return None


def _covers_all(sends: list[tuple[Reach, Noted]]) -> bool:
    """Return whether two sends of a loop are on the two sides of one condition."""
    sides = [{(each.test, each.truth) for each in reach.conditions} for reach, _ in sends]
    return any((test, not truth) in other for own in sides for test, truth in own for other in sides)


def _in_each_round(reach: Reach) -> bool:
    """Return whether a receive is made in each round of a loop whose number of rounds does not follow from messages."""
    loop = reach.loops[-1]
    tests = [each for each in reach.conditions if _is_of_rounds(each, loop, reach.fact.site)]
    return loop.amount.op == "length" and not tests and not any(map(_may_leave, loop.body))


def _may_leave(item: Item) -> bool:
    match item:
        case Leave() | Attempt():
            return True
        case Branch(then=first, other=second):
            return any(map(_may_leave, (*first, *second)))
        case _:
            return False


def _as_many(send: Reach, receive: Reach) -> bool:
    """Return whether the loops around a send and a receive have as many rounds."""
    amounts = [each.loops[-1].amount for each in (send, receive)]
    if amounts[0] is amounts[1]:
        return True
    counts = [number(each, PAIR[0]) for each in amounts]
    return counts[0] is not None and counts[0] == counts[1]
