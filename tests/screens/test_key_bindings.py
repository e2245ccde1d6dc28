"""One registry of actions: what is bound is in the palette and in help; the keyboard alone suffices."""

import importlib
import inspect
import pkgutil
from pathlib import Path

import ddpwizard.screens
import pytest
from ddpwizard.screens.app import WizardApp
from ddpwizard.screens.dialogs.command_palette import available_commands
from ddpwizard.screens.dialogs.help import active_keys
from ddpwizard.screens.shell.base import WizardScreen
from ddpwizard.screens.widgets.choices import Choices
from ddpwizard.screens.widgets.line_input import LineInput
from helpers.built_in_knowledge import built_in_knowledge
from helpers.recorded_state import RecordedState, report
from helpers.screen_pilot import frame, shows, walk
from textual.binding import Binding

FORBIDDEN = ("ctrl+b", "ctrl+a", "alt+", "super+", "ctrl+shift+")  # tmux, screen and terminals keep these
PLACES: list[tuple[str, dict[str, object]]] = [
    ("home", {}),
    ("step", {}),
    ("paste", {}),
    ("diagnosis", {}),
    ("browse", {}),
    ("check", {}),
    ("triage", {}),
    ("fix", {"cause": "port-in-use"}),
    ("plan", {}),
    ("learn", {}),
    ("quiz", {}),
]


def bound() -> list[tuple[str, Binding]]:
    """Every binding that a class of the screens declares."""
    found: list[tuple[str, Binding]] = []
    for module in pkgutil.walk_packages(ddpwizard.screens.__path__, "ddpwizard.screens."):
        if ".plain" in module.name:
            continue
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if kind.__module__ == module.name:
                found += [(kind.__name__, b) for b in kind.__dict__.get("BINDINGS", []) if isinstance(b, Binding)]
    return found


def test_every_binding_has_its_own_id_and_a_tooltip() -> None:
    bindings = bound()
    ids = [binding.id for _, binding in bindings]
    assert len(bindings) > 40
    assert all(binding.id and binding.tooltip and binding.description for _, binding in bindings)
    assert len(ids) == len(set(ids))


def test_no_binding_uses_a_key_of_tmux_or_the_terminal() -> None:
    keys = [key for _, binding in bound() for key in binding.key.split(",")]
    assert not [key for key in keys if key.startswith(FORBIDDEN)]


@pytest.mark.parametrize(("place", "arguments"), PLACES)
@walk
async def test_palette_and_help_list_every_action(place: str, arguments: dict[str, object], tmp_path: Path) -> None:
    app = WizardApp(RecordedState([report(tmp_path)]), place, **arguments)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, WizardScreen)
        live = {a.binding.id: a.binding for a in screen.active_bindings.values() if a.binding.id}
        in_palette = {command.id for command in available_commands(screen)}
        moves = {id_ for id_ in live if id_.startswith("list.")}
        assert set(live) - moves <= in_palette
        described = {what for _, _, what in active_keys(screen)}
        numbered = {f"Choose row {n} at once" for n in range(1, 11)}
        assert {binding.tooltip for binding in live.values()} - numbered <= described


@walk
async def test_an_action_chosen_in_the_palette_runs_on_the_screen_below(tmp_path: Path) -> None:
    app = WizardApp(RecordedState([report(tmp_path)]))
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "looks hung")
        await pilot.press("ctrl+p", *"check this", "enter")
        await shows(pilot, "more passed")
        await pilot.press("ctrl+p", *"show passed", "enter")
        await shows(pilot, "8 GPUs are free")


@walk
async def test_help_lists_the_keys_of_the_focused_widget(tmp_path: Path) -> None:
    app = WizardApp(RecordedState())
    async with app.run_test(size=(80, 40)) as pilot:
        await pilot.press("question_mark")
        await shows(pilot, "Choose that row at once")
        await pilot.press("escape", "tab", "f1")
        await shows(pilot, "Leave the line of text")
        assert "Choose that row at once" not in frame(pilot)


@walk
async def test_every_part_can_be_reached_with_tab(tmp_path: Path) -> None:
    for place, arguments in PLACES[1:]:
        app = WizardApp(RecordedState([report(tmp_path)]), place, **arguments)
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            reached = set()
            for _ in range(len(app.screen.focus_chain) + 1):
                await pilot.press("tab" if place != "paste" else "shift+tab")
                reached.add(app.screen.focused)
            assert set(app.screen.focus_chain) <= reached, place


def test_focusable_widgets_are_lists_inputs_and_pages() -> None:
    assert Choices.can_focus
    assert LineInput.can_focus


@walk
@pytest.mark.parametrize(
    ("place", "text"), [("step", "hangs"), ("diagnosis", "? help"), ("learn", "labs done"), ("plan", "FSDP2")]
)
async def test_the_terms_of_every_screen_are_explained_by_one_key(place: str, text: str) -> None:
    state = RecordedState()
    state.knowledge = built_in_knowledge()
    async with WizardApp(state, place).run_test(size=(80, 24)) as pilot:
        await shows(pilot, text)
        await pilot.press("f3")
        await shows(pilot, "Terms of this text")
        assert pilot.app.screen.query_one(Choices).items
        await pilot.press("escape")
        await shows(pilot, "? help")
