"""Merge earlier samples of a job into its latest report."""

import msgspec

from .types import JobReport, ProcessSamples, RankRow, Sample
from .verdict import judge_job

SLACK_S = 0.1  # ``since_s`` is rounded to tenths
SAME_START_S = 1.0  # start times are computed from the age of a process and vary slightly


def extend_with_earlier_samples(before: JobReport | None, now: JobReport) -> JobReport:
    """Return ``now``, judged again with the samples of an earlier report of the same job.

    A rank without progress since the earlier samples was blocked for that long; one that went on between two samples
    makes progress.
    """
    if before is None or before.job.id != now.job.id:
        return now
    rows = {(row.host, row.pid): row for row in before.ranks}
    earlier = {(seen.host, seen.process.pid): seen for seen in before.observed.seen}
    seen = [
        _with_earlier(each, earlier.get((each.host, each.process.pid)), rows.get((each.host, each.process.pid)))
        for each in now.observed.seen
    ]
    return judge_job(msgspec.structs.replace(now.observed, seen=seen)) if seen != now.observed.seen else now


def keep_first_sources(first: JobReport | None, now: JobReport) -> JobReport:
    """Return ``now``, judged with the source files as ``first`` has them if its ranks are still those of ``first``.

    A running process keeps the code that it started with, whatever becomes of its files. A file with the text that it
    had when it was first seen has not changed, whenever it was written.
    """
    if first is None or not _same_processes(first, now):
        return now
    kept = {path: first.sources.get(path, text) for path, text in now.sources.items()}
    earlier = first.observed.changed_sources
    changed = {
        path: at
        for path, at in now.observed.changed_sources.items()
        if path in earlier or now.sources.get(path) != first.sources.get(path)
    }
    if kept == now.sources and changed == now.observed.changed_sources:
        return now
    return judge_job(msgspec.structs.replace(now.observed, sources=kept, changed_sources=changed))


def add_first_sources(first: JobReport | None, now: JobReport) -> JobReport:
    """Return ``now`` with every source file of the job as it was when it was first seen."""
    if first is None or not _same_processes(first, now):
        return now
    old = first.observed
    new_changes = {path: at for path, at in now.observed.changed_sources.items() if path not in old.sources}
    observed = msgspec.structs.replace(
        now.observed, sources=now.sources | old.sources, changed_sources=new_changes | old.changed_sources
    )
    return msgspec.structs.replace(now, observed=observed)


def _same_processes(one: JobReport, other: JobReport) -> bool:
    started = {(seen.host, seen.process.pid): seen.process.started_at for seen in one.observed.seen}
    other_started = {(seen.host, seen.process.pid): seen.process.started_at for seen in other.observed.seen}
    both = started.keys() & other_started.keys()
    return bool(both) and all(abs(started[key] - other_started[key]) <= SAME_START_S for key in both)


def _with_earlier(now: ProcessSamples, before: ProcessSamples | None, row: RankRow | None) -> ProcessSamples:
    """Return a process with its earlier samples, unless it was restarted since."""
    if before is None or abs(now.process.started_at - before.process.started_at) > SAME_START_S:
        return now
    start = min((sample.at for sample in now.samples), default=0.0)
    kept = [sample for sample in _needed_samples(before, row) if sample.at < start]
    return msgspec.structs.replace(now, samples=kept + now.samples) if kept else now


def _needed_samples(seen: ProcessSamples, row: RankRow | None) -> list[Sample]:
    """Return the samples that are still needed: the oldest since the last progress, and the last."""
    if not seen.samples:
        return []
    last = seen.samples[-1]
    still_s = row.since_s if row and row.since_s is not None and row.since_from == "samples" else 0.0
    first = next(sample for sample in seen.samples if sample.at >= last.at - still_s - SLACK_S)
    return [last] if first is last else [first, last]
