"""Rules for ranks that all wait in a collective: at different places, in pairs that do not meet, or all in the same."""

from collections.abc import Sequence
from typing import NamedTuple

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
    deciding_condition,
    exited_loop,
    first_divergence,
    rank_dependent_bound,
    skipping_condition,
)
from .group_cycle import group_cycle
from .groups_and_peers import group_of, mutual_waiters, order_by_rank

LEFT_FIRST = 0.65  # of as many that left a loop as are in it
COMPARED_PLACES = 8  # of ranks at many places: the largest


class DivergedRanks(NamedTuple):
    """Ranks that their data parted. ``left``: those that left a loop the others are in; ``by_rank``: a rank test has
    set how many rounds it takes."""

    cause: str
    confidence: float
    text: str
    branch: Branch | None
    finding: str
    left: Sequence[RankState] = ()
    by_rank: bool = False


def unmatched_p2p(scene: JobContext) -> Verdict | None:
    """Sends and receives that do not meet."""
    if not scene.waiting or scene.idle or scene.unread:
        return None
    paired = [stand for stand in scene.waiting if stand.collective in POINT_TO_POINT]
    others = [stand for stand in scene.waiting if stand not in paired]
    if not paired:
        return None
    if others and len(paired) > len(others) and len(at_one_place(others)) == len(others):
        return _left_the_pairs(scene, others, paired)
    if others:
        together = len(at_one_place(paired)) == len(paired)
        branch = deciding_condition(paired, others, scene.world_size, scene.sources) if together else None
        confidence = 0.7 if len(paired) == len(others) else 0.8
        text = f"{waiting_by_place(paired)}. {waiting_sentence(others)}: nobody there answers."
        return hang_verdict(
            "p2p-deadlock", paired, text, confidence, ["job.pairs-do-not-meet"], confirmed_branch(branch)
        )
    tied = [stand for stand in mutual_waiters(scene.waiting, scene.world_size, scene.sources) if stand in paired]
    branch = None
    groups = groups_by(tied, lambda stand: stand.place)
    if len(groups) == 2:
        branch = confirmed_branch(deciding_condition(groups[1], groups[0], scene.world_size, scene.sources))
    text = f"{waiting_by_place(tied)}: each waits for the other to answer."
    return hang_verdict("p2p-deadlock", tied, text, TIED, ["job.pairs-do-not-meet"], branch)


def _left_the_pairs(scene: JobContext, others: list[RankState], paired: list[RankState]) -> Verdict:
    """Most ranks send and receive; a few went into a collective instead."""
    branch = confirmed_branch(deciding_condition(others, paired, scene.world_size, scene.sources))
    text = f"{waiting_by_place(paired)}. {waiting_sentence(others)}, which the others do not join."
    if branch and branch.taken_by == rank_numbers(others) and not branch.both_sides and branch.how != "raise":
        findings = ["job.ranks-in-different-collectives", "job.culprit-line-under-rank-test"]
        return hang_verdict("rank-conditional-collective", others, text, 0.85, findings, branch, paired)
    return hang_verdict("p2p-deadlock", others, text, 0.6, ["job.pairs-do-not-meet"], branch, paired)


def different_collectives(scene: JobContext) -> Verdict | None:
    """Ranks of one group wait in different collectives."""
    if scene.idle or len(scene.waiting) < 2:
        return None
    waiting = mutual_waiters(scene.waiting, scene.world_size, scene.sources)
    groups = _apart(scene, waiting)
    if len(groups) < 2:
        return None
    if knot := group_cycle(scene, groups):
        return knot
    majority, rest = groups[0], groups[1]
    tied = len(majority) == len(rest)
    branch = deciding_condition(rest, majority, scene.world_size, scene.sources)
    culprits = [stand for group in groups[1:] for stand in group]
    if tied:
        culprits = [stand for group in groups for stand in group]
        if branch and branch.sure and not branch.both_sides and len(groups) == 2:
            culprits = next(group for group in groups if rank_numbers(group) == branch.taken_by)
            majority = next(group for group in groups if group is not culprits)
            rest, tied = culprits, False
    return _mismatch(scene, culprits, majority, rest, branch, tied)


