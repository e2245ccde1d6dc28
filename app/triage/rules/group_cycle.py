"""Ranks that wait in different groups, each for ranks that wait in another."""

from ...training_script.collectives import POINT_TO_POINT
from ..rank_activity.rank_state import RankState
from ..types import Verdict
from .context import TIED, JobContext, confirmed_branch, hang_verdict, waiting_by_place
from .divergence import deciding_condition, diverging_branch
from .groups_and_peers import WORLD, group_of, pending_for_group

IN_GROUPS = "these are different groups, and each waits for a rank that waits in another"


def group_cycle(scene: JobContext, groups: list[list[RankState]]) -> Verdict | None:
    """Ranks wait on different groups, each for ranks that wait on another."""
    one_of_each = [group[0] for group in groups]
    keys = {group_of(stand, scene.world_size, scene.sources) for stand in one_of_each}
    if len(keys) < 2 or WORLD in keys or any(s.collective in POINT_TO_POINT for s in one_of_each):
        return None
    if len(groups) == 2 and groups[0][0].place == groups[1][0].place:
        return None  # one call, on a wrong group
    tied = [stand for group in groups for stand in group]
    branch = None
    if len(groups) == 2:
        branch = confirmed_branch(deciding_condition(groups[1], groups[0], scene.world_size, scene.sources))
        if branch and not branch.both_sides:
            if not (crossing := _crossing(scene, groups[0], groups[1])):
                return None
            return _crossed(scene, groups, *crossing)
    text = f"{waiting_by_place(tied)}: {IN_GROUPS}."
    culprits, confidence = tied, TIED
    if len(groups) == 2 and len(groups[0]) > len(groups[1]):
        culprits, confidence = groups[1], 0.75
    return hang_verdict("group-order-cycle", culprits, text, confidence, ["job.groups-in-another-order"], branch)


def _crossing(scene: JobContext, ones: list[RankState], others: list[RankState]) -> tuple[RankState, RankState] | None:
    """One of each side that has the other's group still before it: a rank test that keeps some ranks out of a
    collective merely says who belongs to its group."""
    world, sources = scene.world_size, scene.sources

    def goes_on_to(group: list[RankState], other: list[RankState]) -> RankState | None:
        awaited = group_of(other[0], world, sources)
        return next((stand for stand in group if pending_for_group(stand, awaited, world, sources)), None)

    one, other = goes_on_to(ones, others), goes_on_to(others, ones)
    return (one, other) if one and other else None


def _crossed(scene: JobContext, groups: list[list[RankState]], one: RankState, other: RankState) -> Verdict:
    """Two groups of which each is the other's next; where a rank test has them in another order, the fewer that it
    sends their own way are the culprits."""
    tied = [stand for group in groups for stand in group]
    text = f"{waiting_by_place(tied)}: {IN_GROUPS}."
    culprits, confidence = [one, other], TIED
    fork = diverging_branch([one], [other], scene.world_size, scene.sources)
    if fork:
        apart = [stand for stand in tied if stand is one or stand.place == one.place]
        rest = [stand for stand in tied if stand not in apart]
        if len(apart) != len(rest):
            culprits, confidence = min(apart, rest, key=len), 0.75
    return hang_verdict("group-order-cycle", culprits, text, confidence, ["job.groups-in-another-order"], fork)
