"""The proof of the fix that is shown: its plan, the question before it, its progress and its result."""

from typing import TYPE_CHECKING

from textual import on
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from ...app.errors import UserError
from ...app.fixes.types import Fix
from ..dialogs.ask_line import AskLineDialog
from ..dialogs.confirm import ConfirmDialog
from ..shell.base import WizardScreen
from ..shell.proof_run import ProofRun
from ..widgets.formatting import safe_content, status_sign
from ..widgets.progress_line import TICK_S, ProgressLine

if TYPE_CHECKING:
    from ...app.fixes.flow import FixFlow
    from ...app.fixes.proof_plan import ProofPlan
    from ..shell.state import FixKey

EXAMPLE_COMMAND = "torchrun --nproc-per-node=2 train.py"
NO_PROOF = "no check here can show it: start your job again with the fix"


class FixProofMixin(WizardScreen):
    """A screen that shows one ``fix`` of a ``flow``, with its proof in ``#proof`` and in the progress line.

    The proof belongs to the fix: it goes on, and its result is kept, when another fix or screen is shown.
    """

    class ProofPlanned(Message):
        """The run for proof is planned and waits for a confirmation."""

        def __init__(self, fix: Fix, plan: "ProofPlan") -> None:
            super().__init__()
            self.fix, self.plan = fix, plan

    _proof_shown = False

    @property
    def fix(self) -> Fix | None:
        """The fix that is shown."""
        raise NotImplementedError

    def flow(self) -> "FixFlow":
        """Return the fixes of the cause in this case."""
        raise NotImplementedError

    def fix_key(self, fix: Fix) -> "FixKey":
        """Return the key under which the state keeps the proof of a fix."""
        raise NotImplementedError

    def applied_note(self, fix: Fix) -> Content:
        """Return the note that a fix is applied, shown after how it can be proved."""
        raise NotImplementedError

    def action_prove(self) -> None:
        fix = self.fix
        if fix is None or self._proof_run:
            return
        kind = self.flow().proof_kind(fix)
        if kind == "probe":
            self._start_proof(fix, None)
        elif kind == "command":
            files = "with this fix in a copy of the files" if fix.patches else "with the files as they are now"
            question = AskLineDialog(
                "Which command starts it?",
                details=f"The command is started in {self.flow().directory}, {files}.",
                value=self.flow().start_command(fix),
                placeholder=f"such as {EXAMPLE_COMMAND}",
            )
            self.app.push_screen(question, callback=lambda line: self._plan_proof(fix, line) if line else None)
        else:
            self._plan_proof(fix, "")

    def _plan_proof(self, fix: Fix, command: str) -> None:
        async def plan() -> None:
            try:
                planned = await self.flow().plan_proof(fix, command, self.state.context().python)
            except UserError as error:
                self.wizard.show_error(error)
            else:
                if planned:
                    self.post_message(self.ProofPlanned(fix, planned))

        self.run_worker(plan(), group="plan", exclusive=True)

    @on(ProofPlanned)
    def _confirm_proof(self, event: ProofPlanned) -> None:
        from ...app.fixes.proof_plan import question_lines

        question = ConfirmDialog(
            "Start this job to prove the fix?", yes="Yes, start it", details="\n".join(question_lines(event.plan))
        )
        self.app.push_screen(question, callback=lambda yes: self._start_proof(event.fix, event.plan) if yes else None)

    def _start_proof(self, fix: Fix, plan: "ProofPlan | None") -> None:
        run = ProofRun(self.flow().limit_s(plan))
        self.state.proof_runs[self.fix_key(fix)] = run
        # A worker of the app: it goes on when this screen is left.
        context = self.state.context(run.show_progress)
        run.worker = self.app.run_worker(run.prove(self.flow(), fix, plan, context, self.state.granted), group="prove")
        self.show_status("")  # an earlier attempt may have failed
        self.query_one("#proof", Static).update("")
        self.show_proof_of_fix()

    @property
    def _proof_run(self) -> "ProofRun | None":
        """The proof of the fix shown, if it runs now."""
        run = self.state.proof_runs.get(self.fix_key(self.fix)) if self.fix else None
        return run if run and run.is_running else None

    def on_mount(self) -> None:
        self.set_interval(TICK_S, self._show_proof)

    def show_proof_of_fix(self) -> None:
        """Show the proof of the fix that is shown now."""
        self._proof_shown = False
        self._show_proof()

    def _show_proof(self) -> None:
        """Show what the proof of this fix does now, or its result."""
        line = self.query_one(ProgressLine)
        if run := self._proof_run:
            line.begin(run.text, run.limit_s, run.since)
            return
        if self._proof_shown:
            return
        line.end()
        if self.fix:
            self.query_one("#proof", Static).update(self._proof_content(self.fix))
            self._proof_shown = True

    def cancel_running(self) -> bool:
        run = self._proof_run
        if run and run.worker and self.fix:
            run.worker.cancel()
            del self.state.proof_runs[self.fix_key(self.fix)]
        cancelled = super().cancel_running() or bool(run)
        if cancelled:
            self.query_one(ProgressLine).end()
        return cancelled

    def _proof_content(self, fix: Fix) -> Content:
        """Return the result of the proof of a fix, or how it can be proved."""
        run = self.state.proof_runs.get(self.fix_key(fix))
        if run and run.error:
            return safe_content(str(run.error), "$error")
        if run and run.result:
            result = run.result.as_of_now()
            detail = ", ".join(result.detail.splitlines())
            sign = status_sign(result.status, self.ascii_only)
            return Content.assemble(sign, safe_content(f" {result.summary.removesuffix('.')}. {detail}".rstrip()))
        how = safe_content(self.flow().proof_text(fix) or NO_PROOF)
        return Content.assemble(("Proof: ", "$muted"), how, self.applied_note(fix))