def _mismatch(
    scene: JobContext,
    culprits: list[RankState],
    majority: list[RankState],
    rest: list[RankState],
    branch: Branch | None,
    tied: bool,
) -> Verdict:
    came = ""
    is_ahead = not (branch and branch.both_sides) and _is_ahead(majority[0], rest[0])
    if majority[0].place == rest[0].place and majority[0].frames != rest[0].frames:
        came, theirs = f", {_called_from(rest[0], majority[0])}", _called_from(majority[0], rest[0])
        then = f"{phrases.ranks_phrase(rank_numbers(majority), 'have' if is_ahead else 'wait')} "
        then += f"gone on to the one {theirs} and will never join" if is_ahead else f"there too, {theirs}"
    elif is_ahead:
        then = (
            f"{phrases.ranks_phrase(rank_numbers(majority), 'have')} gone on to "
            f"{phrases.places_text(majority)} and will never join"
        )
    elif majority[0].place == rest[0].place:
        then = f"{phrases.ranks_phrase(rank_numbers(majority), 'wait')} there too, in another group"
    else:
        then = f"{waiting_sentence(majority)}, which is another call: neither side joins the other"
    text = f"{waiting_sentence(at_one_place(rest))}{came}. {then}."
    findings = ["job.ranks-in-different-collectives"]
    cause, confidence = "collective-desync", 0.75
    parted = None if branch and branch.sure else _parted_by_data(scene, at_one_place(rest), majority)
    bounded = parted is not None and parted.by_rank
    if branch and branch.both_sides and _in_another_order(scene, branch):
        confidence = 0.9 if branch.sure else 0.8
        findings.append("job.collectives-in-another-order")
    elif branch and branch.how != "raise" and not bounded:
        cause, confidence = "rank-conditional-collective", 0.97 if branch.sure else 0.7
        findings.append("job.culprit-line-under-rank-test")
    elif branch and not bounded:
        findings.append("job.error-caught-on-the-way")
    elif parted:
        cause, confidence, text, branch = parted.cause, parted.confidence, parted.text, parted.branch
        findings.append(parted.finding)
        if tied and parted.left and (parted.by_rank or len(culprits) == 2):
            culprits, confidence, tied = list(parted.left), LEFT_FIRST, False
    return hang_verdict(cause, culprits, text, min(confidence, TIED) if tied else confidence, findings, branch)


def _called_from(one: RankState, other: RankState) -> str:
    """The call on whose line two stacks that end at one place part."""
    frame = one.frames[min(first_divergence(one.frames, other.frames), len(one.frames) - 1)]
    return f"called from {phrases.short_place(f'{frame.path}:{frame.line}')}"


def _is_ahead(one: RankState, other: RankState) -> bool:
    """Whether ``one`` stands further on in the function in which they part."""
    at = first_divergence(one.frames, other.frames)
    if at >= min(len(one.frames), len(other.frames)):
        return one.frames != other.frames
    mine, theirs = one.frames[at], other.frames[at]
    return (mine.path, mine.function) != (theirs.path, theirs.function) or mine.line >= theirs.line


def _parted_by_data(scene: JobContext, rest: list[RankState], majority: list[RankState]) -> DivergedRanks | None:
    """A loop that one side has left, or cut short, for reasons that are not its rank."""
    for gone, inside in ((rest, majority), (majority, rest)):
        if left := exited_loop(gone[0], inside[0], scene.sources):
            loop, ended_by = left
            text = (
                f"{phrases.ranks_phrase(rank_numbers(gone), 'have')} left the loop at {phrases.short_place(loop)} and "
                f"{'waits' if len(gone) == 1 else 'wait'} in {phrases.places_text(gone)}. "
                f"{phrases.ranks_phrase(rank_numbers(inside), 'are')} still in it, in {phrases.places_text(inside)}."
            )
            bound = rank_dependent_bound(gone, inside, scene.world_size, scene.sources)
            branch = bound or (Branch(ended_by, rank_numbers(gone), False) if ended_by else None)
            return DivergedRanks("uneven-inputs", 0.85, text, branch, "job.loop-ended-early", gone, bound is not None)
    if skip := skipping_condition(rest[0], majority[0], scene.sources):
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
        return DivergedRanks("uneven-inputs", 0.6, text, branch, "job.loop-ended-early")
    return None


