"""Rules for ranks that stand still outside of any collective while others wait in one, or all by themselves."""

from collections.abc import Sequence

from .. import phrases
from ..rank_activity.rank_state import RankState
from ..rank_activity.wait_reasons import WaitKind
from ..types import Verdict
from .context import JobContext, at_one_place, groups_by, hang_verdict, make_verdict, rank_numbers, waiting_sentence
from .divergence import Branch, deciding_condition

# What a rank waits for -> the cause, what speaks for it, how sure it is. The first kind present speaks.
KINDS: tuple[tuple[WaitKind, str, str, float], ...] = (
    ("person", "rank-paused", "job.rank-waits-for-person", 0.93),
    ("gil", "python-lock", "job.rank-keeps-gil", 0.85),
    ("service", "external-service-block", "job.rank-waits-for-service", 0.88),
    ("feeder", "python-lock", "job.feeding-thread-ended", 0.93),
    ("lock", "python-lock", "job.rank-waits-for-itself", 0.88),
    ("loader", "dataloader-stall", "job.rank-in-loader", 0.9),
)
UNTOLD = "What it waits for there cannot be told"
ALONE = 0.65  # the most that is sure where nobody waits for who stands still


def stuck_outside(scene: JobContext) -> Verdict | None:
    """Some wait in a collective; others stand still outside of any."""
    if not scene.idle or not scene.waiting or scene.moving:
        return None
    idle, known = _most_telling(scene.idle)
    branch = _branch(scene, idle)
    entered = branch is not None and branch.sure and branch.taken_by == rank_numbers(scene.waiting)
    who = phrases.ranks_phrase(rank_numbers(idle), "stand")
    stand_still = f"{who} still at {phrases.short_place(idle[0].row.where)}, outside of it"
    if known:
        _, cause, finding, confidence = known
        what = idle[0].doing.what if idle[0].doing else ""
        text = f"{waiting_sentence(scene.waiting)}. {stand_still}, and {'waits' if len(idle) == 1 else 'wait'} {what}."
        return hang_verdict(cause, idle, text, confidence, [finding], None if entered else branch, scene.waiting)
    text = f"{waiting_sentence(scene.waiting)}. {stand_still}."
    if entered and len(scene.waiting) < len(scene.idle):
        findings = ["job.culprit-line-under-rank-test"]
        return hang_verdict("rank-conditional-collective", scene.waiting, text, 0.8, findings, branch)
    if len(idle) == 1 and not (idle[0].doing and idle[0].doing.kind == "store"):
        sure = 0.75 if branch and branch.sure else 0.6
        text = f"{text[:-1]}: it may be at long work there, or stand still itself."
        return hang_verdict("rank0-slow-work", idle, text, sure, ["job.rank0-alone-at-work"], branch, scene.waiting)
    return hang_verdict(None, idle, text, 0.6, [], branch, scene.waiting)


def none_in_collective(scene: JobContext) -> Verdict | None:
    """No rank is in a collective, and none moves."""
    if scene.waiting or scene.moving or not scene.idle:
        return None
    idle, known = _most_telling(scene.idle)
    one = len(idle) == 1
    if known:
        _, cause, finding, confidence = known
        what = idle[0].doing.what if idle[0].doing else ""
        who = "The process stands" if scene.world_size == 1 else phrases.ranks_phrase(rank_numbers(idle), "stand")
        text = f"{who} still at {phrases.short_place(idle[0].row.where)} and {'waits' if one else 'wait'} {what}."
        branch = None
        if others := [stand for stand in scene.idle if stand not in idle]:
            branch = deciding_condition(idle, others, scene.world_size, scene.sources)
        if scene.gone:
            text += f" {_are_gone(scene)}."
        return hang_verdict(cause, idle, text, min(confidence, ALONE), [finding], branch)
    first = scene.idle[0]
    if scene.gone:
        who = phrases.ranks_phrase(rank_numbers(scene.idle), "stand")
        text = f"{_are_gone(scene)}. {who} still at {phrases.short_place(first.row.where)}, in no collective"
        text += f", and {'waits' if one else 'wait'} {first.doing.what}." if first.doing else "."
        return make_verdict("unknown", text, 0.5, ["job.rank-missing"], culprits=scene.gone, waiting=[first])
    who = "The process stands" if len(scene.idle) == 1 else "Every rank stands"
    text = f"{who} still at {phrases.short_place(first.row.where)}, in no collective"
    asleep = all(stand.doing and stand.doing.kind == "sleep" for stand in scene.idle)
    text += ", in a sleep: it goes on when that is over." if asleep else f". {UNTOLD}."
    return make_verdict("unknown", text, 0.3, waiting=[first])


def _are_gone(scene: JobContext) -> str:
    """``Rank 1 of 2 is gone: no process of it is here``."""
    who, one = phrases.ranks_phrase(rank_numbers(scene.gone)), len(scene.gone) == 1
    return (
        f"{who} of {scene.world_size} {'is' if one else 'are'} gone: no process of {'it' if one else 'theirs'} is here"
    )


def _most_telling(idle: Sequence[RankState]) -> tuple[list[RankState], tuple[WaitKind, str, str, float] | None]:
    """Those of the ranks of which most can be said, with what that is."""
    for known in KINDS:
        if found := [stand for stand in idle if stand.doing and stand.doing.kind == known[0]]:
            return found, known
    return list(idle), None


def _branch(scene: JobContext, idle: Sequence[RankState]) -> Branch | None:
    """The rank test that parted them, where both stand together."""
    waiting = groups_by(scene.waiting, lambda stand: stand.place)[0]
    if len(at_one_place(idle)) != len(idle):
        return None
    branch = deciding_condition(waiting, idle, scene.world_size, scene.sources)
    return branch if branch and (branch.sure or len(waiting) == len(scene.waiting)) else None
