"""A learner's way through one lab: run it, name the cause, see the wizard's evidence, repair it, prove it."""

import asyncio
import hashlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from ...knowledge.labs import Lab
from ...knowledge.schema import Knowledge
from ..errors import UserError
from ..fixes.records import AppliedFix
from ..triage.types import JobReport
from .lab_diagnosis import (
    LabDiagnosis,
    Repair,
    apply_repair,
    command_text,
    diagnose_log,
    diagnose_run,
    read_machine,
    repair_of,
)
from .lab_proof import LabProof, missed_repair, right_end
from .lab_run import LabRun, is_repaired, run_lab, shows_failure
from .plot import BROKEN, MEASURED, REPAIRED, Point, measured_points
from .progress import LabProgress, load_progress, save_progress
from .workspace import free_name, is_edited, labs_dir, make_workspace, reset_workspace, script_of

VARIABLE = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.ASCII | re.DOTALL)
Stage = Literal["run", "answer", "repair", "prove", "done"]
OnOutput = Callable[[str], None]


class LabSession:
    """One lab in the learner's own ``directory``, by default one that is named by its ``number``.

    What was done is kept for the next session.
    """

    def __init__(
        self, lab: Lab, knowledge: Knowledge, python: str, directory: Path | None = None, number: str = ""
    ) -> None:
        self.lab, self.knowledge, self.python = lab, knowledge, python
        self.run: LabRun | None = None
        self.found: LabDiagnosis | None = None
        self.proof: LabProof | None = None
        self.other_failure = ""  # of a run that did not fail as the lab shows
        self.progress: LabProgress = load_progress().of(lab.id)
        name = self.progress.directory or free_name(lab.id, number)
        self.directory = directory or labs_dir() / name
        make_workspace(lab, self.directory)
        if directory is None and not self.progress.directory:
            self.progress.directory = name
            self._save()

    @property
    def stage(self) -> Stage:
        """The step that comes next."""
        answered = self.progress.answered
        if self.lab.question:
            return "answer" if not answered else "run" if self.run is None else "done"
        if not self.lab.launch:
            return "done" if answered else "answer"
        if self.proof and self.proof.outcome == "proved":
            return "done"
        if answered and self.is_changed:
            return "prove"
        if self.found is None:
            return "run"
        return "repair" if answered else "answer"

    @property
    def allowed(self) -> set[str]:
        """The actions that make sense now: run, reset, edit, hint, answer, apply, prove."""
        stage, runs = self.stage, bool(self.lab.launch)
        found = {"run", "reset", "edit"} if runs else set[str]()
        if not self.progress.answered:
            found.add("hint")
        if stage == "answer":
            found.add("answer")
        if stage == "repair" and not self.lab.question:
            found.add("apply")
        if stage == "prove" or (stage == "done" and self.proof):
            found.add("prove")
        return found - {"run"} if self.lab.question and stage == "answer" else found

    @property
    def choices(self) -> dict[str, str]:
        """The answers to choose from, by id; their order says nothing about the right one."""
        if question := self.lab.question:
            found = {answer: answer for answer in (question.right, *question.wrong)}
        else:
            causes = self.knowledge.causes
            found = {id_: causes[id_].title for id_ in (self.lab.cause, *self.lab.guesses) if id_ in causes}
        order = sorted(found, key=lambda id_: hashlib.sha256(f"{self.lab.id} {id_}".encode()).digest())
        return {id_: found[id_] for id_ in order}

    @property
    def right_answer(self) -> str:
        """The id of the right choice."""
        return self.lab.question.right if self.lab.question else self.lab.cause

    @property
    def launch(self) -> str:
        """The command line that starts the learner's copy now."""
        return self.progress.launch or self.lab.launch

    @property
    def command(self) -> str:
        """The command line that starts the learner's copy now, with the variables of an applied fix before it."""
        return command_text(self.launch, self.progress.environ)

    @property
    def shown_launch(self) -> str:
        """The command line that started the run whose output is kept, else the one that starts the copy now."""
        return self.run.launch if self.run and self.run.launch else self.launch

    @property
    def script(self) -> Path:
        """The training script in the learner's directory."""
        return script_of(self.lab, self.directory)

    @property
    def is_edited(self) -> bool:
        """True if a file of the learner's directory differs from that of the lab."""
        return is_edited(self.lab, self.directory)

    @property
    def is_changed(self) -> bool:
        """True if the job of the learner is not the one of the lab any more: edited, or started in another way."""
        return self.is_edited or bool(self.progress.launch or self.progress.environ)

    @property
    def measured(self) -> Mapping[str, Sequence[Point]]:
        """The numbers of the plot, by run."""
        return self.progress.measured

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
                self._save()
            else:
                self.run = None
            return shown
        failed = shows_failure(self.lab, self.run)
        self.other_failure = ""
        if not failed and (self.run.code or self.run.ending == "over its limit"):
            self.other_failure = (await asyncio.to_thread(missed_repair, self.lab, self.run, self.knowledge)).what
        if failed:
            machine = await read_machine(self.python, self.knowledge)
            self.found = await asyncio.to_thread(
                diagnose_run, self.lab, self.run, self.directory, self.knowledge, machine
            )
            self.progress.failed = True
            self._measure(BROKEN, self.run)
            self._save()
        return failed

    async def read_log(self) -> None:
        """Diagnose the log of a lab that runs nothing."""
        self.found = await asyncio.to_thread(diagnose_log, self.directory, self.knowledge)
        self.progress.failed = True
        self._save()

    def next_hint(self) -> str:
        """Return the next hint; the last one again if there is no other."""
        self.progress.hints = min(self.progress.hints + 1, len(self.lab.hints))
        self._save()
        return self.lab.hints[self.progress.hints - 1]

    def answer(self, choice: str) -> bool:
        """Keep the answer of the learner; return whether it is right. A prediction counts, right or not."""
        right = choice == self.right_answer
        self.progress.guess = choice
        self.progress.answered = right or bool(self.lab.question)
        self.progress.repaired = self.progress.repaired or (right and not self.lab.launch)
        self._save()
        return right

    def show_answer(self) -> None:
        """Keep that the answer was shown."""
        self.progress.answered = True
        self._save()

    def repair(self) -> Repair:
        """Return the fix that the wizard makes for the learner's files.

        Raises:
            UserError: The lab was not seen to fail, or the fix cannot be made.
        """
        if self.found is None:
            raise UserError("the lab was not run yet", "run it first: the fix is made from what it shows")
        return repair_of(self.lab, self.found, self.directory, self.knowledge)

    def apply(self, repair: Repair) -> AppliedFix | None:
        """Write the fix to the learner's files, and start the job as it asks from now on; return what was written.

        Raises:
            UserError: A file changed since the fix was made, or cannot be written.
        """
        applied = apply_repair(repair, self.directory)
        self.progress.launch, self.progress.environ = repair.fix.start, repair.environ
        self._save()
        return applied

    def start_by(self, line: str) -> None:
        """Start the learner's copy by this command line from now on; variables may be set before it, as in a shell.

        Raises:
            UserError: It is no command line.
        """
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise UserError(f"no command line: {error}", "close the quotes") from error
        environ: dict[str, str] = {}
        while words and (found := VARIABLE.fullmatch(words[0])):
            environ[found["name"]] = found["value"]
            del words[0]
        if not words:
            raise UserError("no command line: it starts no program", f"for example: {self.lab.launch}")
        launch = shlex.join(words)
        own = launch == shlex.join(shlex.split(self.lab.launch)) and not environ
        self.progress.launch, self.progress.environ = ("", {}) if own else (launch, environ)
        self.proof = None
        self._save()

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
            return LabProof(outcome="not shown here", what="it was not seen to fail before: reset it and run it first")
        self.progress.repaired = True
        self._measure(REPAIRED, run)
        self._save()
        return LabProof(outcome="proved", what=f"it failed, and now {right_end(self.lab)}")

    def reset(self) -> None:
        """Restore the files of the lab."""
        reset_workspace(self.lab, self.directory)
        self.run = self.found = self.proof = None
        self.progress.forget_repair()
        self._save()

    def _measure(self, name: str, run: LabRun) -> None:
        if self.lab.plot:
            self.progress.measured[name] = measured_points(self.lab.plot, run.output)

    def _save(self) -> None:
        progress = load_progress()  # with what other screens have saved
        progress.keep(self.lab.id, self.progress)
        save_progress(progress)
