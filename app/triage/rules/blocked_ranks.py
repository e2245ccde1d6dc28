"""Rules for ranks that are blocked outside any collective, while others wait in one or not."""

from collections.abc import Sequence
from typing import NamedTuple

from .. import phrases
from ..rank_activity.rank_state import RankState
from ..rank_activity.wait_reasons import WAITS_FOR_GPU, WaitKind
from ..types import Verdict
from .context import JobContext, at_one_place, groups_by, hang_verdict, make_verdict, rank_numbers, waiting_sentence
from .divergence import Branch, deciding_condition


class KnownWait(NamedTuple):
    """The meaning of a kind of wait for the job: its cause, the finding that supports it, and the confidence."""

    kind: WaitKind
    cause: str
    finding: str
    confidence: float


# By priority: the first kind that a blocked rank has decides.
KNOWN_WAITS = (
    KnownWait("person", "rank-paused", "job.rank-waits-for-person", 0.93),
    KnownWait("gil", "python-lock", "job.rank-keeps-gil", 0.85),
    KnownWait("service", "external-service-block", "job.rank-waits-for-service", 0.88),
    KnownWait("feeder", "python-lock", "job.feeding-thread-ended", 0.93),
    KnownWait("lock", "python-lock", "job.rank-waits-for-itself", 0.88),
    KnownWait("loader", "dataloader-stall", "job.rank-in-loader", 0.9),
)
UNKNOWN_REASON = "Could not determine what it waits for"
ALONE = 0.65  # the highest confidence if nobody waits for the blocked ranks


def stuck_outside(context: JobContext) -> Verdict | None:
    """Some ranks wait in a collective; others are blocked outside any."""
    if not context.idle or not context.waiting or context.progressing:
        return None
    idle, known = _best_explained(context.idle)
    branch = _separating_condition(context, idle)
    only_waiting_enter = branch is not None and branch.sure and branch.taken_by == rank_numbers(context.waiting)
    who = phrases.ranks_phrase(rank_numbers(idle), "are")
    blocked = f"{who} blocked at {phrases.short_place(idle[0].row.where)}, outside the collective"
    if known:
        text = f"{waiting_sentence(context.waiting)}. {blocked}, waiting {_wait_text(idle)}."
        shown_branch = None if only_waiting_enter else branch
        return hang_verdict(known.cause, idle, text, known.confidence, [known.finding], shown_branch, context.waiting)
    text = f"{waiting_sentence(context.waiting)}. {blocked}."
    if only_waiting_enter and len(context.waiting) < len(context.idle):
        findings = ["job.culprit-line-under-rank-test"]
        return hang_verdict("rank-conditional-collective", context.waiting, text, 0.8, findings, branch)
    if len(idle) == 1 and not (idle[0].wait_reason and idle[0].wait_reason.kind == "store"):
        confidence = 0.75 if branch and branch.sure else 0.6
        text = (
            f"{waiting_sentence(context.waiting)}. {who} at {phrases.short_place(idle[0].row.where)}, outside the "
            "collective, without visible progress: it may do long work there, or be blocked itself."
        )
        findings = ["job.rank0-alone-at-work"]
        return hang_verdict("rank0-slow-work", idle, text, confidence, findings, branch, context.waiting)
    return hang_verdict(None, idle, text, 0.6, [], branch, context.waiting)


def none_in_collective(context: JobContext) -> Verdict | None:
    """No rank is in a collective, and none makes progress."""
    if context.waiting or context.progressing or not context.idle:
        return None
    idle, known = _best_explained(context.idle)
    if known:
        who = "The process is" if context.world_size == 1 else phrases.ranks_phrase(rank_numbers(idle), "are")
        text = f"{who} blocked at {phrases.short_place(idle[0].row.where)}, waiting {_wait_text(idle)}."
        branch = None
        if others := [state for state in context.idle if state not in idle]:
            branch = deciding_condition(idle, others, context.world_size, context.sources)
        if context.absent:
            text += f" {_absent_text(context)}."
        return hang_verdict(known.cause, idle, text, min(known.confidence, ALONE), [known.finding], branch)
    first = context.idle[0]
    if context.absent:
        who = phrases.ranks_phrase(rank_numbers(context.idle), "are")
        text = f"{_absent_text(context)}. {who} blocked at {phrases.short_place(first.row.where)}, in no collective"
        text += f", waiting {_wait_text(context.idle)}." if first.wait_reason else "."
        return make_verdict("unknown", text, 0.5, ["job.rank-missing"], culprits=context.absent, waiting=[first])
    if all(state.wait_reason == WAITS_FOR_GPU for state in context.idle):
        text = (
            f"The process waits at {phrases.short_place(first.row.where)} {WAITS_FOR_GPU.what}. The samples do not "
            "show whether that work makes progress: run triage again in a minute."
        )
        return make_verdict("unknown", text, 0.3, waiting=[first])
    who = "The process is" if len(context.idle) == 1 else "Every rank is"
    text = f"{who} blocked at {phrases.short_place(first.row.where)}, in no collective"
    asleep = all(state.wait_reason and state.wait_reason.kind == "sleep" for state in context.idle)
    text += ", in a sleep: it continues when the sleep ends." if asleep else f". {UNKNOWN_REASON}."
    return make_verdict("unknown", text, 0.3, waiting=[first])


def _wait_text(idle: Sequence[RankState]) -> str:
    return idle[0].wait_reason.what if idle[0].wait_reason else ""


def _absent_text(context: JobContext) -> str:
    """Return ``Rank 1 of 2 is gone: it has no process here``."""
    who, one = phrases.ranks_phrase(rank_numbers(context.absent)), len(context.absent) == 1
    are_gone = f"{who} of {context.world_size} {'is' if one else 'are'} gone"
    return f"{are_gone}: {'it has' if one else 'they have'} no process here"


def _best_explained(idle: Sequence[RankState]) -> tuple[list[RankState], KnownWait | None]:
    """Return the ranks whose wait has the highest priority, with its meaning; all ranks if none is known."""
    for known in KNOWN_WAITS:
        if found := [state for state in idle if state.wait_reason and state.wait_reason.kind == known.kind]:
            return found, known
    return list(idle), None


def _separating_condition(context: JobContext, idle: Sequence[RankState]) -> Branch | None:
    """Return the rank test that separates the idle from the waiting ranks, if each side is at one place."""
    waiting = groups_by(context.waiting, lambda state: state.place)[0]
    if len(at_one_place(idle)) != len(idle):
        return None
    branch = deciding_condition(waiting, idle, context.world_size, context.sources)
    return branch if branch and (branch.sure or len(waiting) == len(context.waiting)) else None
