"""Mixin for the screen of a lab: edit a file of the learner's copy, or the command line that starts it."""

from ...app.errors import UserError
from ...app.fixes.types import Place
from ...app.labs.lab_session import LabSession
from ...app.labs.phrases import EDIT_COMMAND, EDIT_WHAT
from ..dialogs.ask_line import AskLineDialog
from ..dialogs.pick import PickDialog
from ..shell.base import WizardScreen
from ..shell.editor import open_in_editor
from ..widgets.choices import Choice
from ..widgets.formatting import safe_content

COMMAND = "$"  # the id of its row


class LabEditMixin(WizardScreen):
    """``e``: choose what to edit."""

    @property
    def session(self) -> LabSession:
        """The learner's way through this lab."""
        raise NotImplementedError

    def show_edited(self, part: str, done: str = "") -> None:
        """Show the part of the lab that was edited, what was done, and the next step."""
        raise NotImplementedError

    def action_edit(self) -> None:
        lab = self.session.lab
        names = [str(path.relative_to(lab.directory)) for path in lab.files]
        rows = [Choice(name, safe_content(name)) for name in names]
        rows.append(Choice(COMMAND, safe_content(f"{EDIT_COMMAND}: {self.session.command}")))
        self.app.push_screen(PickDialog(EDIT_WHAT, rows), callback=self._edit_chosen)

    def _edit_chosen(self, chosen: str | None) -> None:
        if chosen == COMMAND:
            question = AskLineDialog(
                "Which command starts it?",
                details=f"It is started in {self.session.directory}.",
                value=self.session.command,
            )
            self.app.push_screen(question, callback=self._start_by)
        elif chosen:
            try:
                open_in_editor(self.app, Place(path=str(self.session.directory / chosen), line=1))
            except UserError as error:
                self.wizard.show_error(error)
            else:
                self.show_edited("code")

    def _start_by(self, line: str | None) -> None:
        if line is None:
            return
        try:
            self.session.start_by(line)
        except UserError as error:
            self.wizard.show_error(error)
        else:
            self.show_edited("story")
