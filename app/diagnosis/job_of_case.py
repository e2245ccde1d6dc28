"""The running job that a case is about: one of which it has the script or the output, never any job of the machine."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from ..jobs.script_path import script_of_job
from ..jobs.types import Job
from ..logs.types import Timeline, TimelineEvent
from ..triage.sampling.last_output import log_files
from ..triage.types import JobReport

FileKey = tuple[int, int]  # device and inode: two paths of one file have the same


def jobs_of_case(
    reports: Sequence[JobReport], given: Collection[str], timeline: Timeline | None = None
) -> list[JobReport]:
    """Return the jobs whose output or script was ``given``, or whose script the errors of a log name.

    ``given``: the logs and scripts of the case. Without any, each job may be that of the case.
    """
    if not given:
        return list(reports)
    named = {path for event in _events(timeline) if (path := event.values.get("location", "").rpartition(":")[0])}
    files = _file_keys(given)
    return [report for report in reports if _is_of(report.job, files, named)]


def jobs_for_fix(
    cause: str,
    reports: Sequence[JobReport],
    inspected: str = "",
    given: Collection[str] = (),
    timeline: Timeline | None = None,
) -> list[JobReport]:
    """Return the running jobs that a fix of a cause may be for. It is for one of them: of several, the user chooses.

    ``inspected``: the id of the job of the case. Another job comes after it if that one has the cause.
    """
    with_cause = [report for report in reports if report.verdict.cause == cause]
    if not inspected:
        return jobs_of_case(with_cause or reports, given, timeline)
    own = [report for report in reports if report.job.id == inspected]
    if not own or own[0].verdict.cause == cause:
        return own
    return [*own, *(report for report in with_cause if report not in own)]


def _is_of(job: Job, files: set[FileKey], named: set[str]) -> bool:
    """Return whether a job runs or writes one of the files, or those ``named`` in its output."""
    there = [str(Path(process.cwd) / path) for process in job.processes[:1] for path in named]
    return not _file_keys([script_of_job(job), *map(str, log_files(job))]).isdisjoint(files | _file_keys(there))


def _file_keys(paths: Iterable[str]) -> set[FileKey]:
    """Return the keys of the files that exist on this machine."""
    found: set[FileKey] = set()
    for path in filter(None, paths):
        try:
            status = Path(path).stat()
        except (OSError, ValueError):
            continue
        found.add((status.st_dev, status.st_ino))
    return found


def _events(timeline: Timeline | None) -> Iterator[TimelineEvent]:
    for attempt in timeline.attempts if timeline else []:
        yield from (event for track in attempt.tracks for event in track.events)
        yield from attempt.shared
