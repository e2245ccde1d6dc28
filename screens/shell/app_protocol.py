"""The part of the app that screens use. Screens import this instead of the app, which imports them."""

from typing import Any, Protocol

from ...app.errors import UserError
from .state import WizardState


class WizardAppProtocol(Protocol):
    """Navigation between screens and what all of them share."""

    state: WizardState

    async def open(self, place: str, **arguments: Any) -> None:
        """Show a screen on top of the current one."""
        ...

    async def back(self) -> None:
        """Return to the screen below, or to Home."""
        ...

    async def leave(self, code: int = 0) -> None:
        """End the wizard."""
        ...

    def show_terms(self) -> None:
        """Explain the terms of the glossary that the current screen shows."""
        ...

    def show_help(self) -> None:
        """Show help for the current screen."""
        ...

    def show_error(self, error: UserError) -> None:
        """Show why something could not be done."""
        ...

    def start_demo(self) -> None:
        """Start the job of the demo."""
        ...
