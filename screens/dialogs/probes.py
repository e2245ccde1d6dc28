"""The list of probes with their results, to run one of them; probes that do more than read need confirmation."""

from collections.abc import Iterable
from pathlib import Path

from textual import on
from textual.content import Content
from textual.widget import Widget

from ...app.probes.context import level_permitted
from ..shell.base import WizardScreen
from ..shell.state import PROBES_WITH_OWN_SCREEN, probes_of_snapshot
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import safe_content, status_sign
from .confirm import ConfirmDialog

LEVELS = {
    "reads": "only reads",
    "connects": "opens connections",
    "allocates": "starts processes and uses memory",
    "perturbs": "may pause a job",
}


class ProbesScreen(WizardScreen):
    """Choose a probe to run, or to run again."""

    CSS_PATH = Path(__file__).with_name("probes.tcss")
    TITLE = "Probes"
    ABOUT = (
        "Probes are checks of this machine. Enter runs one again; a probe that does more than read files asks first."
    )

    def body(self) -> Iterable[Widget]:
        yield Choices(self._rows(), numbered=True, verb="run it", note_column=40)

    def _rows(self) -> list[Choice]:
        rows = []
        for id_, spec in self.state.knowledge.probes.items():
            if id_ in PROBES_WITH_OWN_SCREEN or spec.intrusiveness not in LEVELS:
                continue
            level = f"{LEVELS[spec.intrusiveness]}, {spec.limit_s:g} s at most"
            label = Content.assemble(status_sign(self._status(id_), self.ascii_only), " ", safe_content(spec.title))
            rows.append(Choice(id_, label, safe_content(level, "$muted")))
        return rows

    def _status(self, probe: str) -> str:
        snapshot = self.state.snapshot
        if snapshot is None or probe not in probes_of_snapshot(snapshot):
            return "skip"
        if probe in snapshot.failed:
            return "unknown"
        statuses = {check.status for check in self.state.checks if check.id.partition(".")[0] == probe}
        return next((status for status in ("fail", "warn", "unknown") if status in statuses), "ok")

    @on(Choices.Picked)
    def _picked(self, event: Choices.Picked) -> None:
        spec = self.state.knowledge.probes[event.id]
        if level_permitted(spec.intrusiveness, self.state.granted):
            self.dismiss(event.id)
            return
        question = f"{spec.title[:1].upper()}{spec.title[1:]}: this {LEVELS[spec.intrusiveness]}. Run it?"

        def run(yes: bool | None) -> None:
            if yes:
                self.dismiss(event.id)

        self.app.push_screen(ConfirmDialog(question, yes="Run it"), callback=run)
