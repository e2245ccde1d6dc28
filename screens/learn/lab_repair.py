"""Mixin for the screen of a lab: make the fix of the wizard in a thread, show it, then apply it as it was shown."""

import asyncio

from textual import on

from ...app.errors import UserError
from ...app.labs.lab_diagnosis import Repair
from ...app.labs.phrases import applied_text, repair_question
from .lab_editing import LabEditMixin
from .lab_messages import RepairMade

REPAIR = "repair"  # group of the worker that makes it


class LabRepairMixin(LabEditMixin):
    """``a``: show the fix; once it is shown, apply it."""

    part = "story"  # the part that is shown
    repair: Repair | UserError | None = None  # None: not made yet for the files as they are now
    _question_follows = False  # it was asked for before it was made

    def show_part(self, part: str) -> None:
        """Show a part of the lab."""
        raise NotImplementedError

    def make_repair(self) -> None:
        """Make the fix, unless it is made or is being made: a review of the script takes longer than a key may."""
        if self.repair is None and not any(each.group == REPAIR and not each.is_finished for each in self.workers):
            self.run_worker(self._make_repair(), group=REPAIR)

    def forget_repair(self) -> None:
        """Forget the fix, as the files it was made for have changed."""
        self.workers.cancel_group(self, REPAIR)
        self.repair, self._question_follows = None, False

    async def _make_repair(self) -> None:
        try:
            made = await asyncio.to_thread(self.session.repair)
        except UserError as error:
            self.post_message(RepairMade(error))
        else:
            self.post_message(RepairMade(made))

    @on(RepairMade)
    def _repair_made(self, event: RepairMade) -> None:
        self.repair = event.repair
        if self.part == "fix":
            self.show_part("fix")
            if self._question_follows:
                self._ask()

    def _ask(self) -> None:
        self._question_follows = False
        if isinstance(self.repair, Repair):
            self.show_status(f"{repair_question(self.repair)}  a: yes")
        elif self.repair:
            self.wizard.show_error(self.repair)

    def action_apply(self) -> None:
        repair = self.repair
        if self.part != "fix" or not isinstance(repair, Repair):
            self._question_follows = repair is None
            self.show_part("fix")
            if repair:
                self._ask()
            return
        try:
            applied = self.session.apply(repair)
        except UserError as error:
            self.forget_repair()
            self.wizard.show_error(error)
            return
        self.show_edited("code" if applied else "story", applied_text(applied))
