"""A screen with a field for the model, which code of the user's own may build: asked for, then built in a child."""

from pathlib import Path

from textual import on
from textual.message import Message
from textual.widgets import Input

from ...app.commands.common import target_python
from ...app.errors import UserError
from ...app.plan import sources
from ...app.plan.model import factory
from ..confirm import Confirm
from ..widgets.words import text
from .child import WaitsForChild

LIMITS = f"It runs in a child of that interpreter, which has {factory.LIMIT_S:.0f} s, 24 GiB of memory and no network."


class BuildsModel(WaitsForChild):
    """Enter in the field ``model`` says what would be imported, and asks; the answer is kept on the desk."""

    class Built(Message):
        """A function of the user's was asked for the model, which it may have given."""

        def __init__(self, spec: str, found: sources.Source | UserError) -> None:
            super().__init__()
            self.spec, self.found = spec, found

    def ask_again(self) -> None:
        """Plan anew: the model may be known now."""
        raise NotImplementedError

    @on(Input.Submitted, "#model")
    def _entered(self, event: Input.Submitted) -> None:
        spec = event.value.strip()
        if not sources.is_code(spec) or isinstance(self.desk.plan_built.get(spec), sources.Source):
            return
        try:
            factory.check(spec)
            python = target_python(self.desk.options)
        except UserError as error:
            self.wizard.refuse(error)
            return
        importing = sources.importing(spec, Path.cwd(), python)
        question = Confirm(
            f"Import {spec.partition(':')[0]} to build the model?",
            yes="Yes, import it",
            details=f"It means {importing}. {LIMITS}",
        )
        self.wizard.push_screen(question, callback=lambda yes: self._build(spec, python) if yes else None)

    def _build(self, spec: str, python: str) -> None:
        self.begin(f"building {spec}", factory.LIMIT_S, self._built(spec, python))

    async def _built(self, spec: str, python: str) -> None:
        try:
            self.post_message(self.Built(spec, await sources.built(spec, Path.cwd(), python)))
        except UserError as error:
            self.post_message(self.Built(spec, error))

    @on(Built)
    def _was_built(self, event: Built) -> None:
        self.ended()
        self.desk.plan_built[event.spec] = event.found
        if isinstance(event.found, sources.Source) and event.found.told:
            self.say(text(f"assumed {'; '.join(event.found.told)}", "$muted"))
        self.ask_again()
