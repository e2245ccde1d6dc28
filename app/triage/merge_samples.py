"""A job that is looked at again and again: what earlier looks add to the newest."""

from collections.abc import Mapping

import msgspec

from .types import JobReport, ProcessSamples, RankRow, Sample
from .verdict import judge_job

SLACK_S = 0.1  # ``since_s`` is rounded to tenths
SAME_START_S = 1.0  # the start of a process is reckoned back from now, a little otherwise each time


def extend_with_earlier_samples(before: JobReport | None, now: JobReport) -> JobReport:
    """``now``, judged with what the looks before still say: where a rank has not moved since them, it has stood still
    for that long; where it went on between two looks, it moves."""
    if before is None or before.job.id != now.job.id:
        return now
    rows = {(row.host, row.pid): row for row in before.ranks}
    known = {(seen.host, seen.process.pid): seen for seen in before.observed.seen}
    seen = [_with(each, known.get((each.host, each.process.pid)), rows) for each in now.observed.seen]
    return judge_job(msgspec.structs.replace(now.observed, seen=seen)) if seen != now.observed.seen else now


def _with(
    now: ProcessSamples, before: ProcessSamples | None, rows: Mapping[tuple[str, int | None], RankRow]
) -> ProcessSamples:
    """A process with the looks at it that came before."""
    if before is None or abs(now.process.started_at - before.process.started_at) > SAME_START_S:
        return now
    start = min((sample.at for sample in now.samples), default=0.0)
    kept = [sample for sample in _kept(before, rows.get((now.host, now.process.pid))) if sample.at < start]
    return msgspec.structs.replace(now, samples=kept + now.samples) if kept else now


def _kept(seen: ProcessSamples, row: RankRow | None) -> list[Sample]:
    """The looks that say all that a person still needs of them: the oldest since which nothing moved, and the last."""
    if not seen.samples:
        return []
    last = seen.samples[-1]
    still_s = row.since_s if row and row.since_s is not None and row.since_from == "samples" else 0.0
    first = next(sample for sample in seen.samples if sample.at >= last.at - still_s - SLACK_S)
    return [last] if first is last else [first, last]