def same_collective(scene: JobContext) -> Verdict | None:
    """Every rank that can be seen waits at one place."""
    if not scene.waiting or scene.idle:
        return None
    first = scene.waiting[0]
    if scene.unread:
        who = phrases.ranks_phrase(rank_numbers(scene.waiting), "wait")
        unread = f"{len(scene.unread)} other{'s' if len(scene.unread) > 1 else ''} could not be seen"
        text = f"{who} in {phrases.place_text(first)}; {unread}: {scene.unread[0].row.note}."
        return make_verdict("unknown", text, 0.3, waiting=[first])
    if scene.world_size == 1:
        text = f"The process waits in {phrases.place_text(first)}, for ranks that were not found here."
        return hang_verdict(None, [], text, 0.4, [], waiting=[first])
    if order := order_by_rank(first, scene.sources):
        chosen, is_choice = order
        text = (
            f"{waiting_sentence(scene.waiting)}, but on different groups: "
            f"the rank decides at {phrases.short_place(chosen)} in which order they come."
        )
        branch = Branch(chosen, rank_numbers(scene.waiting), False) if is_choice else None
        return hang_verdict("group-order-cycle", scene.waiting, text, TIED, ["job.groups-in-another-order"], branch)
    text = (
        f"Every rank waits in {phrases.place_text(first)}, and nothing moved for {first.row.since_s or 0:.0f} s. "
        "The ranks agree, so look at the network and the GPUs between them next."
    )
    return hang_verdict(None, [], text, 0.5, ["job.same-collective"], waiting=scene.waiting)


def _apart(scene: JobContext, waiting: Sequence[RankState]) -> list[list[RankState]]:
    """The ranks by place and group; places that belong together (both blocks of a condition hold the same collective)
    are one."""

    def key(stand: RankState) -> object:
        return *stand.place, group_of(stand, scene.world_size, scene.sources)

    groups = groups_by(waiting, key)
    merged: list[list[RankState]] = []
    for group in groups:
        for other in merged[:COMPARED_PLACES]:
            if _belong_together(scene, group, other):
                other += group
                break
        else:
            merged.append(list(group))
    if len(merged) == 1 and len(groups) == 1 and waiting[0].collective:
        merged = groups_by(waiting, lambda stand: tuple(stand.frames))  # one helper, called from different lines
    return sorted(merged, key=lambda group: (-len(group), group[0].rank))


def _belong_together(scene: JobContext, one: list[RankState], other: list[RankState]) -> bool:
    if one[0].collective != other[0].collective or one[0].collective in POINT_TO_POINT:
        return False
    if group_of(one[0], scene.world_size, scene.sources) != group_of(other[0], scene.world_size, scene.sources):
        return False
    branch = deciding_condition(one, other, scene.world_size, scene.sources)
    return bool(branch and branch.both_sides)


def _in_another_order(scene: JobContext, branch: Branch) -> bool:
    """Whether both blocks of a condition communicate, and neither merely does more than the other."""
    path, _, line = branch.where.rpartition(":")
    source = scene.sources[path]
    blocks = source.blocks_of_condition(int(line))
    if blocks is None:
        return False
    one, other = (collectives_in(block, source.module) for block in blocks)
    return bool(one and other) and not (_is_part_of(one, other) or _is_part_of(other, one))


def _is_part_of(some: Sequence[str], all_: Sequence[str]) -> bool:
    """Whether ``some`` stand in ``all_`` in the same order."""
    rest = iter(all_)
    return all(name in rest for name in some)
