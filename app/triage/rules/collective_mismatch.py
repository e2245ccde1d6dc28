"""Rules for ranks that wait in collectives: different ones, unmatched sends and receives, or all in the same."""

from collections.abc import Sequence
from typing import NamedTuple

from ...text.units import seconds_text
from ...training_script.collectives import POINT_TO_POINT
from ...training_script.line_queries import collectives_in
from .. import phrases
from ..rank_activity.rank_state import RankState
from ..types import Verdict
from .context import (
    TIED,
    JobContext,
    at_one_place,
    confirmed_branch,
    groups_by,
    hang_verdict,
    make_verdict,
    rank_numbers,
    waiting_by_place,
    waiting_sentence,
)
from .divergence import (
    Branch,
    data_ends,
    deciding_condition,
    exited_loop,
    first_divergence,
    is_data_loop,
    is_equally_long,
    rank_dependent_bound,
    skipping_condition,
)
from .group_cycle import group_cycle
from .groups_and_peers import group_of, mutual_waiters, order_by_rank
from .unequal_calls import unequal_call

EXITED_FIRST = 0.65  # the confidence if as many ranks left a loop as are in it
COMPARED_PLACES = 8  # the largest groups, if the ranks are at many places


class DivergedRanks(NamedTuple):
    """Ranks separated by their data, as a part of a verdict.

    ``left``: those that left a loop the others are in; ``by_rank``: a rank test sets its number of iterations.
    """

    cause: str
    confidence: float
    text: str
    branch: Branch | None
    finding: str
    left: Sequence[RankState] = ()
    by_rank: bool = False


def unmatched_p2p(context: JobContext) -> Verdict | None:
    """Sends and receives do not match."""
    if not context.waiting or context.idle or context.unreadable:
        return None
    paired = [state for state in context.waiting if state.collective in POINT_TO_POINT]
    others = [state for state in context.waiting if state not in paired]
    if not paired:
        return None
    if others and len(paired) > len(others) and len(at_one_place(others)) == len(others):
        return _ranks_left_p2p(context, others, paired)
    if others:
        together = len(at_one_place(paired)) == len(paired)
        branch = deciding_condition(paired, others, context.world_size, context.sources) if together else None
        confidence = 0.7 if len(paired) == len(others) else 0.8
        text = f"{waiting_by_place(paired)}. {waiting_sentence(others)}: no matching send or receive."
        return hang_verdict(
            "p2p-deadlock", paired, text, confidence, ["job.pairs-do-not-meet"], confirmed_branch(branch)
        )
    tied = [state for state in mutual_waiters(context.waiting, context.world_size, context.sources) if state in paired]
    branch = None
    groups = groups_by(tied, lambda state: state.place)
    if len(groups) == 2:
        branch = confirmed_branch(deciding_condition(groups[1], groups[0], context.world_size, context.sources))
    text = f"{waiting_by_place(tied)}: each waits for the other."
    return hang_verdict("p2p-deadlock", tied, text, TIED, ["job.pairs-do-not-meet"], branch)


def _ranks_left_p2p(context: JobContext, others: list[RankState], paired: list[RankState]) -> Verdict:
    """Most ranks are in a send or receive; a few entered a collective instead."""
    branch = confirmed_branch(deciding_condition(others, paired, context.world_size, context.sources))
    text = f"{waiting_by_place(paired)}. {waiting_sentence(others)}, which the others do not join."
    if branch and branch.taken_by == rank_numbers(others) and not branch.both_sides and branch.how != "raise":
        findings = ["job.ranks-in-different-collectives", "job.culprit-line-under-rank-test"]
        return hang_verdict("rank-conditional-collective", others, text, 0.85, findings, branch, paired)
    return hang_verdict("p2p-deadlock", others, text, 0.6, ["job.pairs-do-not-meet"], branch, paired)


def different_collectives(context: JobContext) -> Verdict | None:
    """Ranks of one group wait in different collectives."""
    if context.idle or len(context.waiting) < 2:
        return None
    waiting = mutual_waiters(context.waiting, context.world_size, context.sources)
    groups = _groups_by_call(context, waiting)
    if len(groups) < 2:
        return None
    if cycle := group_cycle(context, groups):
        return cycle
    majority, rest = groups[0], groups[1]
    tied = len(majority) == len(rest)
    branch = deciding_condition(rest, majority, context.world_size, context.sources)
    culprits = [state for group in groups[1:] for state in group]
    if tied:
        culprits = [state for group in groups for state in group]
        if branch and branch.sure and not branch.both_sides and len(groups) == 2:
            culprits = next(group for group in groups if rank_numbers(group) == branch.taken_by)
            majority = next(group for group in groups if group is not culprits)
            rest, tied = culprits, False
    return _mismatch(context, culprits, majority, rest, branch, tied)


