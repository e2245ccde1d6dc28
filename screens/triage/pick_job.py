"""The jobs of this machine to choose from, with their states, which are kept up to date while the list is open."""

from collections.abc import Sequence

from ...app.triage.rank_groups import job_title
from ...app.triage.types import JobReport
from ..dialogs.pick import PickDialog
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import safe_content
from .text import state_text

REFRESH_S = 1.0


class PickJobDialog(PickDialog):
    """Choose one of several jobs; dismisses with its id, that of an additional row, or None."""

    def __init__(self, title: str, reports: Sequence[JobReport], additional: Sequence[Choice] = ()) -> None:
        super().__init__(title, [])
        self._reports, self._additional = reports, additional

    def on_mount(self) -> None:
        self._show_states()
        super().on_mount()
        self.set_interval(REFRESH_S, self._show_states)

    def _show_states(self) -> None:
        ended = {report.job.id for report in self._reports if self.state.has_ended(report)}
        self._rows = [
            *(
                Choice(each.job.id, safe_content(job_title(each)), state_text(each, ended, self.ascii_only))
                for each in self._reports
            ),
            *self._additional,
        ]
        self.query_one(Choices).set_items(self._rows)
