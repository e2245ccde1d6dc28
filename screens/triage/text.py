"""Texts of the triage screen: the verdict, what could not be inspected, the jobs with their states."""

from collections.abc import Collection, Sequence
from pathlib import Path

from textual.content import Content

from ...app.fixes.job_facts import stuck_workers
from ...app.text.units import sure_text
from ...app.triage.job_text import (
    PAST_STATE,
    changed_source_notes,
    job_name,
    problems,
    sample_time,
    with_short_paths,
)
from ...app.triage.phrases import ENDED_STATE, JOB_STATE_TEXT
from ...app.triage.types import JobReport
from ...knowledge.schema import Knowledge
from ..widgets.formatting import join_lines, safe_content, status_sign
from ..widgets.source import split_location

GAP = "   "


def verdict_text(report: JobReport, knowledge: Knowledge, ascii_only: bool, ended: bool) -> Content:
    """Render the verdict: the state of the job, the reason, and the title of the cause."""
    found = report.verdict
    status, text = JOB_STATE_TEXT[found.state]
    if ended:
        at = sample_time(report)
        status, text = ENDED_STATE
        text = f"{text}; {f'at {at}' if at else 'before,'} it {PAST_STATE[found.state]}"
    has_ranking = ended or (found.state == "hung" and bool(found.cause))  # which says how sure the cause is
    head = Content.assemble(
        status_sign(status, ascii_only),
        safe_content(f" {text}", "bold"),
        ("" if has_ranking else f", {sure_text(found.confidence)}", "$muted"),
    )
    why = safe_content(with_short_paths(report))
    cause = knowledge.causes.get(found.cause or "")
    if cause is None:
        return join_lines(head, why)
    children = [safe_content(worker.text) for worker in stuck_workers(report)]
    at = split_location(found.branch or "")
    where = f" ({Path(at[0]).name}:{at[1]})" if at else ""
    return join_lines(
        head, why, *children, Content.assemble(("Cause: ", "$muted"), safe_content(cause.title + where, "bold"))
    )


def problem_line(report: JobReport, ascii_only: bool, ended: bool) -> Content | None:
    """Return the first problem and the number of the others, or None if there is none."""
    found = [line for line in problems(report) if not ended or line not in changed_source_notes(report)]
    if not found:
        return None
    more = f" (and {len(found) - 1} more, s shows them)" if len(found) > 1 else ""
    return Content.assemble(status_sign("warn", ascii_only), safe_content(f" {found[0]}{more}", "$warning"))


def jobs_line(
    reports: Sequence[JobReport], shown: int, ended: Collection[str], ascii_only: bool, width: int
) -> Content:
    """Render the jobs on one line with their states, the one that is shown in bold; if they do not fit, it is first."""
    parts: list[Content] = []
    for n, report in enumerate(reports):
        status, text = _state(report, ended)
        label = safe_content(f" {n + 1} {job_name(report)} {text}", "bold" if n == shown else "$muted")
        parts.append(Content.assemble(status_sign(status, ascii_only), label))
    whole = Content(GAP).join(parts)
    if whole.cell_length <= width:
        return whole
    parts = parts[shown:] + parts[:shown]
    for left_out in range(1, len(parts)):
        kept = parts[: len(parts) - left_out]
        line = Content(GAP).join([*kept, Content.styled(f"and {left_out} more", "$muted")])
        if line.cell_length <= width:
            return line
    return parts[0].truncate(width, ellipsis=True)


def state_text(report: JobReport, ended: Collection[str], ascii_only: bool) -> Content:
    """Render the state of a job with its sign."""
    status, text = _state(report, ended)
    return Content.assemble(status_sign(status, ascii_only), safe_content(f" {text}"))


def _state(report: JobReport, ended: Collection[str]) -> tuple[str, str]:
    return ENDED_STATE if report.job.id in ended else JOB_STATE_TEXT[report.verdict.state]