def _mismatch(
    context: JobContext,
    culprits: list[RankState],
    majority: list[RankState],
    rest: list[RankState],
    branch: Branch | None,
    tied: bool,
) -> Verdict:
    caller = ""
    they_wait = "it waits" if len(majority) == 1 else "they wait"
    is_ahead = not (branch and branch.both_sides) and _is_ahead(majority[0], rest[0])
    if majority[0].place == rest[0].place and majority[0].frames != rest[0].frames:
        caller, theirs = f", {_called_from(rest[0], majority[0])}", _called_from(majority[0], rest[0])
        who = phrases.ranks_phrase(rank_numbers(majority), "do" if is_ahead else "wait")
        then = f"{who} not join it: {they_wait} in the one {theirs}" if is_ahead else f"{who} there too, {theirs}"
    elif is_ahead:
        who = phrases.ranks_phrase(rank_numbers(majority), "do")
        then = f"{who} not join it: {they_wait} in {phrases.places_text(majority)}"
    elif majority[0].place == rest[0].place:
        then = f"{phrases.ranks_phrase(rank_numbers(majority), 'wait')} there too, in another group"
    else:
        then = f"{waiting_sentence(majority)}. These are two different calls, and neither side joins the other"
    text = f"{waiting_sentence(at_one_place(rest))}{caller}. {then}."
    findings = ["job.ranks-in-different-collectives"]
    cause, confidence = "collective-desync", 0.75
    diverged = None if branch and branch.sure else _diverged_by_data(context, at_one_place(rest), majority)
    bounded = diverged is not None and diverged.by_rank
    if branch and branch.both_sides and _has_different_order(context, branch):
        confidence = 0.9 if branch.sure else 0.8
        findings.append("job.collectives-in-another-order")
    elif branch and branch.how != "raise" and not bounded:
        cause, confidence = "rank-conditional-collective", 0.97 if branch.sure else 0.7
        findings.append("job.culprit-line-under-rank-test")
    elif branch and not bounded:
        findings.append("job.error-caught-on-the-way")
    elif diverged:
        cause, confidence, text, branch = diverged.cause, diverged.confidence, diverged.text, diverged.branch
        findings.append(diverged.finding)
        if tied and diverged.left and (diverged.by_rank or len(culprits) == 2):
            culprits, confidence, tied = list(diverged.left), EXITED_FIRST, False
    elif all(state.is_in_sharded_step for state in (*majority, *rest)):
        cause = "data-dependent-forward"
    return hang_verdict(cause, culprits, text, min(confidence, TIED) if tied else confidence, findings, branch)


def _called_from(one: RankState, other: RankState) -> str:
    """Return the call at which two stacks that end at one place diverge."""
    frame = one.frames[min(first_divergence(one.frames, other.frames), len(one.frames) - 1)]
    return f"called from {phrases.short_place(f'{frame.path}:{frame.line}')}"


def _is_ahead(one: RankState, other: RankState) -> bool:
    """Return whether ``one`` is further on in the function in which they diverge."""
    at = first_divergence(one.frames, other.frames)
    if at >= min(len(one.frames), len(other.frames)):
        return one.frames != other.frames
    frame, other_frame = one.frames[at], other.frames[at]
    return (frame.path, frame.function) != (other_frame.path, other_frame.function) or frame.line >= other_frame.line


def _diverged_by_data(context: JobContext, rest: list[RankState], majority: list[RankState]) -> DivergedRanks | None:
    """Find a loop that one side has left, or cut short, for a reason other than its rank."""
    for exited, inside in ((rest, majority), (majority, rest)):
        if left := exited_loop(exited[0], inside[0], context.sources):
            loop, ended_by = left
            text = (
                f"{phrases.ranks_phrase(rank_numbers(exited), 'have')} left the loop at {phrases.short_place(loop)} "
                f"and {'waits' if len(exited) == 1 else 'wait'} in {phrases.places_text(exited)}. "
                f"{phrases.ranks_phrase(rank_numbers(inside), 'are')} still in it, in {phrases.places_text(inside)}."
            )
            bound = rank_dependent_bound(exited, inside, context.world_size, context.sources)
            branch = bound or (Branch(ended_by, rank_numbers(exited), False) if ended_by else None)
            cause, finding = "uneven-inputs", "job.loop-ended-early"
            if not bound and ended_by and ended_by != loop and data_ends(loop, inside[0], context.sources) is False:
                cause, finding = "per-rank-decision", "job.loop-left-by-condition"
                text = f"{text} Each rank leaves it by the condition at {phrases.short_place(ended_by)} on its own."
            elif not bound and is_equally_long(loop, inside[0], context.sources):
                cause, finding = "collective-desync", "job.loop-counts-differ"
                text = f"{text} It has as many rounds on every rank: some rank left out a call, or made one more."
            elif not is_data_loop(loop, inside[0], context.sources):
                cause, finding = "collective-desync", "job.loop-counts-differ"
                if bound:
                    cause, finding = "rank-conditional-collective", "job.culprit-line-under-rank-test"
            return DivergedRanks(cause, 0.85, text, branch, finding, exited, bound is not None)
    if skip := skipping_condition(rest[0], majority[0], context.sources):
        place, is_handler = skip
        who = phrases.ranks_phrase(rank_numbers(rest), "have")
        branch = Branch(place, rank_numbers(rest), False)
        if is_handler:
            caught = f"past an error caught at {phrases.short_place(place)}"
            text = f"{who} gone on to {phrases.places_text(rest)}, {caught}. {waiting_sentence(majority)}."
            return DivergedRanks("collective-desync", 0.7, text, branch, "job.error-caught-on-the-way")
        text = (
            f"{who} skipped part of the loop at {phrases.short_place(place)}, to {phrases.places_text(rest)}. "
            f"{waiting_sentence(majority)}."
        )
        return DivergedRanks("per-rank-decision", 0.6, text, branch, "job.diverged-by-own-data")
    return None


