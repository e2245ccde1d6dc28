"""The running job that a case is about: one of which it has the script or the output, never any job of the machine."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..jobs.script_path import script_of_job
from ..jobs.types import Job
from ..logs.timeline import all_events
from ..logs.types import Timeline, TimelineEvent
from ..triage.sampling.last_output import log_files
from ..triage.types import JobReport

FileKey = tuple[int, int]  # device and inode: two paths of one file have the same


class CaseFiles(NamedTuple):
    """The logs and scripts that were given in a case, and the timeline of the logs. A pasted log has no file."""

    logs: Sequence[str] = ()
    scripts: Sequence[str] = ()
    timeline: Timeline | None = None


def jobs_of_case(reports: Sequence[JobReport], files: CaseFiles) -> list[JobReport]:
    """Return the jobs whose output or script was given, or whose script the errors of a log name.

    A job that began after the log was written, or runs although the log shows the end of all ranks, is another run of
    the script. Without any file, each job may be that of the case.
    """
    if not files.logs and not files.scripts:
        return list(reports)
    return [report for report in reports if _is_of(report.job, files)]


def jobs_for_fix(
    cause: str, reports: Sequence[JobReport], inspected: str = "", files: CaseFiles | None = None
) -> list[JobReport]:
    """Return the running jobs that a fix of a cause may be for. It is for one of them: of several, the user chooses.

    ``inspected``: the id of the job of the case. Another job comes after it if that one has the cause.
    """
    with_cause = [report for report in reports if report.verdict.cause == cause]
    if not inspected:
        return jobs_of_case(with_cause or reports, files or CaseFiles())
    own = [report for report in reports if report.job.id == inspected]
    if not own or own[0].verdict.cause == cause:
        return own
    return [*own, *(report for report in with_cause if report not in own)]


def jobs_of_file(reports: Iterable[JobReport], path: str) -> list[JobReport]:
    """Return the jobs that run a file, as their script or as a module on the stacks of their ranks."""
    wanted = _file_keys([path])
    return [each for each in reports if wanted & _file_keys([script_of_job(each.job), *each.observed.sources])]


def _is_of(job: Job, files: CaseFiles) -> bool:
    if not _file_keys(map(str, log_files(job))).isdisjoint(_file_keys(files.logs)):
        return True
    events = list(_events(files.timeline))
    if any(event.kind == "summary" for event in events):
        return False
    written_at = max((at for path in files.logs if (at := _modified_at(path))), default=None)
    if written_at is not None and written_at < max((process.started_at for process in job.processes), default=0.0):
        return False
    places = (event.values.get("location", "").rpartition(":")[0] for event in events)
    named = [str(Path(process.cwd) / path) for path in {*filter(None, places)} for process in job.processes[:1]]
    return not _file_keys([script_of_job(job)]).isdisjoint(_file_keys([*files.scripts, *named]))


def _modified_at(path: str) -> float | None:
    try:
        return Path(path).stat().st_mtime
    except (OSError, ValueError):
        return None


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
    """Yield the events of the last attempt."""
    for attempt in timeline.attempts[-1:] if timeline else []:
        yield from (event for _, event in all_events(attempt))
