"""Mixin for the screen of a lab: its parts, of which one is shown below the names of all."""

from collections import defaultdict

from textual import events, on

from ...app.labs.course import CourseLab
from ...app.labs.lab_session import LabSession
from ...app.options import target_python
from ...app.triage.types import JobReport
from ..widgets.scrolling import ScrolledText
from .lab_parts import available_parts, part_content, repair_content
from .lab_repair import LabRepairMixin
from .lab_tabs import LabTabs
from .rank_panes import row_of_line


class LabViewMixin(LabRepairMixin):
    """``show_part``: show a part from its start; a part that changes meanwhile gets a sign."""

    def __init__(self, entry: CourseLab) -> None:
        super().__init__()
        self._entry = entry
        self._printed: defaultdict[int | None, list[str]] = defaultdict(list)
        self._report: JobReport | None = None
        self._job_runs = self._has_run = False  # _has_run: since the files were restored
        self._new_parts: set[str] = set()  # that have changed since they were shown
        self._launch = ""  # of the job that printed what is shown

    @property
    def session(self) -> LabSession:
        """The learner's way through this lab, kept while the wizard runs."""
        opened, lab = self.state.lab_sessions, self._entry.lab
        if lab.id not in opened:
            python, number = target_python(self.state.options), self._entry.first_number
            opened[lab.id] = LabSession(lab, self.state.knowledge, python, number=number)
        return opened[lab.id]

    def resume_hint(self) -> str:
        return f"to go on with this lab:\n  ddpwizard learn {self._entry.number}"

    def _available(self) -> list[str]:
        return available_parts(self.session, self._printed, self._report is not None, self._has_run)

    def show_part(self, part: str) -> None:
        pane = self.query_one(ScrolledText)
        stay = part == self.part
        self.part = part
        self._new_parts.discard(part)
        self._show_tabs()
        if part == "fix":
            self.make_repair()
            content = repair_content(self.repair, self.session)
        else:
            content = part_content(
                part, self.session, self._printed, self._report, pane.size, self._launch, self._job_runs
            )
        pane.show(content, stay=stay)
        self.keys_changed()

    def _show_tabs(self) -> None:
        names = {} if self._entry.lab.launch else {"code": "log"}
        self.query_one(LabTabs).show(
            [names.get(each, each) for each in self._available()],
            names.get(self.part, self.part),
            self._new_parts,
            "*" if self.ascii_only else "•",
        )

    @on(ScrolledText.Moved)
    def _show_rest(self) -> None:
        pane = self.query_one(ScrolledText)
        self.query_one(LabTabs).show_rest(pane.lines_above, pane.lines_below)

    def _offer_part(self, part: str) -> None:
        """Show that a part has changed; what the learner reads stays."""
        if part == self.part:
            self.show_part(part)
        else:
            self._new_parts.add(part)
            self._show_tabs()
            self.keys_changed()

    def _show_result_in_output(self, failed: bool) -> None:
        """Show all that was printed, if the output is shown: its end, or the first error of a job that ``failed``."""
        if self.part == "output":
            self.show_part("output")
            self.call_after_refresh(self._scroll_to_result, failed)

    def _scroll_to_result(self, failed: bool) -> None:
        pane = self.query_one(ScrolledText)
        error = self.session.first_error if failed else None
        if error is None:
            pane.scroll_end(animate=False)
            return
        width = pane.size.width - 2
        first, last = (row_of_line(self._printed, error.rank, at, width) for at in (error.first, error.last))
        pane.scroll_to(y=max(0, first - 1, last - pane.size.height + 3), animate=False)

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self.call_after_refresh(lambda: self.show_part(self.part))

    def action_part(self, step: int) -> None:
        parts = self._available()
        at = parts.index(self.part) if self.part in parts else 0
        self.show_part(parts[(at + step) % len(parts)])
