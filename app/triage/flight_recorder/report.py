"""Turn Flight Recorder records into triage results: rank rows, a verdict, a report."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...errors import UserError
from ...jobs.types import Job
from ..phrases import ranks_phrase as named
from ..types import JobReport, Observation, RankRecord, RankRow, Verdict
from .analyse import analyse_records
from .loader import rank_in_name
from .types import Finding, FindingKind, RecorderVerdict, Records

CAUSES: dict[FindingKind, str | None] = {
    "op": "collective-desync",
    "order": "collective-desync",
    "size": "collective-desync",
    "batch": "collective-desync",
    "dtype": "collective-desync",
    "wrong_group": "collective-desync",
    "extra": "rank-conditional-collective",
    "p2p": "p2p-deadlock",
    "group_cycle": "group-order-cycle",
}
FINDINGS: dict[FindingKind, str] = {
    "missing": "job.recorder-rank-behind",
    "first_call": "job.recorder-no-call-yet",
    "silent": "job.recorder-rank-silent",
    "op": "job.recorder-op-mismatch",
    "order": "job.recorder-order-mismatch",
    "size": "job.recorder-size-mismatch",
    "batch": "job.recorder-batch-mismatch",
    "dtype": "job.recorder-dtype-mismatch",
    "wrong_group": "job.recorder-wrong-group",
    "p2p": "job.recorder-pairs-wait",
    "group_cycle": "job.recorder-group-cycle",
    "extra": "job.recorder-extra-call",
    "unfinished": "job.recorder-unfinished",
    "together": "job.recorder-agrees",
}
GONE = ("", "Z")
SHOWN_FINDINGS = 3


def report_from_records(records: Records) -> JobReport:
    """Build the report of a job from its dumps alone.

    Raises:
        UserError: None of the dumps could be read.
    """
    if not records.records:
        first = next(iter(records.problems), "none was given")
        raise UserError(
            f"no Flight Recorder dump could be read: {first}", "give the folder into which the ranks wrote their dumps"
        )
    found = analyse_records(records.records)
    unreadable = {
        rank: text for text in records.problems if (rank := rank_in_name(Path(text.partition(": ")[0]))) is not None
    }
    known = {record.rank: record for record in records.records}
    latest_s = max((max(record.created_ns, default=0) for record in records.records), default=0) / 1e9
    rows = [
        row_from_record(known[rank], latest_s) if rank in known else _absent(rank, unreadable.get(rank))
        for rank in range(found.world_size)
    ]
    nodes = sorted({record.host for record in records.records if record.host})
    job = Job(
        launcher="recorder",
        launcher_pid=None,
        launcher_command=[],
        launcher_cwd=records.folder,
        world_size=found.world_size,
        master="",
        host=nodes[0] if nodes else "",
        processes=[],
    )
    verdict = _verdict(found) or Verdict(
        state="unknown",
        cause=None,
        culprits=[],
        collective=None,
        where=None,
        branch=None,
        why="According to the records all ranks made the same calls and have finished them.",
        confidence=0.3,
    )
    return JobReport(
        launcher=job.launcher,
        world_size=job.world_size,
        nodes=nodes,
        ranks=rows,
        verdict=verdict,
        observed=Observation(job=job, seen=[], records=list(records.records), problems=records.problems),
    )


def verdict_from_records(observed: Observation) -> Verdict | None:
    """Return the verdict from the records of a live job, or None if they show no disagreement.

    A rank that is behind gets no cause here: its stack or its death shows the cause.
    """
    if not observed.records:
        return None
    found = analyse_records(observed.records, world_size=observed.job.world_size)
    verdict = _verdict(found)
    if verdict is None or verdict.cause or not verdict.culprits:
        return verdict
    gone = {death.rank for death in observed.deaths} | {
        seen.process.rank for seen in observed.seen if seen.samples and seen.samples[-1].process_state in GONE
    }
    if set(verdict.culprits) <= gone:
        return msgspec.structs.replace(verdict, cause="rank-died-survivors-wait")
    return verdict


def add_record_to_row(row: RankRow, record: RankRecord) -> RankRow:
    """Return the row of a live rank with the group, sequence number and waiting time from its record."""
    recorded = row_from_record(record)
    if recorded.seq is None or row.state not in ("waiting", "blocked_io", "stopped"):
        return row
    return msgspec.structs.replace(
        row,
        collective=row.collective or recorded.collective,
        group=recorded.group,
        seq=recorded.seq,
        since_s=recorded.since_s if recorded.since_s is not None else row.since_s,
        since_from="recorder" if recorded.since_s is not None else row.since_from,
    )


def row_from_record(record: RankRecord, now_s: float | None = None) -> RankRow:
    """Return the row of a rank from its record: in its first call that is not done, or in none.

    ``now_s``: the time of the last call of any rank, used if the record has no time of its own.
    """
    at = next(record.pending, None)
    last = len(record.call) - 1 if at is None else at
    call = record.calls[record.call[last]] if record.call else None
    since_s = None
    now_s = record.taken_at if record.taken_at is not None else now_s
    if at is not None and now_s is not None and record.created_ns[at]:
        since_s = round(max(now_s - record.created_ns[at] / 1e9, 0.0), 1)
    group = record.groups[call.group] if call else None
    note = ""
    if at is None:
        note = f"in no collective; the last was {call.collective}" if call else "in no collective"
    return RankRow(
        rank=record.rank,
        host=record.host,
        state="running" if at is None else "waiting",
        where=call.where or None if call else None,
        function=call.function or None if call else None,
        collective=call.collective if call and at is not None else None,
        group=(group.title or group.name) if group and at is not None else None,
        seq=record.seq[at] if at is not None else None,
        since_s=since_s,
        since_from="recorder",
        note=note,
    )


def _absent(rank: int, problem: str | None) -> RankRow:
    return RankRow(
        rank=rank,
        host="",
        state="unreadable" if problem else "missing",
        since_from="recorder",
        note=problem.partition(": ")[2] if problem else "left no record",
    )


def _verdict(found: RecorderVerdict) -> Verdict | None:
    first = [finding for finding in found.findings if not finding.follows]
    if not first:
        return None
    sure = max(first, key=lambda finding: (finding.confidence, len(finding.culprits)))
    causes = [cause for finding in first if (cause := CAUSES.get(finding.kind))]
    return Verdict(
        state="hung",
        cause=causes[0] if causes else None,
        culprits=found.culprits,
        collective=sure.collective,
        where=_where(sure),
        branch=None,
        why=_verdict_text(first, len(found.findings) - len(first)),
        confidence=found.confidence,
        findings=list(dict.fromkeys(FINDINGS[finding.kind] for finding in first)),
    )


def _where(finding: Finding) -> str | None:
    """Return the culprit's line, or None; for a rank that is absent, the line of its last recorded call."""
    of_culprits = [side.where for side in finding.sides if set(side.ranks) & set(finding.culprits) and side.where]
    return next(iter([*of_culprits, *(side.where for side in finding.sides if side.where)]), None)


def _verdict_text(first: Sequence[Finding], follow: int) -> str:
    text = " ".join(finding.words for finding in first[:SHOWN_FINDINGS])
    for side in first[0].sides:
        if side.collective is None and side.where:
            text += f" {named(side.ranks)} last communicated at {Path(side.where).name}."
            break
    if follow:
        text += f" {follow} more {'wait is a consequence' if follow == 1 else 'waits are consequences'} of that."
    return text