def same_collective(context: JobContext) -> Verdict | None:
    """Every readable rank waits at one place."""
    if not context.waiting or context.idle:
        return None
    first = context.waiting[0]
    if context.unreadable:
        who = phrases.ranks_phrase(rank_numbers(context.waiting), "wait")
        others = f"{len(context.unreadable)} other{'s' if len(context.unreadable) > 1 else ''} could not be inspected"
        text = f"{who} in {phrases.place_text(first)}; {others}: {context.unreadable[0].row.note}."
        return make_verdict("unknown", text, 0.3, waiting=[first])
    if context.world_size == 1:
        whom = "its GPU, as it is the only rank" if context.is_single_rank else "ranks that were not found here"
        text = f"The process waits in {phrases.place_text(first)}, for {whom}."
        return hang_verdict(None, [], text, 0.4, [], waiting=[first])
    if order := order_by_rank(first, context.sources):
        chosen, is_choice = order
        text = (
            f"{waiting_sentence(context.waiting)}, but on different groups: "
            f"their order depends on the rank, see {phrases.short_place(chosen)}."
        )
        branch = Branch(chosen, rank_numbers(context.waiting), False) if is_choice else None
        return hang_verdict("group-order-cycle", context.waiting, text, TIED, ["job.groups-in-another-order"], branch)
    if found := unequal_call(context):
        who = phrases.ranks_phrase(rank_numbers(found.callers), "call")
        text = (
            f"Every rank waits in {phrases.place_text(first)}, but in different calls: {phrases.mid_sentence(who)} "
            f"{found.collective} under the condition at {phrases.short_place(found.branch.where)}, and the others do "
            "not. Since then each rank is in a call for which another one does not wait."
        )
        findings = ["job.culprit-line-under-rank-test"]
        return hang_verdict("rank-conditional-collective", found.callers, text, 0.7, findings, found.branch)
    waited = seconds_text(first.row.since_s or 0, whole=True)
    text = (
        f"Every rank waits in {phrases.place_text(first)}, without progress for {waited}. Either its arguments (root, "
        f"shape) differ by rank, or an earlier call was not made by every rank, or {_faulty_hardware(context)} fails."
    )
    return hang_verdict(None, [], text, 0.5, ["job.same-collective"], waiting=context.waiting)


def _faulty_hardware(context: JobContext) -> str:
    samples = [seen.samples[-1] for seen in context.observed.seen if seen.samples]
    return "the network or a GPU" if any(sample.gpu for sample in samples) else "the network"


def _groups_by_call(context: JobContext, waiting: Sequence[RankState]) -> list[list[RankState]]:
    """Group the ranks by place and process group.

    Places that belong together (both blocks of a condition have the same collective) count as one.
    """

    def key(state: RankState) -> object:
        return *state.place, group_of(state, context.world_size, context.sources)

    groups = groups_by(waiting, key)
    merged: list[list[RankState]] = []
    for group in groups:
        for other in merged[:COMPARED_PLACES]:
            if _from_one_condition(context, group, other):
                other += group
                break
        else:
            merged.append(list(group))
    if len(merged) == 1 and len(groups) == 1 and waiting[0].collective:
        merged = groups_by(waiting, lambda state: tuple(state.frames))  # one helper, called from different lines
    return sorted(merged, key=lambda group: (-len(group), group[0].rank))


def _from_one_condition(context: JobContext, one: list[RankState], other: list[RankState]) -> bool:
    if one[0].collective != other[0].collective or one[0].collective in POINT_TO_POINT:
        return False
    if group_of(one[0], context.world_size, context.sources) != group_of(other[0], context.world_size, context.sources):
        return False
    branch = deciding_condition(one, other, context.world_size, context.sources)
    return bool(branch and branch.both_sides)


def _has_different_order(context: JobContext, branch: Branch) -> bool:
    """Return whether both blocks of a condition communicate, and neither only has more calls than the other."""
    path, _, line = branch.where.rpartition(":")
    source = context.sources[path]
    blocks = source.blocks_of_condition(int(line))
    if blocks is None:
        return False
    one, other = (collectives_in(block, source.module) for block in blocks)
    return bool(one and other) and not (_is_subsequence(one, other) or _is_subsequence(other, one))


def _is_subsequence(some: Sequence[str], all_: Sequence[str]) -> bool:
    """Return whether ``some`` is a subsequence of ``all_``."""
    rest = iter(all_)
    return all(name in rest for name in some)
