"""The machine at a glance: one cell for each subject, with its most severe check."""

from textual.content import Content

from ...app.probes.summary import SubjectSummary, machine_summary
from ...app.triage.job_text import job_line
from ...app.triage.phrases import JOB_STATE_TEXT
from ...app.triage.types import JobReport
from ..shell.state import WizardState
from ..widgets.formatting import safe_content, status_sign

NAMES = ("GPUs", "network", "memory", "torch", "port")  # subjects of the machine summary, in reading order
NAME_WIDTH = 8
LEAST_TEXT = 8  # columns of the name of a job that is cut to make room for its state


def status_cells(state: WizardState) -> list[SubjectSummary]:
    """Return the cells in reading order; a subject that was not read yet has no text."""
    found = {fact.name: fact for fact in machine_summary(state.snapshot, state.checks)} if state.snapshot else {}
    return [*(found.get(name, SubjectSummary(name, "")) for name in NAMES), _job(state.reports)]


def most_important(facts: list[SubjectSummary], most: int) -> list[SubjectSummary]:
    """Return at most ``most`` cells in reading order: the job, then those with a problem, then the first ones."""
    ranked = sorted(facts, key=lambda fact: (fact.name != "job", not fact.status, facts.index(fact)))
    return sorted(ranked[:most], key=facts.index)


def status_cell(fact: SubjectSummary, ascii_only: bool, width: int) -> Content:
    """Render a cell on one line; if it is too long, only its problem is shown, for a job with the cut name."""
    name = safe_content(fact.name.ljust(NAME_WIDTH), "$muted")
    if not fact.text:
        return Content.assemble(name, ("…", "$muted"))
    if not fact.status:
        return Content.assemble(name, safe_content(fact.text)).truncate(width, ellipsis=True)
    problem = Content.assemble(status_sign(fact.status, ascii_only), safe_content(f" {fact.problem}"))
    room = width - NAME_WIDTH - 1 - problem.cell_length
    least = LEAST_TEXT if fact.name == "job" else len(fact.text)  # a problem of the machine names its subject
    if room < min(least, len(fact.text)):
        return Content.assemble(name, problem).truncate(width, ellipsis=True)
    return Content.assemble(name, safe_content(fact.text).truncate(room, ellipsis=True), " ", problem)


def machine_line(state: WizardState) -> str:
    """Return the machine on one line, for the title: host, GPUs, torch, CUDA."""
    snapshot = state.snapshot
    if snapshot is None:
        return ""
    parts = [snapshot.host]
    if snapshot.gpus and snapshot.gpus.gpus:
        parts += [fact.text for fact in machine_summary(snapshot, ()) if fact.name == "GPUs"]
    if snapshot.software and snapshot.software.torch:
        parts.append(f"torch {snapshot.software.torch}")
        if snapshot.software.cuda and "+" not in snapshot.software.torch:
            parts.append(f"cu{snapshot.software.cuda.replace('.', '')}")
    return " · ".join(parts)


def _job(reports: list[JobReport] | None) -> SubjectSummary:
    if reports is None:
        return SubjectSummary("job", "")
    if not reports:
        return SubjectSummary("job", "none of yours runs here")
    status, text = JOB_STATE_TEXT[reports[0].verdict.state]
    more = f", {len(reports) - 1} more" if len(reports) > 1 else ""
    return SubjectSummary("job", job_line(reports[0]), status, text + more)
