"""The migration of a script: what is not kept, the diff, and whether it is written."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from ...app.errors import UserError
from ...app.fixes.migration import changes_script, note_lines, outcome_line, write_migration, written_line
from ...app.fixes.records import AppliedFix
from ...app.fixes.undo import undo_fix
from ...app.review.migrations.types import Migration
from ...app.system.paths import relative_to_cwd
from ..dialogs.page import ScrollingPage
from ..widgets.formatting import join_lines, safe_content
from ..widgets.source import diff_line


class MigrationDialog(ScrollingPage):
    """Shows a migration; y writes it, escape leaves."""

    TITLE = "Migrate"
    ABOUT = (
        "The change of a migration, below what differs afterwards or why it is refused. y writes it; u, or "
        "ddpwizard undo, reverts it. Escape leaves."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "write", "write", id="migration.write", tooltip="Write the migrated script"),
        Binding("u", "undo", "undo", id="migration.undo", tooltip="Revert the migration"),
    ]

    def __init__(self, migration: Migration) -> None:
        super().__init__()
        self._migration = migration
        self._applied: AppliedFix | None = None

    def heading(self) -> tuple[str, str]:
        return f"Migrate to {self._migration.target}", relative_to_cwd(self._migration.path)

    def page(self, width: int) -> Content:
        rows = [row for line in note_lines(self._migration) for row in safe_content(line).wrap(width)]
        rows += safe_content(outcome_line(self._migration), "bold").wrap(width)
        return join_lines(*rows, Content(""), *(diff_line(line) for line in self._migration.diff().splitlines()[2:]))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "write":
            return self._applied is None and changes_script(self._migration)
        return self._applied is not None if action == "undo" else True

    def action_write(self) -> None:
        try:
            self._applied = write_migration(self._migration)
        except UserError as error:
            self.wizard.show_error(error)
            return
        line = written_line(self._migration, self._applied)
        self.state.record_event("note", text=f"review: {line}")
        self.show_status(line)
        self.keys_changed()

    def action_undo(self) -> None:
        if self._applied is None:
            return
        try:
            undo_fix(self._applied.id)
        except UserError as error:
            self.wizard.show_error(error)
            return
        self._applied = None
        self.show_status("reverted: the script is as before")
        self.keys_changed()

    async def action_back(self) -> None:
        self.dismiss(None)
