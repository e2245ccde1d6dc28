"""The job files of a strategy: show them and where they go, then write them."""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.binding import Binding, BindingType
from textual.containers import Grid
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from ...app.errors import UserError
from ...app.options import target_python
from ...app.plan.job_files import write
from ...app.plan.job_files.manifest import read_package_versions
from ...app.plan.job_files.own_script import plan_job_files
from ...app.plan.model_source import SCRIPT
from ...app.plan.timing.communication import Links
from ...app.plan.types import PlanRow
from ...app.system.files import expand_user
from ...app.system.paths import relative_to_cwd
from ..dialogs.page import TextDialog
from ..shell.base import WizardScreen
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import join_lines, safe_content
from ..widgets.line_input import LineInput
from .table import as_sentence

HERE = "this directory"
MARGINS = 4
MOST_ROWS = 9  # of the list, as in planner.tcss


class PlanWriteScreen(WizardScreen):
    """The files that would be written; ``w`` writes them. Dismisses with a line on what was done."""

    CSS_PATH = Path(__file__).with_name("planner.tcss")
    TITLE = "Write the files"
    ABOUT = (
        "The files that run the marked strategy: launch scripts, configurations, code. Enter shows a file. Enter the "
        "target directory and your training script, then press w to write the files. No existing file is changed. "
        "Nothing is written for a strategy that does not fit."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "write", "write them", id="plan-write.write", tooltip="Write the files that are shown"),
        Binding("tab", "app.focus_next", "edit", id="plan-write.next", tooltip="Enter the directory, or the script"),
    ]

    class VersionsSeen(Message):
        """The versions of the packages in the interpreter of the run, for its manifest."""

        def __init__(self, versions: dict[str, str | None]) -> None:
            super().__init__()
            self.versions = versions

    def __init__(self, row: PlanRow, links: Links) -> None:
        super().__init__()
        self._row, self._links = row, links
        self._made: dict[str, str] = {}
        self._notes: list[str] = []  # on these files
        self._problem: UserError | None = None
        self._versions: dict[str, str | None] | None = None  # of the packages of the run, None until they are read
        self._writes_then = False

    def body(self) -> Iterable[Widget]:
        with Grid():
            yield Static(safe_content("into", "$muted"))
            yield LineInput(value=write.free_directory(Path.cwd()), id="directory", moves="#files")
            yield Static(safe_content("script", "$muted"))
            yield LineInput(value=SCRIPT, id="script", moves="#files")
        yield Choices(numbered=False, verb="show", id="files")
        yield Static(id="preview")

    def on_mount(self) -> None:
        self.show_header(f"Write the files for {self._row.candidate.full_name}", "esc goes back")
        self._make()
        self.run_worker(self._read_versions(), group="versions", exclusive=True)

    async def _read_versions(self) -> None:
        self.post_message(
            self.VersionsSeen(await asyncio.to_thread(read_package_versions, target_python(self.state.options)))
        )

    @on(VersionsSeen)
    def _versions_seen(self, event: VersionsSeen) -> None:
        self._versions = event.versions
        self._make()
        if self._writes_then:
            self.action_write()

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self._show()

    @property
    def _directory(self) -> Path:
        return expand_user(os.path.expandvars(self.query_one("#directory", Input).value.strip()) or ".")

    @property
    def start_command(self) -> str:
        """The command that starts the files in the directory that is entered."""
        return write.start_command(self._row, relative_to_cwd(str(self._directory.absolute())))

    @on(Input.Changed)
    def _make(self) -> None:
        """Render the files for the fields; none if a field is wrong."""
        script = self.query_one("#script", Input).value.strip()
        self._made, self._notes, self._problem = {}, [], None
        try:
            if not script:
                raise UserError("which script?", "name the training script, such as train.py")
            self._made, self._notes = plan_job_files(
                self._row.setting, self._directory, script, None, self._versions, self._links
            )
            write.check_writable(self._row)
        except UserError as error:
            self._problem = error
        self._show()

    def _show(self) -> None:
        width = self.size.width - MARGINS
        longest = max((len(name) for name in self._made), default=0)
        choices = [Choice(name, _listed(name, longest, content, width)) for name, content in self._made.items()]
        self.query_one("#files", Choices).set_items(choices)
        self._preview()
        if self._problem:
            self.wizard.show_error(self._problem)
        elif self._row.candidate.fits == "tight":
            self.show_status(
                safe_content("It only just fits. Nothing is written yet; press w to write the files.", "$warning")
            )
        else:
            self.show_status(safe_content("Nothing is written yet; press w to write the files.", "$muted"))

    @on(Choices.Marked)
    def _preview(self) -> None:
        marked = self.query_one("#files", Choices).marked
        shown = self.query_one("#preview", Static)
        if marked is None or marked.id not in self._made:
            shown.update("")
            return
        room = max(1, self.size.height - 2 - 3 - min(MOST_ROWS, len(self._made)) - 4)
        rows = self._made[marked.id].splitlines()[:room]
        width = self.size.width - MARGINS
        shown.update(join_lines(*(safe_content(row).truncate(width, ellipsis=True) for row in rows)))

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.query_one("#files").focus()

    @on(Choices.Picked)
    def _picked(self, event: Choices.Picked) -> None:
        self.app.push_screen(TextDialog(event.id, safe_content(self._made[event.id]), "not written yet"))

    def action_write(self) -> None:
        if self._problem:
            self.wizard.show_error(self._problem)
            return
        if self._versions is None:
            self._writes_then = True
            self.show_status("Reading the versions of the interpreter's packages; then the files are written.")
            return
        self._writes_then = False
        try:
            where = self._directory
            write.write_job_files(where, self._made)
        except UserError as error:
            self.wizard.show_error(error)
            return
        place = relative_to_cwd(str(where.absolute()))
        wrote = (
            f"Wrote {len(self._made)} files for {self._row.candidate.full_name} into {HERE if place == '.' else place}."
        )
        self.dismiss(" ".join([wrote, *(f"{as_sentence(note)}." for note in self._notes[:1])]))

    async def action_back(self) -> None:
        self.dismiss("")


def _listed(name: str, name_width: int, content: str, width: int) -> Content:
    """Return a row for a file: its name, its length, and its first line of text."""
    rows = content.splitlines()
    count = f"{len(rows)} line{'s' * (len(rows) != 1)}"
    first = next((row.strip() for row in rows if not row.startswith(("#!", "#SBATCH")) and len(row.strip()) > 1), "")
    row = Content.assemble(
        safe_content(f"{name:<{name_width}} {count:>10}  "), safe_content(first.removeprefix('"""'), "$muted")
    )
    return row.truncate(max(10, width), ellipsis=True)
