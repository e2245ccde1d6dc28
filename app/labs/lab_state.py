"""The state of a learner's way through one lab: which step comes next, and what is possible."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from ...knowledge.labs import Lab
from ...knowledge.schema import Knowledge
from .lab_diagnosis import LabDiagnosis, command_text
from .lab_proof import LabProof
from .lab_run import LabRun
from .point import Point
from .progress import LabProgress, load_progress, save_progress
from .rank_output import PrintedError, first_printed_error
from .seen_failure import load_failure
from .workspace import free_name, is_edited, labs_dir, make_workspace, script_of

Stage = Literal["run", "answer", "repair", "prove", "done"]


class LabState:
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
            self.save()
        if lab.launch and not lab.question and (seen := load_failure(self.directory)):
            self.run, self.found = seen.run, seen.found

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
        if self.found is None and not self.ends_well_after_change:
            return "run"
        return "repair" if answered else "answer"

    @property
    def allowed(self) -> set[str]:
        """The actions that make sense now: run, run_original, reset, edit, hint, answer, apply, prove."""
        stage, runs = self.stage, bool(self.lab.launch)
        found = {"run", "reset", "edit"} if runs else set[str]()
        if runs and not self.lab.question and self.is_changed:
            found.add("run_original")
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
    def ends_well_after_change(self) -> bool:
        """True if the learner's copy was changed before it was seen to fail, and does not fail."""
        return self.found is None and self.run is not None and self.is_changed and not self.other_failure

    @property
    def first_error(self) -> PrintedError | None:
        """The first error that the last run which failed as the lab shows has printed."""
        timeline = self.found.context.timeline if self.found else None
        return first_printed_error(self.run.output, timeline) if self.run and timeline else None

    @property
    def measured(self) -> Mapping[str, Sequence[Point]]:
        """The numbers of the plot, by run."""
        return self.progress.measured

    def save(self) -> None:
        """Keep what was done for the next session.

        Raises:
            UserError: The state directory cannot be written.
        """
        progress = load_progress()  # with what other screens have saved
        progress.keep(self.lab.id, self.progress)
        save_progress(progress)
