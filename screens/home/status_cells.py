"""The machine at a glance: one cell for each subject, with its most severe check."""

from textual.content import Content
from textual.geometry import Region, Size

from ...app.probes.summary import SubjectSummary, machine_summary
from ...app.triage.job_text import job_line
from ...app.triage.phrases import JOB_STATE_TEXT
from ..shell.base import WizardScreen
from ..shell.state import WizardState
from ..widgets.base import BaseWidget
from ..widgets.formatting import join_lines, safe_content, status_sign

NAMES = ("GPUs", "network", "memory", "torch", "port")  # subjects of the machine summary, in reading order
NAME_WIDTH = 8
NO_JOB = "none of yours runs here"
TWO_COLUMNS = 76  # from this width the cells are shown in two columns, below it only the most important ones
CELLS = 3  # rows of cells
LEAST_TEXT = 8  # columns of the name of a job, however long its state is


class StatusCells(BaseWidget):
    """The machine at a glance, in two columns if there is room."""

    DEFAULT_CSS = "StatusCells { height: auto; width: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[Content] = []

    def show_changes(self) -> None:
        """Repaint the rows that have changed."""
        before, now = self._rows, self._make_rows()
        changed = [y for y, row in enumerate(now) if y >= len(before) or not row.is_same(before[y])]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def render(self) -> Content:
        self._rows = self._make_rows()
        return join_lines(*self._rows)

    def _make_rows(self) -> list[Content]:
        screen = self.screen
        assert isinstance(screen, WizardScreen)
        width = self.size.width
        half = width // 2
        facts = status_cells(screen.state)
        if width < TWO_COLUMNS:
            return [status_cell(fact, screen.ascii_only, width) for fact in most_important(facts, CELLS)]
        left = [status_cell(fact, screen.ascii_only, half - 2) for fact in facts[::2]]
        right = [status_cell(fact, screen.ascii_only, width - half) for fact in facts[1::2]]
        return [Content.assemble(a, " " * (half - a.cell_length), b) for a, b in zip(left, right, strict=True)]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return CELLS


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
