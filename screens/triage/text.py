"""What the triage screen says of a job: the verdict, what could not be looked at, what changed between two looks."""

import time
from collections.abc import Collection, Sequence

from textual.content import Content

from ...app.triage import rank_groups
from ...app.triage.phrases import DEATH_TEXT, JOB_STATE_TEXT
from ...app.triage.types import JobReport, JobState
from ...knowledge.schema import Knowledge
from ..widgets.formatting import join_lines, percent, relative_path, safe_content, status_sign
from ..widgets.source import split_location

WAS: dict[JobState, str] = {
    "hung": "was hung",
    "progressing": "was moving",
    "dead": "had ended",
    "starting": "was starting",
    "unknown": "could not be judged",
}
IS: dict[JobState, str] = {
    "hung": "looks hung now",
    "progressing": "moves now",
    "dead": "has ended",
    "starting": "is starting again",
    "unknown": "cannot be judged now",
}
GAP = "   "


def job_title(report: JobReport) -> str:
    """What a job is called in a sentence."""
    return rank_groups.script_name(report) or report.job.id


def sample_time(report: JobReport) -> str:
    """The time of the last look, ``17:34:05``; empty where no process was looked at."""
    times = [sample.at for seen in report.observed.seen for sample in seen.samples[-1:]]
    return time.strftime("%H:%M:%S", time.localtime(max(times))) if times else ""


def verdict_text(report: JobReport, knowledge: Knowledge, ascii_only: bool, ended: bool) -> Content:
    """The answer: what the job is, why, and the cause in a few words."""
    found = report.verdict
    status, says = JOB_STATE_TEXT[found.state]
    if ended:
        status, says = "skip", f"has ended; at {sample_time(report)} it {WAS[found.state]}"
    head = Content.assemble(
        status_sign(status, ascii_only),
        safe_content(f" {says}", "bold"),
        ("" if ended else f" {percent(found.confidence).strip()}", "$muted"),
    )
    why = safe_content(with_short_paths(found.why, report))
    cause = knowledge.causes.get(found.cause or "")
    if cause is None:
        return join_lines(head, why)
    at = split_location(found.branch or "")
    where = f" (line {at[1]})" if at else ""
    return join_lines(head, why, Content.assemble(("Cause: ", "$muted"), safe_content(cause.title + where, "bold")))


def with_short_paths(why: str, report: JobReport) -> str:
    """The verdict's words with the paths as short as they can be."""
    places = {report.verdict.where, report.verdict.branch, *(row.where for row in report.ranks)}
    for path in {where.rpartition(":")[0] for where in places if where}:
        if path in why:
            why = why.replace(path, relative_path(path).rpartition("/")[2])
    return why


def problems(report: JobReport) -> list[str]:
    """What could not be looked at, and what is missing for it; each once."""
    unread: dict[str, list[int]] = {}
    for row in report.ranks:
        if row.state == "unreadable":
            unread.setdefault(row.note, []).append(row.rank)
    found = [f"{rank_groups.ranks_label(ranks)}: {note}" for note, ranks in unread.items() if note]
    return list(dict.fromkeys([*found, *report.observed.problems]))


def problem_line(report: JobReport, ascii_only: bool) -> Content | None:
    """The first of them as a line, with how many more there are."""
    found = problems(report)
    if not found:
        return None
    more = f" (and {len(found) - 1} more, s shows them)" if len(found) > 1 else ""
    return Content.assemble(status_sign("warn", ascii_only), safe_content(f" {found[0]}{more}", "$warning"))


def jobs_line(reports: Sequence[JobReport], shown: int, ended: Collection[str], ascii_only: bool) -> Content:
    """All jobs on one line with their states; the one that is shown in bold."""
    parts: list[Content] = []
    for n, report in enumerate(reports):
        status, says = ("skip", "has ended") if report.job.id in ended else JOB_STATE_TEXT[report.verdict.state]
        label = safe_content(f" {n + 1} {job_title(report)} {says}", "bold" if n == shown else "$muted")
        parts.append(Content.assemble(status_sign(status, ascii_only), label))
    return Content(GAP).join(parts)


def state_text(report: JobReport, ended: Collection[str], ascii_only: bool) -> Content:
    """A job's state, with its sign."""
    status, says = ("skip", "has ended") if report.job.id in ended else JOB_STATE_TEXT[report.verdict.state]
    return Content.assemble(status_sign(status, ascii_only), safe_content(f" {says}"))


def end_text(report: JobReport) -> str:
    """That a job has ended, and which rank ended first and how, as far as the looks at it tell."""
    deaths = sorted(report.observed.deaths, key=lambda death: (death.at is None, death.at or 0.0))
    culprits = report.verdict.culprits
    gone = [
        row.rank
        for row in report.ranks
        if row.state in ("zombie", "dead") or (row.state == "missing" and row.rank in culprits)
    ]
    if deaths:
        who = f"rank {deaths[0].rank}" if deaths[0].rank is not None else f"pid {deaths[0].pid}"
        first = f"First {who}: {DEATH_TEXT[deaths[0].how]} ({deaths[0].where}: {deaths[0].what[:160]})."
    elif gone and len(gone) < len(report.ranks):
        first = f"First {rank_groups.ranks_label(gone)}: had ended by {sample_time(report)}; how is not known."
    else:
        first = "No rank was seen to end before the others."
    return f"{job_title(report)} has ended. {first}"


def changes_since_last(before: JobReport, now: JobReport) -> str:
    """What is otherwise than at the look before, or empty text."""
    old, new = before.verdict, now.verdict
    if old.state != new.state:
        says = "moves again" if (old.state, new.state) == ("hung", "progressing") else IS[new.state]
        return f"{job_title(now)} {WAS[old.state]}, {says}."
    if new.state in ("hung", "dead") and (old.cause, old.culprits, old.where) != (new.cause, new.culprits, new.where):
        return f"{job_title(now)}: the verdict is another one than at {sample_time(before)}."
    return ""
