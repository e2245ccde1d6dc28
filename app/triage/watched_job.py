"""A job that is watched: its verdict over all samples, and the last verdict that lasted."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from . import phrases
from .rules.straggler import SAMPLES_FOR_SHARES, pace_setter
from .slow_place import PlaceCounts, add_places, slow_place
from .time_shares import History, extend_history, time_shares
from .types import JobReport, Verdict

SLOW_RANK_CONFIDENCE = 0.75


class WatchedJob(NamedTuple):
    """A job as of its last sample.

    ``history`` has the activities of its ranks since it makes progress. ``lasting`` is the last report whose verdict
    was given twice in a row: what a job shows while it is being ended is not its verdict. ``places`` counts the places
    of each rank in the same samples as the history.
    """

    report: JobReport
    history: History
    lasting: JobReport
    places: Mapping[int, PlaceCounts]


def follow_job(before: WatchedJob | None, now: JobReport) -> WatchedJob:
    """Take a new report of a job."""
    goes_on = now.verdict.state == "progressing"
    history = extend_history(before.history if before and goes_on else {}, now)
    counted = before.places if before and goes_on else {}
    places = add_places(counted, before.report if counted and before else None, now)
    report = _with_slow_rank(now, history, places) if goes_on and now.verdict.cause is None else now
    if before is None or _verdict_key(before.report.verdict) == _verdict_key(report.verdict):
        return WatchedJob(report, history, report, places)
    return WatchedJob(report, history, before.lasting, places)


def report_at_end(watched: WatchedJob, last: JobReport) -> JobReport:
    """Return the report of a job that has ended: a hang that lasted, not the progress of ranks that are being ended."""
    hung = watched.lasting.verdict.state == "hung"
    return watched.lasting if hung and not last.verdict.is_failure else last


def _verdict_key(verdict: Verdict) -> tuple[object, ...]:
    return verdict.state, verdict.cause, verdict.culprits


def _with_slow_rank(report: JobReport, history: History, places: Mapping[int, PlaceCounts]) -> JobReport:
    """Return the report with the verdict that one rank sets the pace, if the shares of time show one."""
    rows = [row for row in time_shares(history) if row.samples >= SAMPLES_FOR_SHARES]
    waits = {row.rank: row.shares.get("collective", 0.0) for row in rows}
    slow = pace_setter(waits)
    if slow is None:
        return report
    others = [rank for rank in waits if rank != slow]
    row = next(row for row in report.ranks if row.rank == slow)
    where = slow_place(places[row.rank], (places[rank] for rank in others)) or row.where
    share = round(100 * sum(waits[rank] for rank in others) / len(others))
    text = (
        f"The job runs at the pace of rank {row.rank}: {share}% of the samples of "
        f"{phrases.mid_sentence(phrases.ranks_phrase(others))} show them waiting in a collective, and "
        f"{round(100 * waits[row.rank])}% of those of rank {row.rank}. It was most often at "
        f"{phrases.short_place(where)}."
    )
    verdict = msgspec.structs.replace(
        report.verdict,
        cause="straggler-rank",
        culprits=[slow],
        where=where,
        why=text,
        confidence=SLOW_RANK_CONFIDENCE,
        findings=["job.straggler"],
    )
    return msgspec.structs.replace(report, verdict=verdict)
