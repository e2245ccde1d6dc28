"""Review of a training script: its path, and the findings in it."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from ...app.diagnosis.script_evidence import review_summary, take_script
from ...app.errors import UserError
from ...app.review.types import ReviewFinding
from ...app.system.files import expand_user
from ..shell.base import WizardScreen
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import join_lines, safe_content
from ..widgets.line_input import LineInput
from ..widgets.source import excerpt


class ReviewScreen(WizardScreen):
    """Asks for a script, and shows what the rules find in it."""

    CSS_PATH = Path(__file__).with_name("review.tcss")
    TITLE = "Review my script"
    AUTO_FOCUS = "LineInput"
    ABOUT = (
        "Type the path of the training script (tab completes it) and press enter. The script is read, not run. Each "
        "finding is a line that goes wrong on several ranks; enter or f shows its fix."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "fix", "fix", id="review.fix", tooltip="Show the fix of the marked finding"),
        Binding("d", "diagnosis", "diagnosis", id="review.diagnosis", tooltip="Show the causes that this supports"),
        Binding("tab", "complete", "complete", show=False, id="review.complete", tooltip="Complete the path"),
    ]

    class Reviewed(Message):
        """A script was read, or could not be."""

        def __init__(self, path: Path, findings: list[ReviewFinding], problem: UserError | None = None) -> None:
            super().__init__()
            self.path, self.findings, self.problem = path, findings, problem

    def __init__(self) -> None:
        super().__init__()
        self._findings: list[ReviewFinding] = []

    def body(self) -> Iterable[Widget]:
        yield LineInput(placeholder="path of the script, such as train.py", moves="#findings", id="path")
        yield Choices(id="findings", verb="fix")
        with VerticalScroll(id="detail"):
            yield Static(id="shown")

    @on(Input.Submitted, "#path")
    def _given(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self.run_worker(self._review(event.value.strip()), exclusive=True)

    async def _review(self, typed: str) -> None:
        path = Path(typed)
        try:
            path = expand_user(typed)
            findings = await asyncio.to_thread(take_script, self.state.begin(), path)
        except UserError as error:
            self.post_message(self.Reviewed(path, [], error))
        else:
            self.post_message(self.Reviewed(path, findings))

    @on(Reviewed)
    def _reviewed(self, event: Reviewed) -> None:
        if event.problem:
            self.wizard.show_error(event.problem)
            return
        self._findings = event.findings
        rows = [Choice(str(n), safe_content(_row(finding))) for n, finding in enumerate(event.findings)]
        self.query_one("#findings", Choices).set_items(rows, first=True)
        self.show_header(facts=event.path.name)
        self.show_status(review_summary(event.path, event.findings, len(self.state.knowledge.rules)))
        if rows:
            self.query_one("#findings", Choices).focus()
        self._show_marked()

    @on(Choices.Marked)
    def _show_marked(self) -> None:
        finding, width = self._marked(), self.app.size.width - 4
        rows = []
        if finding:
            place = f"{finding.path}:{finding.line}"
            rows = [*safe_content(finding.why).wrap(width), *excerpt(place, self.state.texts, width)]
        self.query_one("#shown", Static).update(join_lines(*rows))

    def _marked(self) -> ReviewFinding | None:
        marked = self.query_one("#findings", Choices).marked
        return self._findings[int(marked.id)] if marked else None

    @on(Choices.Picked)
    async def _picked(self) -> None:
        await self.action_fix()

    async def action_fix(self) -> None:
        if finding := self._marked():
            cause = self.state.knowledge.rules[finding.rule].cause
            await self.wizard.open("fix", cause=cause, findings=self._findings)
        else:
            self.show_status("No finding is marked: type the path of a script and press enter.")

    async def action_diagnosis(self) -> None:
        await self.wizard.open("diagnosis")

    def action_complete(self) -> None:
        path = self.query_one("#path", LineInput)
        if not path.has_focus:
            path.focus()
        elif not path.complete_path():
            self.query_one("#findings", Choices).focus()


def _row(finding: ReviewFinding) -> str:
    return f"line {finding.line}  {finding.message}"
