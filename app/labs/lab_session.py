"""A learner's way through one lab: run it, name the cause, see the wizard's evidence, repair it, prove it."""

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from ...knowledge.labs import Lab
from ...knowledge.schema import Knowledge
from ..errors import UserError
from ..triage.types import JobReport
from .lab_diagnosis import LabDiagnosis, Repair, apply_repair, diagnose_log, diagnose_run, repair_of
from .lab_run import LabRun, is_repaired, run_lab, shows_failure
from .progress import LabProgress, load_progress, save_progress
from .workspace import is_edited, labs_dir, make_workspace, reset_workspace, script_of

Outcome = Literal["proved", "not shown here", "still there"]
OnOutput = Callable[[str], None]
SHOWN_LINES = 3  # of the output of a run that is not repaired


class LabProof(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the run after the repair, and why."""

    outcome: Outcome
    what: str


class LabSession:
    """One lab in the learner's own ``directory``. What was done is kept for the next session."""

    def __init__(self, lab: Lab, knowledge: Knowledge, python: str, directory: Path | None = None) -> None:
        self.lab, self.knowledge, self.python = lab, knowledge, python
        self.directory = directory or labs_dir() / lab.cause
        self.run: LabRun | None = None
        self.found: LabDiagnosis | None = None
        self._repair: Repair | None = None
        self._progress = load_progress()
        make_workspace(lab, self.directory)

    @property
    def progress(self) -> LabProgress:
        """The state of this lab."""
        return self._progress.of(self.lab.cause)

    @property
    def choices(self) -> list[str]:
        """The ids of the causes to choose from; their order says nothing about the right one."""
        ids = {self.lab.cause, *self.lab.guesses} & self.knowledge.causes.keys()
        return sorted(ids, key=lambda id_: hashlib.sha256(f"{self.lab.cause} {id_}".encode()).digest())

    @property
    def script(self) -> Path:
        """The training script in the learner's directory."""
        return script_of(self.lab, self.directory)

    @property
    def is_edited(self) -> bool:
        """True if the learner has changed a file."""
        return is_edited(self.lab, self.directory)

    async def start(
        self, on_output: OnOutput | None = None, on_report: Callable[[JobReport], None] | None = None
    ) -> bool:
        """Run the lab as its files are now; return whether it failed as the lab shows, and diagnose it if so.

        Raises:
            UserError: The interpreter has no torch.
        """
        self.run = await run_lab(self.lab, self.directory, self.python, on_output=on_output, on_report=on_report)
        failed = shows_failure(self.lab, self.run)
        if failed:
            self.found = await asyncio.to_thread(diagnose_run, self.lab, self.run, self.directory, self.knowledge)
            self.progress.failed = True
            self._save()
        return failed

    def read_log(self) -> None:
        """Diagnose the log of a lab that runs nothing."""
        self.found = diagnose_log(self.directory, self.knowledge)
        self.progress.failed = True
        self._save()

    def next_hint(self) -> str:
        """Return the next hint; the last one again if there is no other."""
        self.progress.hints = min(self.progress.hints + 1, len(self.lab.hints))
        self._save()
        return self.lab.hints[self.progress.hints - 1]

    def guess(self, cause: str) -> bool:
        """Keep the cause that the learner names; return whether it is the right one."""
        self.progress.guess = cause
        self.progress.repaired = self.progress.repaired or (not self.lab.launch and cause == self.lab.cause)
        self._save()
        return cause == self.lab.cause

    def repair(self) -> Repair:
        """Return the fix that the wizard makes for the learner's files, or has made.

        Raises:
            UserError: The lab was not seen to fail, or the fix cannot be made.
        """
        if self._repair:
            return self._repair
        if self.found is None:
            raise UserError("the lab was not run yet", "run it first: the fix is made from what it shows")
        return repair_of(self.lab, self.found, self.directory, self.knowledge)

    def apply(self, repair: Repair) -> None:
        """Write the fix to the learner's files, and start the job as it asks from now on."""
        apply_repair(repair, self.directory)
        self._repair = repair

    async def prove(self, on_output: OnOutput | None = None) -> LabProof:
        """Run the lab once more, after the fix of the wizard or the learner's own edit.

        Raises:
            UserError: The interpreter has no torch.
        """
        launch, environ = (self._repair.launch, self._repair.environ) if self._repair else ("", {})
        run = await run_lab(self.lab, self.directory, self.python, launch=launch, environ=environ, on_output=on_output)
        if not is_repaired(self.lab, run):
            return LabProof(outcome="still there", what=_what_is_left(self.lab, run))
        if not self.progress.failed:
            return LabProof(outcome="not shown here", what="it was not seen to fail before: reset it and run it first")
        self.progress.repaired = True
        self._save()
        return LabProof(outcome="proved", what="it failed, and now every rank ends well with the right result")

    def reset(self) -> None:
        """Restore the files of the lab."""
        reset_workspace(self.lab, self.directory)
        self.run = self.found = self._repair = None

    def _save(self) -> None:
        save_progress(self._progress)


def _what_is_left(lab: Lab, run: LabRun) -> str:
    """Return what a run after the repair still shows."""
    if shows_failure(lab, run):
        return "it fails as before"
    if run.ending == "over its limit":
        return f"it did not end within {lab.within_s} s"
    last = " · ".join(line.strip() for line in run.output.splitlines()[-SHOWN_LINES:] if line.strip())
    return f"it ended with code {run.code}: {last}" if run.code else f"the result is not the expected one: {last}"
