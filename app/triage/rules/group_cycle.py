"""Detect ranks that wait in different process groups, each for ranks that wait in another."""

from ...training_script.collectives import POINT_TO_POINT
from ..rank_activity.rank_state import RankState
from ..types import Verdict
from .context import TIED, JobContext, confirmed_branch, hang_verdict, waiting_by_place
from .divergence import deciding_condition, diverging_branch
from .groups_and_peers import WORLD, group_of, pending_for_group

IN_GROUPS = "these are different groups, and each waits for a rank that waits in another"


def group_cycle(context: JobContext, groups: list[list[RankState]]) -> Verdict | None:
    """Build the verdict if ranks wait in different groups, each for ranks that wait in another; else None."""
    one_of_each = [group[0] for group in groups]
    keys = {group_of(state, context.world_size, context.sources) for state in one_of_each}
    if len(keys) < 2 or WORLD in keys or any(s.collective in POINT_TO_POINT for s in one_of_each):
        return None
    if len(groups) == 2 and groups[0][0].place == groups[1][0].place:
        return None  # one call, with the wrong group
    tied = [state for group in groups for state in group]
    branch = None
    if len(groups) == 2:
        branch = confirmed_branch(deciding_condition(groups[1], groups[0], context.world_size, context.sources))
        if branch and not branch.both_sides:
            if not (crossing := _crossing(context, groups[0], groups[1])):
                return None
            return _crossed(context, groups, *crossing)
    text = f"{waiting_by_place(tied)}: {IN_GROUPS}."
    culprits, confidence = tied, TIED
    if len(groups) == 2 and len(groups[0]) > len(groups[1]):
        culprits, confidence = groups[1], 0.75
    return hang_verdict("group-order-cycle", culprits, text, confidence, ["job.groups-in-another-order"], branch)


def _crossing(
    context: JobContext, ones: list[RankState], others: list[RankState]
) -> tuple[RankState, RankState] | None:
    """Return a rank of each side that has yet to call a collective of the other side's group, or None.

    A rank test that keeps some ranks out of a collective only defines the members of its group: without such ranks it
    is no cycle.
    """
    world, sources = context.world_size, context.sources

    def next_in(group: list[RankState], other: list[RankState]) -> RankState | None:
        awaited = group_of(other[0], world, sources)
        return next((state for state in group if pending_for_group(state, awaited, world, sources)), None)

    one, other = next_in(ones, others), next_in(others, ones)
    return (one, other) if one and other else None


def _crossed(context: JobContext, groups: list[list[RankState]], one: RankState, other: RankState) -> Verdict:
    """Build the verdict for two groups of which each is the other's next.

    If a rank test sends some ranks through them in another order, the smaller side is the culprit.
    """
    tied = [state for group in groups for state in group]
    text = f"{waiting_by_place(tied)}: {IN_GROUPS}."
    culprits, confidence = [one, other], TIED
    branch = diverging_branch([one], [other], context.world_size, context.sources)
    if branch:
        with_one = [state for state in tied if state is one or state.place == one.place]
        rest = [state for state in tied if state not in with_one]
        if len(with_one) != len(rest):
            culprits, confidence = min(with_one, rest, key=len), 0.75
    return hang_verdict("group-order-cycle", culprits, text, confidence, ["job.groups-in-another-order"], branch)
