"""Import other screens and parse their styles while the first one waits for a key, which then only shows a screen."""

import importlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from textual.css.stylesheet import Stylesheet
from textual.widget import Widget

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
    """Parse the styles of all screens and of our widgets, each once.

    When Textual reads the style of a screen or a widget that is shown for the first time, it applies all styles again.
    """
    for widget in _widgets(Widget):
        for place, css, tie_breaker, scope in object.__new__(widget)._get_default_css():
            stylesheet.add_source(css, place, is_default_css=True, tie_breaker=tie_breaker, scope=scope)
    for path in sorted(SCREENS.rglob("*.tcss")):
        if not stylesheet.has_source(str(path), ""):
            stylesheet.read(path)
    stylesheet.parse()


def _widgets(base: type[Widget]) -> Iterator[type[Widget]]:
    """Yield the loaded classes of our widgets below a class."""
    for each in base.__subclasses__():
        if each.__module__.startswith(PACKAGE):
            yield each
        yield from _widgets(each)


def prepare_screens(state: "WizardState") -> None:
    """Import the screens that a key shows without any other work, and read what they show, in a thread."""
    for module in MODULES:
        importlib.import_module(f"{PACKAGE}.{module}")
    from ...app.diagnosis.term_text import terms_in_text

    with suppress(UserError):  # the screen that needs them reports it
        state.course  # noqa: B018  # read at first use
        terms_in_text(state.knowledge, "")  # compiles the pattern of the terms
    gc_freeze.freeze_garbage("other screens")
