"""Sentences about one job: its name, its state, and what changed since the last sample."""

import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from ..jobs.control import JobStart
from ..system.paths import relative_to_cwd
from ..text.units import count_text
from . import rank_groups
from .phrases import DEATH_TEXT
from .types import JobReport, JobState

PAST_STATE: dict[JobState, str] = {
    "hung": "was hung",
    "progressing": "made progress",
    "dead": "had ended",
    "starting": "was starting",
    "unknown": "was in an unknown state",
}
PRESENT_STATE: dict[JobState, str] = {
    "hung": "looks hung now",
    "progressing": "makes progress now",
    "dead": "has ended",
    "starting": "is starting again",
    "unknown": "is in an unknown state now",
}
DETAIL_CHARACTERS = 160
NAMED_JOBS = 3  # of those that do not belong to a case


def job_name(report: JobReport) -> str:
    """Return a short name: the script of the job, else its program, else its id."""
    if script := rank_groups.script_name(report):
        return script
    command = next((process.command for process in report.job.processes), report.job.launcher_command)
    program = Path(command[0]).name if command else ""
    return report.job.id if not program or program.startswith(("python", "pypy")) else program


def job_line(report: JobReport) -> str:
    """Return ``train.py · 4 ranks``."""
    return f"{job_name(report)} · {count_text(report.world_size, 'rank')}"


def other_jobs_note(reports: Sequence[JobReport]) -> str:
    """Return that jobs of this machine do not count in a case about another one, or "" if there are none."""
    if not reports:
        return ""
    if len(reports) > 1:
        named = ", ".join(job_line(report) for report in reports[:NAMED_JOBS])
        more = f" and {len(reports) - NAMED_JOBS} more" if len(reports) > NAMED_JOBS else ""
        return f"{len(reports)} other jobs run here ({named}{more}), and do not count in this case: ddpwizard triage"
    job = reports[0].job
    pid = job.launcher_pid or next((process.pid for process in job.processes), None)
    inspect = f": ddpwizard triage --pid {pid}" if pid else ""
    return f"{job_line(reports[0])} also runs here. It is not the job of this case, and does not count{inspect}"


def restart_text(start: JobStart) -> str:
    """Return what starting a job again would do, for the row that is chosen: its command line, directory and output."""
    again = "Stop it, then start it again with the current files:"
    return f"{again}\n{shlex.join(start.command)}\nin {start.cwd}, output to {start.output}"


def stopped_text(ended: int, start: JobStart | None = None, pid: int = 0) -> str:
    """Return that a job was stopped, and as which process it was started again."""
    text = f"The job was stopped ({ended} {'process' if ended == 1 else 'processes'})."
    return f"{text} Started again as pid {pid}; output: {start.output}" if start else text


def hung_job_note(reports: Sequence[JobReport]) -> str:
    """Return a note that names the first hung job, or "" if none hangs."""
    hung = next((report for report in reports if report.verdict.state == "hung"), None)
    return f"{job_name(hung)} looks hung" if hung else ""


def slow_jobs_first(reports: Sequence[JobReport]) -> list[JobReport]:
    """Return the reports, those of jobs that one rank slows down first, then all others that make progress."""

    def order(report: JobReport) -> tuple[bool, bool]:
        return report.verdict.state != "progressing", report.verdict.cause is None

    return sorted(reports, key=order)


def slow_job_note(reports: Sequence[JobReport]) -> str:
    """Return a note that names the rank that sets the pace of a progressing job, or ""."""
    slow = next((report for report in reports if report.verdict.cause and report.verdict.state == "progressing"), None)
    return f"{job_name(slow)}: {rank_groups.ranks_label(slow.verdict.culprits)} sets the pace" if slow else ""


def sample_time(report: JobReport) -> str:
    """Return the time of the last sample, ``17:34:05``, or "" if no process was sampled."""
    times = [sample.at for seen in report.observed.seen for sample in seen.samples[-1:]]
    return time.strftime("%H:%M:%S", time.localtime(max(times))) if times else ""


def with_short_paths(report: JobReport) -> str:
    """Return the reason of the verdict with file names instead of full paths."""
    why = report.verdict.why
    places = {report.verdict.where, report.verdict.branch, *(row.where for row in report.ranks)}
    for path in {where.rpartition(":")[0] for where in places if where}:
        if path in why:
            why = why.replace(path, relative_to_cwd(path).rpartition("/")[2])
    return why


def problems(report: JobReport) -> list[str]:
    """Return what could not be inspected and which access is missing, each once."""
    unread: dict[str, list[int]] = {}
    for row in report.ranks:
        if row.state == "unreadable":
            unread.setdefault(row.note, []).append(row.rank)
    found = [f"{rank_groups.ranks_label(ranks)}: {note}" for note, ranks in unread.items() if note]
    return list(dict.fromkeys([*changed_source_notes(report), *found, *report.observed.problems]))


def changed_source_notes(report: JobReport) -> list[str]:
    """Return a line for each source file that was changed after the ranks of the job had started."""
    return [
        f"{relative_to_cwd(path).rpartition('/')[2]} was changed at {time.strftime('%H:%M:%S', time.localtime(at))}, "
        "after this job had started: the job still runs the old code; stop it and start it again"
        for path, at in report.observed.changed_sources.items()
    ]


def end_text(report: JobReport) -> str:
    """Report that a job has ended, and which rank ended first and how if the samples show it."""
    deaths = sorted(report.observed.deaths, key=lambda death: (death.at is None, death.at or 0.0))
    culprits = set(report.verdict.culprits)
    gone = [
        row.rank
        for row in report.ranks
        if row.state in ("zombie", "dead") or (row.state == "missing" and row.rank in culprits)
    ]
    if deaths:
        who = f"rank {deaths[0].rank}" if deaths[0].rank is not None else f"pid {deaths[0].pid}"
        detail = f"{deaths[0].where}: {deaths[0].what[:DETAIL_CHARACTERS]}"
        first = f"First {who}: {DEATH_TEXT[deaths[0].how]} ({detail})."
    elif gone and len(gone) < len(report.ranks):
        first = f"First {rank_groups.ranks_label(gone)}: ended before {sample_time(report)}, the reason is not known."
    else:
        first = "No rank was seen to end first."
    return f"{job_name(report)} has ended. {first}"


def changes_since(before: JobReport, now: JobReport) -> str:
    """Return what differs from the sample before, or ""."""
    old, new = before.verdict, now.verdict
    if old.state != new.state:
        resumed = (old.state, new.state) == ("hung", "progressing")
        return f"{job_name(now)} {PAST_STATE[old.state]}, {'moves again' if resumed else PRESENT_STATE[new.state]}."
    if new.state in ("hung", "dead") and (old.cause, old.culprits, old.where) != (new.cause, new.culprits, new.where):
        return f"{job_name(now)}: the verdict has changed since {sample_time(before)}."
    return ""
