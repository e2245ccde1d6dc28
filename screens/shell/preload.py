"""Import other screens and parse their styles while the first one waits for a key, which then only shows a screen."""

import importlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from textual.css.stylesheet import Stylesheet

from ...app.errors import UserError
from . import gc_freeze

if TYPE_CHECKING:
    from .state import WizardState

AFTER_S = 0.5  # once the first screen is shown
SCREENS = Path(__file__).parent.parent
PACKAGE = __name__.rsplit(".", 2)[0]
MODULES = (
    "dialogs.help",
    "dialogs.command_palette",
    "home.paste",
    "learn.course",
    "learn.chapter",
    "learn.quiz",
    "learn.lab",
    "knowledge.browser",
)


def read_styles(stylesheet: Stylesheet) -> None:
    """Parse the styles of all screens, each once.

    When Textual reads the style of a screen that is shown for the first time, it parses those of all widgets again.
    """
    for path in sorted(SCREENS.rglob("*.tcss")):
        if not stylesheet.has_source(str(path), ""):
            stylesheet.read(path)
    stylesheet.parse()


def prepare_screens(state: "WizardState") -> None:
    """Import the screens that a key shows without any other work, and read the chapters and labs, in a thread."""
    for module in MODULES:
        importlib.import_module(f"{PACKAGE}.{module}")
    with suppress(UserError):  # the screen that needs them reports it
        state.course  # noqa: B018  # read at first use
    gc_freeze.freeze_garbage("other screens")
