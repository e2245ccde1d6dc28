"""One lab: its story and code, the run with a pane for each rank, the learner's guess, the evidence, the repair."""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget

from ...app.errors import UserError
from ...app.labs.phrases import (
    REFUSED,
    RESTORE_IT,
    question_text,
    restore_details,
    restored_text,
    resumed_text,
    wrong_answer_text,
)
from ...app.labs.progress import load_progress
from ...app.labs.rank_output import lines_by_rank
from ..dialogs.confirm import ConfirmDialog
from ..dialogs.pick import PickDialog
from ..dialogs.term_lookup import LookupMixin
from ..widgets.choices import Choice
from ..widgets.formatting import safe_content
from ..widgets.progress_line import ProgressLine
from ..widgets.scrolling import ScrolledText
from .lab_messages import LogRead
from .lab_parts import MAIN_ACTIONS
from .lab_runs import LabRunMixin
from .lab_tabs import LabTabs
from .refused_keys import RefusedKeysMixin

STEPS = ("run", "run_original", "reset", "edit", "hint", "answer", "apply", "prove")
SHOW_ANSWER = "show-answer"


class LabScreen(LookupMixin, LabRunMixin, RefusedKeysMixin):
    """A job that fails, to find out why and to repair it."""

    CSS_PATH = Path(__file__).with_name("lab.tcss")
    TITLE = "Lab"
    AUTO_FOCUS = "ScrolledText"
    ABOUT = (
        "Run the job and watch how it fails. Name the cause: hints help, and a wrong guess costs nothing. Then repair "
        "your copy, by hand or with the fix of the wizard, and prove it: the same job runs again. Enter does the next "
        "step; ← and → change the part that is shown."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "next_lab", "next lab", id="lab.next", tooltip="Open the next lab"),
        Binding("escape", "back", "labs", id="lab.back", tooltip="Stop the job, or go back to the labs"),
        # Priority, as the part that is scrolled has keys of the same names.
        Binding("right", "part(1)", "part", priority=True, id="lab.right", tooltip="Show the part to the right"),
        Binding(
            "left", "part(-1)", "part", show=False, priority=True, id="lab.left", tooltip="Show the part to the left"
        ),
        Binding("r", "run", "run it", id="lab.run", tooltip="Start the job as its files are now"),
        Binding(
            "o",
            "run_original",
            "original",
            id="lab.original",
            tooltip="Run the lab without your changes, apart from them",
        ),
        Binding("h", "hint", "hint", id="lab.hint", tooltip="Show the next of three hints"),
        Binding("g", "guess", "answer", id="lab.guess", tooltip="Choose the answer among similar ones"),
        Binding("a", "apply", "fix", id="lab.apply", tooltip="Show the fix, then apply it to your copy"),
        Binding("v", "prove", "prove", id="lab.prove", tooltip="Run the repaired job"),
        Binding("e", "edit", "edit", id="lab.edit", tooltip="Edit a file of your copy, or its command"),
        Binding("x", "reset", "restore", id="lab.reset", tooltip="Restore the files of the lab"),
        Binding("enter", "main", "next step", show=False, id="lab.main", tooltip="Do the next step of the lab"),
    ]

    def body(self) -> Iterable[Widget]:
        yield LabTabs(id="parts")
        yield ScrolledText(id="part")
        yield ProgressLine(self.ascii_only)

    def on_mount(self) -> None:
        same_as = self._entry.same_as and f"same as {self._entry.same_as}"
        self.show_header(f"Lab {self._entry.number}: {self._entry.lab.title}", same_as)
        self._take_kept_run()
        self.show_part("story")
        self.show_status("  ".join(filter(None, [resumed_text(self.session), self._next_keys()])))
        if not self._entry.lab.launch and self.session.found is None:
            self.call_after_refresh(self._begin_reading)

    def _take_kept_run(self) -> None:
        """Show the output of the run that is kept, or none."""
        run = self.session.run
        self._report, self._has_run = run.report if run else None, run is not None
        self._printed = lines_by_rank(run.output if run else "")
        self._launch = self.session.shown_launch

    def _begin_reading(self) -> None:
        self.run_worker(self._read_log())

    async def _read_log(self) -> None:
        await self.session.read_log()
        self.post_message(LogRead())

    @on(LogRead)
    def _log_read(self) -> None:
        self.show_part(self.part)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        done = MAIN_ACTIONS[self.session.stage] if action == "main" else action
        name = {"guess": "answer"}.get(done, done)
        if name in STEPS:
            return name in self.session.allowed and not self._job_runs
        if done == "next_lab":
            return (self.session.stage == "done" or self.session.progress.repaired) and not self._job_runs
        return super().check_action(action, parameters)

    def refusal(self) -> str:
        return "The job still runs: wait, or stop it with esc." if self._job_runs else self._next_keys()

    async def action_main(self) -> None:
        await self.run_action(MAIN_ACTIONS[self.session.stage])

    async def action_next_lab(self) -> None:
        if following := self.state.course.next_lab(self._entry.number, load_progress()):
            await self.wizard.back()
            await self.wizard.open("lab", entry=following)
        else:
            self.show_status("This is the last lab. esc: back to the labs")

    async def action_back(self) -> None:
        if not self.cancel_running():
            await super().action_back()

    def action_part(self, step: int) -> None:
        super().action_part(step)
        self.forget_refusal()

    # -- the learner's answers

    def action_hint(self) -> None:
        hint = self.session.next_hint()
        self.show_status(f"Hint {self.session.progress.hints} of {len(self._entry.lab.hints)}: {hint}")

    def action_guess(self) -> None:
        refused = () if self._entry.lab.question else self.session.progress.refused
        rows = [
            Choice(id_, safe_content(title), safe_content(REFUSED, "$muted") if id_ in refused else "")
            for id_, title in self.session.choices.items()
        ]
        if not self._entry.lab.question:
            rows.append(Choice(SHOW_ANSWER, Content.styled("Show the answer", "$muted")))
        self.app.push_screen(PickDialog(question_text(self.session), rows), callback=self._guessed)

    def _guessed(self, choice: str | None) -> None:
        if choice is None:
            return
        if choice == SHOW_ANSWER:
            self.session.show_answer()
        right = choice != SHOW_ANSWER and self.session.answer(choice)
        if self._entry.lab.question:
            self.keys_changed()
            self.show_status("Kept. r: run it, and see")
        elif right or choice == SHOW_ANSWER:
            self.show_part("evidence")
            self.show_status(f"{'Right. ' if right else ''}{self._next_keys()}")
        else:
            self.show_status(f"{wrong_answer_text(self.session, choice)}  h: a hint")

    # -- the repair

    def show_edited(self, part: str, done: str = "") -> None:
        self.forget_repair()
        self.show_part(part)
        self.show_status(f"{done}  {self._next_keys()}" if done else self._next_keys())

    def action_reset(self) -> None:
        if self.session.is_changed:
            details = restore_details(self.session)
            self.app.push_screen(ConfirmDialog(RESTORE_IT, yes="Restore them", details=details), callback=self._reset)
        else:
            self._reset(True)

    def _reset(self, confirmed: bool | None) -> None:
        if not confirmed:
            return
        try:
            backup = self.session.reset()
        except UserError as error:
            self.wizard.show_error(error)
            return
        self.forget_repair()
        self._take_kept_run()
        self.show_part("story")
        self.show_status(f"{restored_text(backup)}  {self._next_keys()}")
