"""A learner's way through one lab: run it, name the cause, see the wizard's evidence, repair it, prove it."""

import asyncio
import shlex
from collections.abc import Callable
from pathlib import Path

from ..errors import UserError
from ..fixes.apply import apply_fix
from ..fixes.records import AppliedFix
from ..triage.types import JobReport
from .lab_diagnosis import Repair, apply_repair, diagnose_log, diagnose_run, read_machine, repair_of
from .lab_proof import LabProof, missed_repair, right_end, what_is_missing
from .lab_run import LabRun, is_repaired, run_lab, shows_failure
from .lab_state import LabState
from .plot import BROKEN, MEASURED, REPAIRED, measured_points
from .seen_failure import SeenFailure, forget_failure, load_failure, save_failure
from .start_command import parse_start
from .workspace import make_original, reset_workspace, restoring_fix

OnOutput = Callable[[str], None]


class LabSession(LabState):
    """The steps of a lab."""

    async def start(
        self, on_output: OnOutput | None = None, on_report: Callable[[JobReport], None] | None = None
    ) -> bool:
        """Run the learner's copy as it is now: its files, and the command line that an applied fix has changed.

        Return whether it failed as the lab shows, and diagnose it if so.

        A lab that only measures returns whether it has measured.

        Raises:
            UserError: The interpreter has no torch.
        """
        self.proof = None
        self.run = await self._run_copy(on_output, on_report)
        if self.lab.question:
            shown = is_repaired(self.lab, self.run)
            if shown:
                self.progress.repaired = self.progress.guess == self.right_answer
                self._measure(MEASURED, self.run)
                self.save()
            else:
                self.run = None
            return shown
        failed = await self._keep_failure(self.run, self.directory)
        self.other_failure = ""
        if not failed and (self.run.code or self.run.ending != "ended"):
            self.other_failure = (await asyncio.to_thread(missed_repair, self.lab, self.run, self.knowledge)).what
        return failed

    async def start_original(
        self, on_output: OnOutput | None = None, on_report: Callable[[JobReport], None] | None = None
    ) -> None:
        """Run the files of the lab, and its own command, apart from the learner's copy; diagnose its failure.

        Raises:
            UserError: The interpreter has no torch, or the job did not fail.
        """
        directory = make_original(self.lab, self.directory)
        run = await run_lab(self.lab, directory, self.python, on_output=on_output, on_report=on_report)
        if not await self._keep_failure(run, directory):
            raise UserError("the original did not fail this time", "run it again")

    async def _keep_failure(self, run: LabRun, directory: Path) -> bool:
        """Return whether a run failed as the lab shows; if so, diagnose and keep it."""
        if not shows_failure(self.lab, run):
            return False
        machine = await read_machine(self.python, self.knowledge)
        self.found = await asyncio.to_thread(diagnose_run, self.lab, run, directory, self.knowledge, machine)
        self.run, self.other_failure = run, ""
        of_original = directory != self.directory or not self.is_changed
        save_failure(self.directory, SeenFailure(run=run, found=self.found, of_original=of_original))
        self.progress.failed = True
        self._measure(BROKEN, run)
        self.save()
        return True

    async def read_log(self) -> None:
        """Diagnose the log of a lab that runs nothing."""
        self.found = await asyncio.to_thread(diagnose_log, self.directory, self.knowledge)

    def next_hint(self) -> str:
        """Return the next hint; the last one again if there is no other."""
        self.progress.hints = min(self.progress.hints + 1, len(self.lab.hints))
        self.save()
        return self.lab.hints[self.progress.hints - 1]

    def answer(self, choice: str) -> bool:
        """Keep the answer of the learner; return whether it is right. A prediction counts, right or not."""
        right = choice == self.right_answer
        self.progress.guess = choice
        if not right and choice not in self.progress.refused:
            self.progress.refused.append(choice)
        self.progress.answered = right or bool(self.lab.question)
        self.progress.repaired = self.progress.repaired or (right and not self.lab.launch)
        self.save()
        return right

    def show_answer(self) -> None:
        """Keep that the learner had the answer shown, if it was not found before."""
        self.progress.answer_shown = self.progress.answer_shown or not self.progress.answered
        self.progress.answered = True
        self.save()

    def repair(self) -> Repair:
        """Return the fix that the wizard makes for the learner's files.

        Raises:
            UserError: The lab was not seen to fail, or the fix cannot be made.
        """
        if self.found is None:
            raise UserError("the lab was not run yet", "run it first: the fix is made from what it shows")
        if self.run and self.found.context.directory != str(self.directory):  # that of the original
            machine = self.found.context.snapshot
            self.found = diagnose_run(self.lab, self.run, self.directory, self.knowledge, machine)
        return repair_of(self.lab, self.found, self.directory, self.knowledge)

    def apply(self, repair: Repair) -> AppliedFix | None:
        """Write the fix to the learner's files, and start the job as it asks from now on; return what was written.

        Raises:
            UserError: A file changed since the fix was made, or cannot be written.
        """
        applied = apply_repair(repair, self.directory)
        self.progress.launch, self.progress.environ = repair.fix.start, repair.environ
        self.save()
        return applied

    def start_by(self, line: str) -> None:
        """Start the learner's copy by this command line from now on; variables may be set before it, as in a shell.

        Raises:
            UserError: It is no command line.
        """
        launch, environ = parse_start(line, self.lab.launch)
        own = launch == shlex.join(shlex.split(self.lab.launch)) and not environ
        self.progress.launch, self.progress.environ = ("", {}) if own else (launch, environ)
        self.proof = None
        self.save()

    async def prove(self, on_output: OnOutput | None = None) -> LabProof:
        """Run the lab once more, after the fix of the wizard or the learner's own edit.

        Raises:
            UserError: The interpreter has no torch.
        """
        run = await self._run_copy(on_output, should_end=True)
        self.proof = await asyncio.to_thread(self._judge, run)
        return self.proof

    async def _run_copy(
        self,
        on_output: OnOutput | None,
        on_report: Callable[[JobReport], None] | None = None,
        should_end: bool = False,
    ) -> LabRun:
        """Run the learner's copy by the command that starts it now."""
        return await run_lab(
            self.lab,
            self.directory,
            self.python,
            launch=self.progress.launch,
            environ=self.progress.environ,
            on_output=on_output,
            on_report=on_report,
            should_end=should_end,
        )

    def _judge(self, run: LabRun) -> LabProof:
        if not is_repaired(self.lab, run):
            return missed_repair(self.lab, run, self.knowledge)
        if not self.progress.failed:
            return LabProof(outcome="not shown here", what="the original was not seen to fail: run it first")
        self.progress.repaired = True
        self._measure(REPAIRED, run)
        self.save()
        what = f"it failed, and now {right_end(self.lab, run)}"
        missing = what_is_missing(self.lab, self.directory, self.knowledge)
        return LabProof(outcome="proved", what=f"{what}. {missing}" if missing else what)

    def reset(self) -> AppliedFix | None:
        """Restore the files of the lab; return the backup of those that were edited, which ``undo`` takes back.

        A cause that was named stays named, and a failure of the restored files stays seen.

        Raises:
            UserError: A file cannot be read or written.
        """
        backup = apply_fix(restoring_fix(self.lab, self.directory), self.directory) if self.is_edited else None
        seen = load_failure(self.directory)
        reset_workspace(self.lab, self.directory)
        self.run = self.found = self.proof = None
        if seen and seen.of_original:
            self.run, self.found = seen.run, seen.found
            save_failure(self.directory, seen)
        else:
            forget_failure(self.directory)
        self.other_failure = ""
        self.progress.forget_repair()
        if self.lab.question:
            self.progress.answered = False  # a prediction belongs to its run
        self.save()
        return backup

    def _measure(self, name: str, run: LabRun) -> None:
        if self.lab.plot:
            self.progress.measured[name] = measured_points(self.lab.plot, run.output)
