"""Combine the verdict of the stacks with those of the Flight Recorder records and the logs."""

import msgspec

from ...evidence import EXPLAIN_DESYNC
from ..flight_recorder.report import verdict_from_records
from ..job_logs.judge import verdict_from_log
from ..types import Verdict
from .context import JobContext
from .divergence import deciding_condition

SEEN_BY_STACKS = {  # causes that the stacks show directly: they outweigh the history of the rank
    *("rank-paused", "python-lock", "external-service-block", "dataloader-stall", "rank0-slow-work"),
    *("exit-hang", "ranks-missing-at-init", "script-error"),
}
WEAKER = ("job.same-collective",)  # reported only if nothing else is known


def combine(verdict: Verdict, context: JobContext) -> Verdict:
    """Return the verdict of the stacks, extended by the records and the logs."""
    if verdict.state in ("progressing", "starting"):
        return verdict
    for other in (verdict_from_records(context.observed), verdict_from_log(context.observed)):
        if other is not None:
            verdict = merge_verdicts(verdict, other, context)
    return verdict


def merge_verdicts(verdict: Verdict, other: Verdict, context: JobContext) -> Verdict:
    """Merge the verdict of the stacks with another one.

    If both name the same culprits, each confirms the other. If not, a cause that the stacks show directly has
    priority, then the verdict with the higher confidence.
    """
    if verdict.state == "dead":
        return msgspec.structs.replace(
            verdict,
            cause=other.cause,
            culprits=other.culprits,
            collective=other.collective,
            where=other.where,
            why=f"{verdict.why} {other.why}",
            findings=_all_findings(verdict, other),
        )
    if other.culprits and set(verdict.culprits) == set(other.culprits):
        return _confirmed(verdict, other)
    narrows = bool(other.culprits) and set(other.culprits) < set(verdict.culprits)
    if verdict.cause in SEEN_BY_STACKS and not narrows:
        return verdict
    if other.confidence <= verdict.confidence and not (verdict.cause is None and other.cause):
        return verdict
    return _replaced(verdict, other, context, narrows)


def _confirmed(verdict: Verdict, other: Verdict) -> Verdict:
    cause = verdict.cause or other.cause
    if cause == "collective-desync" and other.cause in EXPLAIN_DESYNC:
        cause = other.cause
    if cause == "ranks-missing-at-init" and other.cause == "rank-died-survivors-wait":
        cause = other.cause  # the rank came, and its own error is known
    return msgspec.structs.replace(
        verdict,
        cause=cause,
        collective=verdict.collective or other.collective,
        where=verdict.where or other.where,
        branch=verdict.branch or other.branch,
        why=f"{verdict.why} {other.why}",
        confidence=max(verdict.confidence, other.confidence),
        findings=_all_findings(verdict, other),
    )


def _replaced(verdict: Verdict, other: Verdict, context: JobContext, narrows: bool) -> Verdict:
    """Return the other verdict, with the line and the condition that the stacks show."""
    culprits = [state for state in context.rank_states if state.rank in other.culprits]
    rest = [state for state in context.alive if state.rank not in other.culprits]
    located = next((state for state in culprits if state.row.where), None)
    branch = deciding_condition(culprits, rest, context.world_size, context.sources) if located and rest else None
    cause = other.cause
    if narrows and verdict.cause in EXPLAIN_DESYNC and cause in (None, "collective-desync"):
        cause = verdict.cause
    return msgspec.structs.replace(
        other,
        state="hung" if other.state == "unknown" else other.state,
        cause=cause or verdict.cause,
        where=located.row.where if located else other.where or verdict.where,
        branch=branch.where if branch and branch.sure else other.branch,
        collective=other.collective or verdict.collective,
        findings=_all_findings(verdict, other),
    )


def _all_findings(verdict: Verdict, other: Verdict) -> list[str]:
    kept = [finding for finding in verdict.findings if finding not in WEAKER]
    return list(dict.fromkeys([*kept, *other.findings]))
