"""The files of a strategy: what would be written and where, then written."""

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
from ...app.fixes.build import FixContext, target_of
from ...app.options import target_python
from ...app.plan import summary
from ...app.plan.job_files.package_versions import read_package_versions
from ...app.plan.job_files.write import missing_script_reason, render_job_files, script_path_from, write_job_files
from ...app.plan.types import PlanRow
from ...app.system.files import expand_user
from ...app.triage.types import JobReport
from ..dialogs.page import TextDialog
from ..shell.base import WizardScreen
from ..shell.state import WizardState
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import join_lines, relative_path, safe_content
from ..widgets.line_input import LineInput
from .table import as_sentence

DIRECTORY = "ddpwizard-plan"
SCRIPT = "train.py"
HERE = "this directory"
ENDED = ("dead", "missing", "zombie")  # ranks of a job that is over
MARGINS = 4
MOST_ROWS = 9  # of the list, as its style says
NEXT_STEP = "name another directory"


class PlanWriteScreen(WizardScreen):
    """What would be written, to look at; nothing is written before one says so. Dismisses with what was done."""

    CSS_PATH = Path(__file__).with_name("planner.tcss")
    TITLE = "Write the files"
    ABOUT = (
        "The files to run the marked strategy with: start lines, configurations, code. Nothing is written yet: look at "
        "each with enter, say where to and which script they start, then press w. No file that is there is changed. "
        "Nothing is written for a strategy that does not fit."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "write", "write them", id="plan-write.write", tooltip="Write the files that are shown"),
        Binding("tab", "app.focus_next", "edit", id="plan-write.next", tooltip="Say where to, or which script"),
    ]

    class VersionsSeen(Message):
        """What the interpreter that will run it has; the run's manifest says so."""

        def __init__(self, versions: dict[str, str | None]) -> None:
            super().__init__()
            self.versions = versions

    def __init__(self, row: PlanRow) -> None:
        super().__init__()
        self._row = row
        self._made: dict[str, str] = {}
        self._problem: UserError | None = None
        self._versions: dict[str, str | None] | None = None  # of the packages it will run with, once they are known
        self._writes_then = False

    def body(self) -> Iterable[Widget]:
        with Grid():
            yield Static(safe_content("into", "$muted"))
            yield LineInput(value=free_directory(Path.cwd()), id="directory", moves="#files")
            yield Static(safe_content("script", "$muted"))
            yield LineInput(value=script_of_running_job(self.state), id="script", moves="#files")
        yield Choices(numbered=False, verb="look", id="files")
        yield Static(id="preview")

    def on_mount(self) -> None:
        self.show_header(f"Write the files for {summary.strategy_label(self._row)}", "esc writes nothing")
        self._make()
        self.run_worker(self._look_at_versions(), group="versions", exclusive=True)

    async def _look_at_versions(self) -> None:
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

    @on(Input.Changed)
    def _make(self) -> None:
        """Make the files anew, for what the fields say; none where that cannot be."""
        script = self.query_one("#script", Input).value.strip()
        self._made, self._problem = {}, None
        try:
            if not script:
                raise UserError("which script?", "name the one that trains, such as train.py")
            self._made = render_job_files(
                self._row.setting, script_path_from(self._directory, script), None, self._versions
            )
        except UserError as error:
            self._problem = error
        self._show()

    def _show(self) -> None:
        width = self.size.width - MARGINS
        longest = max((len(name) for name in self._made), default=0)
        choices = [Choice(name, _listed(name, longest, content, width)) for name, content in self._made.items()]
        self.query_one("#files", Choices).set_items(choices)
        self._preview()
        problem = self._problem or out_of_memory_reason(self._row)
        if problem:
            self.wizard.show_error(problem)
        elif self._row.candidate.fits == "tight":
            self.show_status(safe_content("It only just fits. Nothing is written yet: w writes them.", "$warning"))
        else:
            self.show_status(safe_content("Nothing is written yet: w writes them.", "$muted"))

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
        if problem := self._problem or out_of_memory_reason(self._row):
            self.wizard.show_error(problem)
            return
        if self._versions is None:
            self._writes_then = True
            self.show_status("Asking the interpreter for its versions; then they are written.")
            return
        self._writes_then = False
        try:
            where = self._directory
            ensure_new_directory(where, list(self._made))
            write_job_files(where, self._made, NEXT_STEP)
        except UserError as error:
            self.wizard.show_error(error)
            return
        place = relative_path(str(where.absolute()))
        wrote = (
            f"Wrote {len(self._made)} files for {summary.strategy_label(self._row)} into "
            f"{HERE if place == '.' else place}."
        )
        lacks = missing_script_reason(self.query_one("#script", Input).value.strip(), self._made)
        self.dismiss(f"{wrote} {as_sentence(lacks)}." if lacks else wrote)

    async def action_back(self) -> None:
        self.dismiss("")


def out_of_memory_reason(row: PlanRow) -> UserError | None:
    """Why nothing is written, as by ``plan --write``: the run would end out of memory. None where it may fit."""
    if row.candidate.fits is not False:
        return None
    why = f"{summary.strategy_label(row)} does not fit ({summary.shortage_text(row)}): nothing is written"
    return UserError(why, "take one that fits; enter on this one in the table tells what would make it fit")


def script_of_running_job(state: WizardState) -> str:
    """The script of a job that runs from this directory, where there is one, as one names it from here."""
    report = next((each for each in state.reports or [] if _runs_here(each)), None)
    target = target_of(FixContext(snapshot=state.snapshot, report=report)) if report else []
    script = next((word for word in target if word.endswith(".py")), "")
    return relative_path(str(Path(report.job.launcher_cwd, script))) if report and script else SCRIPT


def _runs_here(report: JobReport) -> bool:
    lives = any(row.state not in ENDED for row in report.ranks)
    return lives and Path(report.job.launcher_cwd).absolute() == Path.cwd()


def free_directory(parent: Path) -> str:
    """A name for a directory that is not there yet."""
    names = (DIRECTORY if number == 1 else f"{DIRECTORY}-{number}" for number in range(1, 1000))
    return next((name for name in names if not os.path.lexists(parent / name)), DIRECTORY)


def ensure_new_directory(directory: Path, names: list[str]) -> None:
    """Make the directory, and see that none of the files is in it.

    Raises:
        UserError: One is, or the directory cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {directory}: {error.strerror}", NEXT_STEP) from error
    there = [name for name in names if os.path.lexists(directory / name)]
    if there:
        raise UserError(f"{directory / there[0]} is there already", NEXT_STEP)


def _listed(name: str, name_width: int, content: str, width: int) -> Content:
    """A file in a row: its name, how long it is, and the first line that says what it does."""
    rows = content.splitlines()
    count = f"{len(rows)} line{'s' * (len(rows) != 1)}"
    said = next((row.strip() for row in rows if not row.startswith(("#!", "#SBATCH")) and len(row.strip()) > 1), "")
    row = Content.assemble(
        safe_content(f"{name:<{name_width}} {count:>10}  "), safe_content(said.removeprefix('"""'), "$muted")
    )
    return row.truncate(max(10, width), ellipsis=True)
