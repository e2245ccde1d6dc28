"""Base class of the screens: frame, navigation and help."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region
from textual.reactive import Reactive
from textual.screen import Screen
from textual.widget import Widget

from ..widgets.header_footer import Footer, Header, StatusLine
from .limits import LEAST_COLUMNS, LEAST_ROWS

if TYPE_CHECKING:
    from typing_extensions import Self

    from .app_protocol import WizardAppProtocol
    from .state import WizardState

WIDE = 80  # columns from which two panes fit side by side
BROAD = 110  # columns from which two panes with long lines fit


class WizardScreen(Screen[Any]):
    """Header, body, status line and footer. Screens set ``TITLE`` and ``ABOUT`` (for help) and implement ``body``."""

    # Textual repaints the whole screen when the focus moves; the widgets concerned repaint themselves.
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)
    ABOUT: ClassVar[str] = ""
    AUTO_FOCUS = "Choices"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back", show=False, id="back", tooltip="Go back to the screen before"),
        Binding(
            "question_mark,f1",
            "help",
            "help",
            show=False,
            id="help",
            tooltip="Show what this screen is for, and its keys",
        ),
        Binding(
            "f3",
            "look_up",
            "terms",
            show=False,
            id="look-up-anywhere",
            tooltip="Explain the terms of the field that this screen shows",
        ),
        Binding("q", "quit", "quit", show=False, id="quit", tooltip="Quit the wizard; nothing is lost"),
    ]

    _opening = True
    _small = False

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> "Self":
        """Refresh as Textual does, but do not repaint during the first layout, which paints the whole screen."""
        return super().refresh(*regions, repaint=repaint and not self._opening, layout=layout, recompose=recompose)

    def on_screen_resume(self) -> None:
        # Textual refreshes a new screen once more from the queue of the app, when all its widgets are mounted.
        self.call_after_refresh(self.app.call_next, self._opened)

    def _opened(self) -> None:
        self._opening = False

    @property
    def wizard(self) -> "WizardAppProtocol":
        """The app, with its own type."""
        return cast("WizardAppProtocol", self.app)

    @property
    def state(self) -> "WizardState":
        """The state that all screens share."""
        return self.wizard.state

    @property
    def ascii_only(self) -> bool:
        return self.state.options.ascii

    def compose(self) -> ComposeResult:
        self._fit(self.app.size.width)  # before the first layout: Textual applies breakpoints after it and paints twice
        yield Header(self.TITLE or "")
        yield from self.body()
        yield StatusLine()
        yield Footer()

    def on_resize(self, event: events.Resize) -> None:
        self._fit(event.size.width)
        small = event.size.width < LEAST_COLUMNS or event.size.height < LEAST_ROWS
        if small:
            self.show_status(f"Too small to show everything: make it at least {LEAST_COLUMNS} × {LEAST_ROWS}.")
        elif self._small:
            self.show_status("")
        self._small = small

    def _fit(self, width: int) -> None:
        self.set_class(width >= WIDE, "-wide")
        self.set_class(width < WIDE, "-narrow")
        self.set_class(width >= BROAD, "-broad")

    def body(self) -> Iterable[Widget]:
        """Return the widgets between header and status line."""
        return ()

    def show_header(self, title: str | None = None, facts: str | None = None) -> None:
        """Change the header."""
        self.query_one(Header).show(title, facts)

    def show_status(self, what: Content | str) -> None:
        """Show a message above the footer."""
        self.query_one(StatusLine).show(what)

    def shown_bindings(self) -> Iterator[Binding]:
        """Yield the bindings of this screen for the footer, in the order of their definition."""
        active = {id(found.binding) for found in self.active_bindings.values()}
        shown: set[str | None] = set()  # a binding of several keys is shown with its first
        for _, binding in self._bindings:
            if binding.show and id(binding) in active and binding.id not in shown:
                shown.add(binding.id)
                yield binding

    def keys_changed(self) -> None:
        """Update the footer after the available actions have changed."""
        self.refresh_bindings()
        self.query_one(Footer).refresh()

    def cancel_running(self) -> bool:
        """Cancel the running workers of this screen, and return whether there were any."""
        running = [worker for worker in self.workers if worker.node is self and not worker.is_finished]
        for worker in running:
            worker.cancel()
        return bool(running)

    def cancelled_text(self) -> str:
        """Return the message after the key that cancels what runs."""
        return "Cancelled."

    def on_descendant_focus(self) -> None:
        self.query_one(Footer).refresh()

    def on_descendant_blur(self) -> None:
        self.query_one(Footer).refresh()

    async def action_back(self) -> None:
        await self.wizard.back()

    def resume_hint(self) -> str:
        """Return how to continue what this screen shows after the wizard was left; "" for a case or nothing."""
        return ""

    def action_help(self) -> None:
        self.wizard.show_help()

    def action_look_up(self) -> None:
        self.wizard.show_terms()

    async def action_quit(self) -> None:
        await self.wizard.leave()
