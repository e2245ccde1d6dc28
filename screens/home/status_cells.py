"""The box at a glance: a few cells made from the last look. Each cell is a fact, and the worst thing a judge said."""

from textual.content import Content

from ...app.probes.summary import SubjectSummary, machine_summary
from ...app.text.units import count_text
from ...app.triage.phrases import JOB_STATE_TEXT
from ...app.triage.types import JobReport
from ..shell.state import WizardState, job_name
from ..widgets.formatting import safe_content, status_sign

NAMES = ("GPUs", "network", "memory", "torch", "port")  # the subjects of app.facts, in reading order
NAME_WIDTH = 8


def status_cells(state: WizardState) -> list[SubjectSummary]:
    """The cells in reading order; what was not read yet has no text."""
    found = {fact.name: fact for fact in machine_summary(state.snapshot, state.checks)} if state.snapshot else {}
    return [*(found.get(name, SubjectSummary(name, "")) for name in NAMES), _job(state.reports)]


def status_cell(fact: SubjectSummary, ascii_only: bool, width: int) -> Content:
    """A fact on one line; where it does not fit, what is wrong goes before what is."""
    name = safe_content(fact.name.ljust(NAME_WIDTH), "$muted")
    if not fact.text:
        return Content.assemble(name, ("…", "$muted"))
    if not fact.status:
        return Content.assemble(name, safe_content(fact.text)).truncate(width, ellipsis=True)
    said = Content.assemble(status_sign(fact.status, ascii_only), safe_content(f" {fact.problem}"))
    whole = Content.assemble(name, safe_content(fact.text), " ", said)
    return whole if whole.cell_length <= width else Content.assemble(name, said).truncate(width, ellipsis=True)


def machine_line(state: WizardState) -> str:
    """This box in one line, for the title: host, GPUs, torch, CUDA."""
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


def job_line(report: JobReport) -> str:
    """A job in one line: script, ranks."""
    return f"{job_name(report.job)} · {count_text(report.world_size, 'rank')}"


def _job(reports: list[JobReport] | None) -> SubjectSummary:
    if reports is None:
        return SubjectSummary("job", "")
    if not reports:
        return SubjectSummary("job", "none of yours runs here")
    status, says = JOB_STATE_TEXT[reports[0].verdict.state]
    more = f", and {len(reports) - 1} more" if len(reports) > 1 else ""
    return SubjectSummary("job", job_line(reports[0]), status, says + more)
