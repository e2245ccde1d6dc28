"""A fix: shown, then done, then proved."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from ...app.errors import UserError
from ...app.fixes.types import Fix
from ...app.review.types import ReviewFinding
from ...app.system.files import write_new_file
from ...app.triage.types import JobReport
from ..dialogs.confirm import ConfirmDialog
from ..shell.base import WizardScreen
from ..shell.clipboard import copy_to_clipboard
from ..widgets.formatting import join_lines, relative_path, safe_content, status_sign
from ..widgets.progress_line import ProgressLine
from .text import fix_parts, part_as_text, safety_text

PROOF_LIMIT_S = 60.0


class FixScreen(WizardScreen):
    """What mends a cause, ready to be applied."""

    CSS_PATH = Path(__file__).with_name("fix.tcss")
    TITLE = "Fix"
    AUTO_FOCUS = "VerticalScroll"
    ABOUT = (
        "What you see is exactly what is written. Applying asks first, keeps a copy and can be undone. Proving runs "
        "the check that failed again: for a job its own command line, on a copy, on a free port."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "apply", "apply", id="fix.apply", tooltip="Write it to the files named; asks first"),
        Binding("v", "prove", "prove", id="fix.prove", tooltip="Run the check that failed again, with this fix"),
        Binding("y", "copy", "copy", id="fix.copy", tooltip="Copy this part, and save it to a file"),
        Binding("o", "write", "write files", id="fix.write", tooltip="Write the patch and the new files beside you"),
        Binding("u", "undo", "undo", id="fix.undo", tooltip="Take back what was applied"),
        Binding("n", "next_fix", "next fix", id="fix.next", tooltip="Another way to mend it"),
        Binding("left", "tab(-1)", "part", show=False, id="fix.left", tooltip="Show the part to the left"),
        Binding("right", "tab(1)", "part", show=False, id="fix.right", tooltip="Show the part to the right"),
    ]

    class FixesBuilt(Message):
        """The fixes were made for this box and script."""

        def __init__(self, fixes: list[Fix]) -> None:
            super().__init__()
            self.fixes = fixes

    class FilesChanged(Message):
        """Something was written or taken back: what it was, and the record of it."""

        def __init__(self, action: str, record: Any) -> None:
            super().__init__()
            self.action, self.record = action, record

    class ProofDone(Message):
        """The proof has ended."""

        def __init__(self, proof: Any) -> None:
            super().__init__()
            self.proof = proof

    class FixFailed(Message):
        """Something could not be done."""

        def __init__(self, error: UserError) -> None:
            super().__init__()
            self.error = error

    def __init__(self, cause: str, report: JobReport | None = None, findings: Sequence[ReviewFinding] = ()) -> None:
        super().__init__()
        self._cause, self._report, self._findings = cause, report, list(findings)
        self._fixes: list[Fix] = []
        self._at = 0
        self._part = ""
        self._applied = ""

    @property
    def fix(self) -> Fix | None:
        """The fix that is shown."""
        return self._fixes[self._at] if self._fixes else None

    def body(self) -> Iterable[Widget]:
        yield Static(id="safety")
        yield Static(id="parts")
        with VerticalScroll(id="part"):
            yield Static(id="shown")
        yield Static(id="proof")
        yield ProgressLine(self.ascii_only)

    def on_mount(self) -> None:
        self.state.record_navigation("diagnosis")  # a fix is made again from the diagnosis
        self.show_header(self.state.knowledge.causes[self._cause].title)
        self.run_worker(self._make(), group="make", exclusive=True)

    async def _make(self) -> None:
        from ...app.fixes.build import FixContext, build_fixes

        script = (self._report.verdict.where or "").rpartition(":")[0] if self._report else ""
        situation = FixContext(
            snapshot=self.state.snapshot, script=script or None, report=self._report, findings=self._findings
        )
        entry = self.state.knowledge.causes[self._cause]
        await self._try(lambda: self.FixesBuilt(build_fixes(entry, situation, self.state.knowledge)))

    async def _try(self, work: Callable[[], Message]) -> None:
        """Do ``work`` in a thread and post what it says, or why it could not be done."""
        try:
            self.post_message(await asyncio.to_thread(work))
        except UserError as error:
            self.post_message(self.FixFailed(error))

    @on(FixesBuilt)
    def _made(self, event: FixesBuilt) -> None:
        self._fixes, self._at = event.fixes, 0
        self._part = ""
        self._show()

    @on(FixFailed)
    def _refused(self, event: FixFailed) -> None:
        self.query_one(ProgressLine).end()
        self.wizard.show_error(event.error)

    # -- showing

    def _show(self) -> None:
        fix = self.fix
        if fix is None:
            self.query_one("#shown", Static).update("No fix could be made for this. esc goes back.")
            return
        names = list(fix_parts(fix, self._entry))
        self._part = self._part if self._part in names else names[0]
        self.show_header(f"Fix {self._at + 1} of {len(self._fixes)} · {fix.title}")
        self.query_one("#safety", Static).update(safety_text(fix, self.ascii_only))
        tabs = [Content.styled(f" {name} ", "bold reverse" if name == self._part else "") for name in names]
        self.query_one("#parts", Static).update(Content.styled("│", "$muted").join(tabs))
        self.query_one("#part", VerticalScroll).scroll_home(animate=False)
        self.query_one("#shown", Static).update(join_lines(*fix_parts(fix, self._entry)[self._part]))
        self.query_one("#proof", Static).update(self._how_proved(fix))
        self.keys_changed()

    @property
    def _entry(self) -> Any:
        return self.state.knowledge.causes[self._cause]

    def _how_proved(self, fix: Fix) -> Content:
        if self._report and fix.patches:
            how = "the same command line on a patched copy, on a free port; passed when every rank gets past the line"
        else:
            probe = self.state.knowledge.probes.get(self._entry.verify.probe)
            how = f"{probe.title if probe else 'a review'} again"
        done = (
            Content.assemble("  ", status_sign("ok", self.ascii_only), " applied, u takes it back")
            if self._applied
            else ""
        )
        return Content.assemble(("Proof: ", "$muted"), safe_content(how), done)

    # -- actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        fix = self.fix
        if action in ("apply", "write"):
            return bool(fix and (fix.patches or fix.files))
        if action == "next_fix":
            return len(self._fixes) > 1
        if action == "undo":
            return bool(self._applied)
        if action in ("copy", "prove", "tab"):
            return fix is not None
        return True

    def action_tab(self, by: int) -> None:
        if self.fix:
            names = list(fix_parts(self.fix, self._entry))
            self._part = names[(names.index(self._part) + by) % len(names)]
            self._show()

    def action_next_fix(self) -> None:
        self._at = (self._at + 1) % len(self._fixes)
        self._applied = ""
        self._show()

    def action_apply(self) -> None:
        fix = self.fix
        if fix is None:
            return
        directory = self._directory()
        paths = [relative_path(patch.path) for patch in fix.patches] + [
            relative_path(str(directory / name)) for name in fix.files
        ]
        warning = f"\n{fix.why_unsafe}" if fix.why_unsafe else ""
        question = ConfirmDialog(
            f"Write {len(paths)} file{'s' * (len(paths) != 1)}?",
            yes="Yes, apply it",
            details="\n".join(paths) + warning,
        )
        self.app.push_screen(question, callback=lambda yes: self._apply(fix, directory) if yes else None)

    def _apply(self, fix: Fix, directory: Path) -> None:
        from ...app.fixes.apply import apply_fix

        self.run_worker(self._try(lambda: self.FilesChanged("applied", apply_fix(fix, directory))), group="write")

    def action_undo(self) -> None:
        from ...app.fixes.apply import undo_fix

        applied = self._applied
        self.run_worker(self._try(lambda: self.FilesChanged("undone", undo_fix(applied))), group="write")

    @on(FilesChanged)
    def _done(self, event: FilesChanged) -> None:
        record = event.record
        paths = [str(path) for path in record.paths]
        title = self.fix.title if self.fix else ""
        diff = self.fix.diff() if self.fix and event.action == "applied" else ""
        self.state.record_event(
            "fix", id=record.fix, cause=record.cause, title=title, action=event.action, paths=paths, diff=diff,
            backup=record.id,
        )  # fmt: skip
        self._applied = record.id if event.action == "applied" else ""
        self._show()
        said = "Applied to" if event.action == "applied" else "Taken back:"
        self.show_status(
            Content.assemble(
                status_sign("ok", self.ascii_only), safe_content(f" {said} {', '.join(map(relative_path, paths))}")
            )
        )

    def action_prove(self) -> None:
        if self.fix:
            self.query_one(ProgressLine).begin("proving", PROOF_LIMIT_S)
            self.run_worker(self._prove(self.fix), group="prove", exclusive=True)

    async def _prove(self, fix: Fix) -> None:
        from ...app.fixes.proof import prove_job, prove_probe

        try:
            if self._report and fix.patches:
                proof = await prove_job(self._report, fix, limit_s=PROOF_LIMIT_S)
            else:
                state = self.state
                proof = await prove_probe(self._entry, state.context(), state.knowledge, state.granted)
            self.post_message(self.ProofDone(proof))
        except UserError as error:
            self.post_message(self.FixFailed(error))

    @on(ProofDone)
    def _proved(self, event: ProofDone) -> None:
        proof = event.proof
        self.query_one(ProgressLine).end()
        self.state.record_event("proof", passed=proof.passed, what=proof.what, detail=proof.detail)
        self.state.proved = self.state.proved or proof.passed
        status, word = ("ok", "Proved") if proof.passed else ("fail", "Not proved")
        detail = ", ".join(proof.detail.splitlines())
        said = safe_content(f" {word} in {proof.elapsed_s:.0f} s: {proof.what}. {detail}")
        self.query_one("#proof", Static).update(Content.assemble(status_sign(status, self.ascii_only), said))

    def cancel_running(self) -> bool:
        cancelled = super().cancel_running()
        if cancelled:
            self.query_one(ProgressLine).end()
        return cancelled

    async def action_copy(self) -> None:
        if self.fix:
            try:
                name, content = part_as_text(self.fix, self._entry, self._part)
                self.show_status(await copy_to_clipboard(self.app, name, content))
            except UserError as error:
                self.wizard.show_error(error)

    def action_write(self) -> None:
        fix = self.fix
        if fix is None:
            return
        try:
            written = [write_new_file(f"{fix.id}.patch", fix.diff())] if fix.patches else []
            written += [write_new_file(Path(name).name, content) for name, content in fix.files.items()]
        except UserError as error:
            self.wizard.show_error(error)
            return
        self.state.record_event(
            "fix", id=fix.id, cause=fix.cause, title=fix.title, action="written", paths=list(map(str, written))
        )
        self.show_status(f"Written: {', '.join(relative_path(str(path)) for path in written)}")

    def _directory(self) -> Path:
        """Where new files go: where the job runs, else where we are."""
        processes = self._report.job.processes if self._report else []
        return Path(processes[0].cwd) if processes and processes[0].cwd else Path.cwd()

    async def action_quit(self) -> None:
        if self.state.proved:
            self.state.close()
        await super().action_quit()
