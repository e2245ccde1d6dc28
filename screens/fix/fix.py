"""The fixes of a cause: shown, applied, proved."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from ...app.errors import UserError
from ...app.fixes.types import Fix, done_text, editable_place
from ...app.review.types import ReviewFinding
from ...app.system.paths import relative_to_cwd
from ...app.text.units import count_text
from ...app.triage.job_text import job_line
from ...app.triage.phrases import ENDED_STATE
from ...app.triage.types import JobReport
from ...knowledge.schema import Cause
from ..dialogs.confirm import ConfirmDialog
from ..shell.clipboard import copy_to_clipboard
from ..shell.editor import open_in_editor
from ..triage.pick_job import PickJobDialog
from ..widgets.choices import Choice
from ..widgets.formatting import join_lines, safe_content, status_sign
from ..widgets.progress_line import ProgressLine
from .kept_keys import KeptKeysMixin
from .proof import FixProofMixin
from .text import fix_parts, part_as_text, safety_content

if TYPE_CHECKING:
    from ...app.fixes.flow import FixFlow
    from ...app.fixes.records import AppliedFix
    from ..shell.state import FixKey

NO_JOB = "none"  # the id of the row for a fix without a job


class FixScreen(KeptKeysMixin, FixProofMixin):
    """The fixes of one cause, ready to be applied."""

    CSS_PATH = Path(__file__).with_name("fix.tcss")
    TITLE = "Fix"
    AUTO_FOCUS = "VerticalScroll"
    ABOUT = (
        "Applying writes exactly the change shown here. It asks first, keeps a copy, and can be undone. Proving "
        "repeats the check that failed. For a job it asks first, then starts the same command again; your files do "
        "not change."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "apply", "apply", id="fix.apply", tooltip="Apply the change to the files shown; asks first"),
        Binding("v", "prove", "prove", id="fix.prove", tooltip="Repeat the failed check with this fix"),
        Binding("e", "edit", "edit", id="fix.edit", tooltip="Open the file at the line in your editor ($EDITOR)"),
        Binding("y", "copy", "copy", id="fix.copy", tooltip="Copy the text of this tab, and save it to a file"),
        Binding("o", "write", "write files", id="fix.write", tooltip="Save the patch and new files in this directory"),
        Binding("u", "undo", "undo", id="fix.undo", tooltip="Undo the applied fix"),
        Binding("n", "next_fix", "next fix", id="fix.next", tooltip="Show another way to fix it"),
        Binding("p", "plan", "planner", id="fix.plan", tooltip="Open the planner with the GPUs of this case"),
        Binding("left", "tab(-1)", "part", show=False, id="fix.left", tooltip="Show the tab to the left"),
        Binding("right", "tab(1)", "part", show=False, id="fix.right", tooltip="Show the tab to the right"),
    ]

    class FixesBuilt(Message):
        """The fixes for this machine and script."""

        def __init__(self, fixes: list[Fix]) -> None:
            super().__init__()
            self.fixes = fixes

    class FilesChanged(Message):
        """A fix was applied or undone."""

        def __init__(self, fix: Fix, action: str, record: "AppliedFix") -> None:
            super().__init__()
            self.fix, self.action, self.record = fix, action, record

    class FixFailed(Message):
        """An action on a fix failed."""

        def __init__(self, error: UserError) -> None:
            super().__init__()
            self.error = error

    def __init__(
        self,
        cause: str,
        report: JobReport | None = None,
        findings: Sequence[ReviewFinding] = (),
        finding: ReviewFinding | None = None,
    ) -> None:
        super().__init__()
        self._cause, self._report, self._findings, self._finding = cause, report, findings, finding
        self._fixes: list[Fix] = []
        self._at = 0
        self._part = ""
        self.loading_keys = True

    @property
    def fix(self) -> Fix | None:
        """The fix that is shown."""
        return self._fixes[self._at] if self._fixes else None

    def fix_key(self, fix: Fix) -> "FixKey":
        session = self.state.case.session
        job = self._report.job.id if self._report else ""
        return (session.id if session else "", job, self._cause, fix.id)

    @property
    def _applied(self) -> str:
        """The id under which the fix shown was applied, or ""."""
        return self.state.applied_fixes.get(self.fix_key(self.fix), "") if self.fix else ""

    @property
    def _entry(self) -> Cause:
        return self.state.knowledge.causes[self._cause]

    def flow(self) -> "FixFlow":
        return self.state.fix_flow(self._cause, self._report, self._findings, self._finding)

    def body(self) -> Iterable[Widget]:
        yield Static(id="safety")
        yield Static(id="parts")
        with VerticalScroll(id="part"):
            yield Static("Loading the fixes. A key that you press now takes effect once they are shown.", id="shown")
        yield Static(id="proof")
        yield ProgressLine(self.ascii_only)

    def on_mount(self) -> None:
        self.state.record_navigation("fix", self._cause)
        self.show_header(self._entry.title)
        jobs = self.state.jobs_for_fix(self._cause, self._finding) if self._report is None else [self._report]
        if len(jobs) > 1:
            dialog = PickJobDialog("Which job is the fix for?", jobs, [Choice(NO_JOB, "None of these jobs")])
            self.app.push_screen(dialog, callback=lambda id_: self._chosen(jobs, id_))
        else:
            self._begin(jobs, next((each.job.id for each in jobs), NO_JOB))

    def _chosen(self, jobs: Sequence[JobReport], id_: str | None) -> None:
        if id_ is None:
            self.app.call_later(self.wizard.back)  # not in the pump of this screen, which ends with it
        else:
            self._begin(jobs, id_)

    def _begin(self, jobs: Sequence[JobReport], chosen: str) -> None:
        """Build the fixes for the job with this id, the only one whose files they change."""
        self._report = next((each for each in jobs if each.job.id == chosen), None)
        facts = job_line(self._report) if self._report else ""
        if self._report and self.state.has_ended(self._report):
            facts += f", {ENDED_STATE[1]}"
        self.show_header(facts=facts)
        self.run_worker(self._build(), group="make", exclusive=True)

    async def _build(self) -> None:
        flow = self.flow()
        await self._try(lambda: self.FixesBuilt(flow.build()))

    async def _try(self, work: Callable[[], Message]) -> None:
        """Run ``work`` in a thread and post its message, or why it failed."""
        try:
            self.post_message(await asyncio.to_thread(work))
        except UserError as error:
            self.post_message(self.FixFailed(error))

    @on(FixesBuilt)
    async def _fixes_built(self, event: FixesBuilt) -> None:
        shown = self.fix.id if self.fix else ""
        self._fixes = event.fixes
        self._at = next((at for at, fix in enumerate(event.fixes) if fix.id == shown), 0)
        self._part = ""
        self._show()
        await self.take_kept_keys()

    @on(FixFailed)
    def _fix_failed(self, event: FixFailed) -> None:
        self.drop_kept_keys()
        self.wizard.show_error(event.error)

    # -- showing

    def _show(self) -> None:
        fix = self.fix
        if fix is None:
            self.query_one("#shown", Static).update("No fix could be built for this. esc goes back.")
            return
        parts = fix_parts(fix, self._entry)
        self._part = self._part if self._part in parts else next(iter(parts))
        self.show_header(f"Fix {self._at + 1} of {len(self._fixes)} · {fix.title}")
        self.query_one("#safety", Static).update(safety_content(fix, self.ascii_only))
        tabs = [Content.styled(f" {name} ", "bold reverse" if name == self._part else "") for name in parts]
        hint = Content.styled(f"   {'<- ->' if self.ascii_only else '← →'}" if len(tabs) > 1 else "", "$muted")
        self.query_one("#parts", Static).update(Content.styled("│", "$muted").join(tabs) + hint)
        self.query_one("#part", VerticalScroll).scroll_home(animate=False)
        self.query_one("#shown", Static).update(join_lines(*parts[self._part]))
        self.show_proof_of_fix()
        self.keys_changed()

    def applied_note(self, fix: Fix) -> Content:
        if not self._applied:
            return Content("")
        done = "applied" if fix.patches else "written"
        return Content.assemble("  ", status_sign("ok", self.ascii_only), f" {done}, u undoes it")

    # -- actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        fix = self.fix
        if action in ("apply", "write"):
            return bool(fix and (fix.patches or fix.files))
        if action == "edit":
            return bool(fix and editable_place(fix))
        if action == "plan":
            return self._entry.family == "memory"
        if action == "next_fix":
            return len(self._fixes) > 1
        if action == "undo":
            return bool(self._applied)
        if action == "prove":
            return fix is not None and bool(self.flow().proof_text(fix))
        if action in ("copy", "tab"):
            return fix is not None
        return True

    def action_tab(self, by: int) -> None:
        if self.fix:
            names = list(fix_parts(self.fix, self._entry))
            self._part = names[(names.index(self._part) + by) % len(names)]
            self._show()

    def action_next_fix(self) -> None:
        self._at = (self._at + 1) % len(self._fixes)
        self._show()

    def action_apply(self) -> None:
        fix = self.fix
        if fix is None:
            return
        paths = self.flow().target_paths(fix)
        warning = f"\n{fix.why_unsafe}" if fix.why_unsafe else ""
        question = ConfirmDialog(
            f"Write {count_text(len(paths), 'file')}?",
            yes="Yes, apply it" if fix.patches else "Yes, write it",
            details="\n".join(paths) + warning,
        )
        self.app.push_screen(question, callback=lambda yes: self._apply(fix) if yes else None)

    def _apply(self, fix: Fix) -> None:
        flow = self.flow()
        self.run_worker(self._try(lambda: self.FilesChanged(fix, "applied", flow.apply(fix))), group="write")

    def action_undo(self) -> None:
        fix, applied, flow = self.fix, self._applied, self.flow()
        if fix:
            self.run_worker(self._try(lambda: self.FilesChanged(fix, "undone", flow.undo(fix, applied))), group="write")

    @on(FilesChanged)
    def _files_changed(self, event: FilesChanged) -> None:
        applied = event.action == "applied"
        if applied:
            self.state.applied_fixes[self.fix_key(event.fix)] = event.record.id
        else:
            self.state.applied_fixes.pop(self.fix_key(event.fix), None)
        self._show()
        paths = ", ".join(map(relative_to_cwd, event.record.paths))
        done = done_text(event.fix, paths) if applied else f"Undone in {paths}"
        self.show_status(Content.assemble(status_sign("ok", self.ascii_only), safe_content(f" {done}")))

    async def action_plan(self) -> None:
        self.state.plan_form |= self.flow().planner_fields()
        await self.wizard.open("plan")

    def action_edit(self) -> None:
        if self.fix and (place := editable_place(self.fix)):
            try:
                open_in_editor(self.app, place)
            except UserError as error:
                self.wizard.show_error(error)
            self.run_worker(self._build(), group="make", exclusive=True)

    async def action_copy(self) -> None:
        if self.fix:
            try:
                name, content = part_as_text(self.fix, self._entry, self._part)
                self.show_status(await copy_to_clipboard(self.app, name, content))
            except UserError as error:
                self.wizard.show_error(error)

    def action_write(self) -> None:
        if self.fix:
            try:
                written = self.flow().write_copies(self.fix)
            except UserError as error:
                self.wizard.show_error(error)
                return
            self.show_status(f"Written: {', '.join(relative_to_cwd(str(path)) for path in written)}")

    async def action_quit(self) -> None:
        if self.state.proved:
            self.state.close()
        await super().action_quit()
