"""The stacks say where each rank is, recorder and logs what it did: one verdict of both."""

import msgspec

from ..flight_recorder.report import verdict_from_records
from ..job_logs.judge import verdict_from_log
from ..types import Verdict
from .context import JobContext
from .divergence import deciding_condition

SEEN_BY_STACKS = {  # what the stacks show of a culprit itself: what it did before says less
    *("rank-paused", "python-lock", "external-service-block", "dataloader-stall", "rank0-slow-work"),
    *("exit-hang", "ranks-missing-at-init"),
}
SPECIFIC = {
    "rank-conditional-collective",
    "uneven-inputs",
    "p2p-deadlock",
    "group-order-cycle",
}  # beside a plain desync
WEAKER = ("job.same-collective",)  # said only where nothing else is known


def combine(verdict: Verdict, scene: JobContext) -> Verdict:
    """The verdict of the stacks with what the recorder and the logs add to it."""
    if verdict.state in ("progressing", "starting"):
        return verdict
    for other in (verdict_from_records(scene.observed), verdict_from_log(scene.observed)):
        if other is not None:
            verdict = merge_verdicts(verdict, other, scene)
    return verdict


def merge_verdicts(verdict: Verdict, other: Verdict, scene: JobContext) -> Verdict:
    """What both say together. Where they name the same ranks they make each other surer; where they do not, what the
    stacks show of a culprit itself goes first, then the surer one."""
    if verdict.state == "dead":
        return msgspec.structs.replace(
            verdict,
            cause=other.cause,
            culprits=other.culprits,
            collective=other.collective,
            where=other.where,
            why=f"{verdict.why} {other.why}",
            findings=_both(verdict, other),
        )
    if other.culprits and set(verdict.culprits) == set(other.culprits):
        return _agreed(verdict, other)
    within = bool(other.culprits) and set(other.culprits) < set(verdict.culprits)
    if verdict.cause in SEEN_BY_STACKS and not within:
        return verdict
    if other.confidence <= verdict.confidence and not (verdict.cause is None and other.cause):
        return verdict
    return _taken(verdict, other, scene, within)


def _agreed(verdict: Verdict, other: Verdict) -> Verdict:
    cause = verdict.cause or other.cause
    if cause == "collective-desync" and other.cause in SPECIFIC:
        cause = other.cause
    return msgspec.structs.replace(
        verdict,
        cause=cause,
        collective=verdict.collective or other.collective,
        where=verdict.where or other.where,
        branch=verdict.branch or other.branch,
        why=f"{verdict.why} {other.why}",
        confidence=max(verdict.confidence, other.confidence),
        findings=_both(verdict, other),
    )


def _taken(verdict: Verdict, other: Verdict, scene: JobContext, within: bool) -> Verdict:
    """The other's verdict, with the line and the condition that the stacks show."""
    culprits = [stand for stand in scene.stands if stand.rank in other.culprits]
    rest = [stand for stand in scene.living if stand.rank not in other.culprits]
    standing = next((stand for stand in culprits if stand.row.where), None)
    branch = deciding_condition(culprits, rest, scene.world_size, scene.sources) if standing and rest else None
    cause = other.cause
    if within and verdict.cause in SPECIFIC and cause in (None, "collective-desync"):
        cause = verdict.cause
    return msgspec.structs.replace(
        other,
        state="hung" if other.state == "unknown" else other.state,
        cause=cause or verdict.cause,
        where=standing.row.where if standing else other.where or verdict.where,
        branch=branch.where if branch and branch.sure else other.branch,
        collective=other.collective or verdict.collective,
        findings=_both(verdict, other),
    )


def _both(verdict: Verdict, other: Verdict) -> list[str]:
    kept = [finding for finding in verdict.findings if finding not in WEAKER]
    return list(dict.fromkeys([*kept, *other.findings]))
