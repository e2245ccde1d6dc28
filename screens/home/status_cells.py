"""The machine at a glance: one cell for each subject, with its most severe check."""

from textual.content import Content

from ...app.probes.summary import SubjectSummary, machine_summary
from ...app.triage.job_text import job_line
from ...app.triage.phrases import JOB_STATE_TEXT
from ..shell.state import WizardState
from ..widgets.formatting import safe_content, status_sign

NAMES = ("GPUs", "network", "memory", "torch", "port")  # subjects of the machine summary, in reading order
NAME_WIDTH = 8
NO_JOB = "none of yours runs here"
LEAST_TEXT = 8  # columns of the name of a job, however long its state is


def status_cells(state: WizardState) -> list[SubjectSummary]:
    """Return the cells in reading order; a subject that was not read yet has no text."""
    found = {fact.name: fact for fact in machine_summary(state.snapshot, state.checks)} if state.snapshot else {}
    return [*(found.get(name, SubjectSummary(name, "")) for name in NAMES), _job(state)]


def most_important(facts: list[SubjectSummary], most: int) -> list[SubjectSummary]:
    """Return at most ``most`` cells in reading order: the job, then those with a problem, then the first ones."""
    ranked = sorted(facts, key=lambda fact: (fact.name in NAMES, not fact.status, facts.index(fact)))
    return sorted(ranked[:most], key=facts.index)


def status_cell(fact: SubjectSummary, ascii_only: bool, width: int) -> Content:
    """Render a cell on one line; if it is too long, only its problem is shown, which names the subject.

    For a job its name and its state are shown, each with an ellipsis where it is cut.
    """
    name = safe_content(fact.name.ljust(NAME_WIDTH), "$muted")
    if not fact.text:
        return Content.assemble(name, ("…", "$muted"))
    if not fact.status:
        return Content.assemble(name, safe_content(fact.text)).truncate(width, ellipsis=True)
    problem = Content.assemble(status_sign(fact.status, ascii_only), safe_content(f" {fact.problem}"))
    room = width - NAME_WIDTH - 1 - problem.cell_length
    if fact.name in NAMES and room < len(fact.text):
        return Content.assemble(name, problem).truncate(width, ellipsis=True)
    text = safe_content(fact.text).truncate(max(room, LEAST_TEXT), ellipsis=True)
    return Content.assemble(name, text, " ", problem).truncate(width, ellipsis=True)


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


def _job(state: WizardState) -> SubjectSummary:
    reports = state.reports
    if reports is None:
        return SubjectSummary("job", "")
    if not reports:
        return SubjectSummary("job", next(iter(state.other_jobs), NO_JOB))
    status, text = JOB_STATE_TEXT[reports[0].verdict.state]
    name = "job" if len(reports) == 1 else f"{len(reports)} jobs"
    return SubjectSummary(name, job_line(reports[0]), status, text)
