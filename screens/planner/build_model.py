"""Mixins for screens that wait for a child process, and for one whose model a function of the user's own may build."""

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from textual import on
from textual.message import Message
from textual.widgets import Input

from ...app.errors import UserError
from ...app.options import target_python
from ...app.plan import model_source
from ...app.plan.model import from_code
from ..dialogs.confirm import ConfirmDialog
from ..shell.base import WizardScreen
from ..widgets.formatting import safe_content
from ..widgets.progress_line import ProgressLine

CHILD = "child"  # group of the worker that waits


class ChildProcessMixin(WizardScreen):
    """The body of the screen holds ``running_line``, which is hidden while nothing runs."""

    def running_line(self) -> ProgressLine:
        running = ProgressLine(self.ascii_only)
        running.display = False
        return running

    def begin(self, what: str, limit_s: float, work: Coroutine[Any, Any, None]) -> None:
        """Wait for a child in a worker; it replaces one that runs."""
        running = self.query_one(ProgressLine)
        running.begin(what, limit_s)
        running.display = True
        self.run_worker(work, group=CHILD, exclusive=True)

    def child_done(self) -> None:
        """Hide the line: the child has answered or was cancelled."""
        running = self.query_one(ProgressLine)
        running.end()
        running.display = False

    def cancel_running(self) -> bool:
        cancelled = super().cancel_running()
        if cancelled:
            self.child_done()
        return cancelled

    async def action_back(self) -> None:
        if self.query_one(ProgressLine).display:
            self.workers.cancel_group(self, CHILD)
            self.child_done()
            self.show_status("Cancelled.")
        else:
            await super().action_back()


LIMITS = (
    f"It runs in a child of that interpreter, which has {from_code.LIMIT_S:.0f} s, 24 GiB of memory and no network."
)


class BuildModelMixin(ChildProcessMixin):
    """Enter in the field ``model`` shows what would be imported, and asks; the wizard state keeps the result."""

    class Built(Message):
        """A function of the user's own built the model, or failed."""

        def __init__(self, spec: str, found: model_source.ModelSource | UserError) -> None:
            super().__init__()
            self.spec, self.found = spec, found

    def ask_again(self) -> None:
        """Plan again: the model may be known now."""
        raise NotImplementedError

    @on(Input.Submitted, "#model")
    def _entered(self, event: Input.Submitted) -> None:
        spec = event.value.strip()
        if not model_source.is_factory(spec) or isinstance(self.state.plan_built.get(spec), model_source.ModelSource):
            return
        try:
            from_code.check_factory(spec)
            python = target_python(self.state.options)
        except UserError as error:
            self.wizard.show_error(error)
            return
        importing = model_source.import_notice(spec, Path.cwd(), python)
        question = ConfirmDialog(
            f"Import {spec.partition(':')[0]} to build the model?",
            yes="Yes, import it",
            details=f"This means {importing}. {LIMITS}",
        )
        self.app.push_screen(question, callback=lambda yes: self._build(spec, python) if yes else None)

    def _build(self, spec: str, python: str) -> None:
        self.begin(f"building {spec}", from_code.LIMIT_S, self._built(spec, python))

    async def _built(self, spec: str, python: str) -> None:
        try:
            self.post_message(self.Built(spec, await model_source.build_from_factory(spec, Path.cwd(), python)))
        except UserError as error:
            self.post_message(self.Built(spec, error))

    @on(Built)
    def _was_built(self, event: Built) -> None:
        self.child_done()
        self.state.plan_built[event.spec] = event.found
        if isinstance(event.found, model_source.ModelSource) and event.found.notes:
            self.show_status(safe_content(f"assumed {'; '.join(event.found.notes)}", "$muted"))
        self.ask_again()
