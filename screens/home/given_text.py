"""Mixin for screens that take a text or a path into the case; escape and ctrl+c cancel the reading of a file."""

from textual.content import Content

from ...app.diagnosis.given_text import Given, classify_given
from ...app.errors import UserError
from ...app.system.paths import relative_to_cwd
from ..shell.base import WizardScreen

READING = "reading"  # group of the worker that reads a file


class GivenTextMixin(WizardScreen):
    """``reading``: a file is being read."""

    reading = False

    async def take(self, text: str, origin: str, *, new_case: bool = False) -> None:
        """Search for a term, or read a description, or begin to read the file at a path; show the diagnosis after it.

        ``new_case``: what was read begins a case.
        """
        try:
            given = classify_given(text)
            if given.kind == "term":
                await self.wizard.open("browse", words=given.value)
            elif given.kind == "text":
                await self._read(given, origin, new_case)
            else:
                self.reading = True
                name = relative_to_cwd(given.value)
                self.show_status(Content.assemble(("● ", "$accent"), (f"reading {name}   esc cancels", "$muted")))
                self.run_worker(self._read(given, origin, new_case), group=READING, exclusive=True)
        except UserError as error:
            self.wizard.show_error(error)

    async def _read(self, given: Given, origin: str, new_case: bool) -> None:
        from ..shell.take_text import read_given, read_in_thread, take_content

        knowledge = self.state.knowledge
        try:
            is_file = given.kind != "text"
            content = await read_in_thread(given, knowledge) if is_file else read_given(given, origin, knowledge)
        except UserError as error:
            self.wizard.show_error(error)
            return
        finally:
            self.reading = False
        if new_case:
            self.state.begin()
        await self.wizard.open("diagnosis", status=take_content(self.state, content))

    def cancel_reading(self) -> bool:
        """Cancel the reading of a file, and return whether one was read."""
        was_reading, self.reading = self.reading, False
        self.workers.cancel_group(self, READING)
        return was_reading

    async def action_back(self) -> None:
        if self.cancel_reading():
            self.show_status("Cancelled.")
        else:
            await super().action_back()
