"""The box at a glance: a few cells made from the last look. Each cell is a fact, and the worst thing a judge said."""

from textual.content import Content

from ..app.facts import Fact, box
from ..app.job.types import JobReport
from ..app.probes.units import count_text
from .desk import Desk, job_name
from .widgets.words import mark, text

NAMES = ("GPUs", "network", "memory", "torch", "port")  # the subjects of app.facts, in reading order
NAME_WIDTH = 8
JOB_SAYS = {
    "hung": ("warn", "looks hung"),
    "progressing": ("ok", "moving"),
    "dead": ("fail", "has ended"),
    "starting": ("running", "starting"),
    "unknown": ("unknown", "cannot tell yet"),
}


def cells(desk: Desk) -> list[Fact]:
    """The cells in reading order; what was not read yet has no text."""
    found = {fact.name: fact for fact in box(desk.snapshot, desk.checks)} if desk.snapshot else {}
    return [*(found.get(name, Fact(name, "")) for name in NAMES), _job(desk.reports)]


def cell(fact: Fact, ascii_only: bool, width: int) -> Content:
    """A fact on one line; where it does not fit, what is wrong goes before what is."""
    name = text(fact.name.ljust(NAME_WIDTH), "$muted")
    if not fact.text:
        return Content.assemble(name, ("…", "$muted"))
    if not fact.status:
        return Content.assemble(name, text(fact.text)).truncate(width, ellipsis=True)
    said = Content.assemble(mark(fact.status, ascii_only), text(f" {fact.problem}"))
    whole = Content.assemble(name, text(fact.text), " ", said)
    return whole if whole.cell_length <= width else Content.assemble(name, said).truncate(width, ellipsis=True)


def facts_line(desk: Desk) -> str:
    """This box in one line, for the title: host, GPUs, torch, CUDA."""
    snapshot = desk.snapshot
    if snapshot is None:
        return ""
    parts = [snapshot.host]
    if snapshot.gpus and snapshot.gpus.gpus:
        parts += [fact.text for fact in box(snapshot, ()) if fact.name == "GPUs"]
    if snapshot.software and snapshot.software.torch:
        parts.append(f"torch {snapshot.software.torch}")
        if snapshot.software.cuda and "+" not in snapshot.software.torch:
            parts.append(f"cu{snapshot.software.cuda.replace('.', '')}")
    return " · ".join(parts)


def job_line(report: JobReport) -> str:
    """A job in one line: script, ranks."""
    return f"{job_name(report.job)} · {count_text(report.world_size, 'rank')}"


def _job(reports: list[JobReport] | None) -> Fact:
    if reports is None:
        return Fact("job", "")
    if not reports:
        return Fact("job", "none of yours runs here")
    status, says = JOB_SAYS[reports[0].verdict.state]
    more = f", and {len(reports) - 1} more" if len(reports) > 1 else ""
    return Fact("job", job_line(reports[0]), status, says + more)
