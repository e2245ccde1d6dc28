"""The command palette: the actions of the screen below, and the screens to go to."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input

from ...app.diagnosis.symptoms import TASKS
from ..shell.base import WizardScreen
from ..widgets.choices import Choice, Choices
from ..widgets.header_footer import KEY_NAMES
from ..widgets.line_input import LineInput

SCREENS_TO_OPEN = {
    "home": "Go home",
    "paste": "Read an error, a log or a description",
    "triage": "Inspect the running jobs",
    **TASKS,
}


class Command(NamedTuple):
    """An action: its name, its keys, and the node that runs it."""

    id: str
    name: str
    keys: str
    action: str
    node: Any


def available_commands(screen: WizardScreen) -> list[Command]:
    """Return the actions available on ``screen`` now, its own first, without those that only move in a list."""
    found: dict[str, Command] = {}
    for key, active in screen.active_bindings.items():
        binding = active.binding
        if binding.id and not binding.id.startswith("list.") and binding.id not in found:
            name = f"{binding.description[:1].upper()}{binding.description[1:]}: {binding.tooltip}"
            found[binding.id] = Command(binding.id, name, KEY_NAMES.get(key, key), binding.action, active.node)
    goes = [Command(f"go.{place}", name, "", f"app.open('{place}')", screen) for place, name in SCREENS_TO_OPEN.items()]
    return [*found.values(), *goes]


class PaletteScreen(WizardScreen):
    """Search the actions by name and run one on the screen below."""

    CSS_PATH = Path(__file__).with_name("command_palette.tcss")
    TITLE = "All commands"
    AUTO_FOCUS = "LineInput"
    ABOUT = "Type part of the name of an action. The arrow keys choose, enter runs it."

    def __init__(self, below: WizardScreen) -> None:
        super().__init__()
        self._commands = available_commands(below)

    def body(self) -> Iterable[Widget]:
        yield LineInput(placeholder="type part of a name", moves="#palette-list", closes=True)
        yield Choices(self._rows(""), numbered=False, verb="run it", id="palette-list")

    @on(Input.Changed)
    def _narrow(self, event: Input.Changed) -> None:
        self.query_one(Choices).set_items(self._rows(event.value))

    @on(Input.Submitted)
    def _enter(self) -> None:
        self.query_one(Choices).action_pick()

    @on(Choices.Picked)
    def _picked(self, event: Choices.Picked) -> None:
        self.dismiss(next(command for command in self._commands if command.id == event.id))

    def _rows(self, typed: str) -> list[Choice]:
        words = typed.lower().split()
        return [
            Choice(c.id, Content(c.name), Content.styled(c.keys, "$muted"))
            for c in self._commands
            if all(word in c.name.lower() for word in words)
        ]

    @staticmethod
    async def run(command: "Command | None") -> None:
        """Run the chosen action on its node."""
        if command:
            await command.node.run_action(command.action)
