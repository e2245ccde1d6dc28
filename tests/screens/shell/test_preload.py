"""Screens are prepared while the first one waits for a key."""

import sys

from ddpwizard.screens.app import WizardApp
from ddpwizard.screens.shell.preload import MODULES, PACKAGE, SCREENS
from helpers.recorded_state import RecordedState
from helpers.screen_pilot import until, walk


@walk
async def test_styles_are_read_and_screens_imported_before_they_are_shown() -> None:
    app = WizardApp(RecordedState())
    styles = [str(path) for path in SCREENS.rglob("*.tcss")]
    async with app.run_test() as pilot:
        assert not all(app.stylesheet.has_source(path, "") for path in styles)
        await until(pilot, lambda: all(app.stylesheet.has_source(path, "") for path in styles))
        await until(pilot, lambda: all(f"{PACKAGE}.{name}" in sys.modules for name in MODULES))
        rules = app.stylesheet.rules
        app.stylesheet.reparse()
        assert [str(rule) for rule in app.stylesheet.rules] == [str(rule) for rule in rules]
