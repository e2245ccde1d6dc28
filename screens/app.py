"""The app: navigation, theme, and the keys that work on every screen. All other behaviour is in the screens."""

import asyncio
import importlib
import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.filter import LineFilter
from textual.worker import WorkerError, WorkerFailed

from ..app.errors import UserError
from ..app.options import target_python
from ..app.system.waiting import wait_for
from ..app.text.ascii import to_ascii
from .shell import preload, theme
from .shell.base import WizardScreen
from .shell.state import WizardState

# name: (module, class). A screen is imported when it is first shown.
SCREEN_CLASSES = {
    "home": ("home.home", "HomeScreen"),
    "step": ("diagnosis.question", "QuestionScreen"),
    "paste": ("home.paste", "PasteScreen"),
    "diagnosis": ("diagnosis.diagnosis", "DiagnosisScreen"),
    "browse": ("knowledge.browser", "BrowserScreen"),
    "check": ("doctor.doctor", "DoctorScreen"),
    "triage": ("triage.triage", "TriageScreen"),
    "fix": ("fix.fix", "FixScreen"),
    "review": ("diagnosis.review", "ReviewScreen"),
    "plan": ("planner.screen", "PlanScreen"),
    "demo": ("triage.demo", "DemoScreen"),
    "learn": ("learn.course", "CourseScreen"),
    "chapter": ("learn.chapter", "ChapterScreen"),
    "lab": ("learn.lab", "LabScreen"),
    "quiz": ("learn.quiz", "QuizScreen"),
}
QUIT_AGAIN_S = 5.0  # a second ctrl+c within this time quits
CLEAN_UP_LIMIT_S = 15.0  # more than the job of the demo takes to end
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
DEMO = "demo"  # group of the worker that runs the job of the demo


class WizardApp(App[int]):
    """The wizard in full screen."""

    TITLE = "ddpwizard"
    ENABLE_COMMAND_PALETTE = False  # ours has no blinking cursor and no loading indicator
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+p", "palette", "all commands", show=False, id="palette", tooltip="Find any action by its name"),
        Binding(
            "ctrl+t",
            "next_theme",
            "colours",
            show=False,
            id="theme",
            tooltip="Dark, light, or the colours of the terminal",
        ),
        Binding("ctrl+q", "leave", "quit", show=False, priority=True, id="quit-anywhere", tooltip="Quit at once"),
        Binding(
            "ctrl+c",
            "interrupt",
            "cancel",
            show=False,
            priority=True,
            id="interrupt",
            tooltip="Cancel the running task; press twice to quit",
        ),
        Binding(
            "ctrl+z",
            "suspend_process",
            "suspend",
            show=False,
            id="suspend",
            tooltip="Back to the shell; fg there returns to the wizard",
        ),
    ]

    def __init__(self, state: WizardState, start: str = "home", **arguments: Any) -> None:
        self.state = state
        self._start, self._arguments = start, arguments
        self._interrupted_at = -QUIT_AGAIN_S
        self._problem_shown = ""  # why the case cannot be saved
        self.problem: Exception | None = None
        self.left_at = ""  # how to continue
        self.ended_by = 0  # the signal that ended the wizard
        self._leaving: asyncio.Future[None] | None = None
        # Textual loads the style of a screen only when it is pushed, so that of the first is named here.
        super().__init__(css_path=["app.tcss", screen_class(start).CSS_PATH])
        self.animation_level = "none"
        for ours in (theme.DARK, theme.LIGHT):
            self.register_theme(ours)
        self.theme = theme.initial_theme(os.environ)
        self._line_filters = theme.line_filters(state.options.ascii)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return theme.DEFAULTS

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), *self._line_filters]

    def get_default_screen(self) -> WizardScreen:
        return make_screen(self._start, **self._arguments)

    def on_mount(self) -> None:
        """Prepare other screens, and end as after ``quit`` when a signal asks for it: restore the terminal, remove
        temporary directories."""
        self.set_timer(preload.AFTER_S, self._preload)
        if not self.is_headless:
            loop = asyncio.get_running_loop()
            for number in ENDING_SIGNALS:
                if signal.getsignal(number) is signal.SIG_DFL:
                    signal.signal(number, lambda number, _: self._end_by_signal(number, loop))

    def _preload(self) -> None:
        threading.Thread(target=self._prepare, args=[asyncio.get_running_loop()], daemon=True).start()

    def _prepare(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do the work of later keys in a thread, then what only the thread of the app may do."""
        preload.prepare_screens(self.state)
        with suppress(RuntimeError):  # the app has ended
            loop.call_soon_threadsafe(preload.read_styles, self.stylesheet)

    def _end_by_signal(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self.ended_by = number
        for each in ENDING_SIGNALS:  # a second one ends the process at once
            signal.signal(each, signal.SIG_DFL)
        # The kernel sends SIGCONT with the hang-up; Textual would start a second input thread, which never ends.
        signal.signal(signal.SIGCONT, lambda *_: None)
        loop.call_soon_threadsafe(self._start_leaving)

    def _start_leaving(self) -> None:
        self._leaving = asyncio.ensure_future(self.leave())

    @property
    def current(self) -> WizardScreen:
        """The top screen."""
        assert isinstance(self.screen, WizardScreen)
        return self.screen

    async def open(self, place: str, **arguments: Any) -> None:
        """Show a screen on top of the current one; for ``home`` close all screens above it."""
        if place == "home":
            await self.home()
            return
        await self.push_screen(make_screen(place, **arguments))
        if (problem := self.state.unsaved) and problem != self._problem_shown:
            self._problem_shown = problem
            self.current.show_status(problem)

    async def back(self) -> None:
        """Return to the screen below; from a first screen other than Home, open Home."""
        if len(self.screen_stack) > 1:
            await self.pop_screen()
        elif not is_home(self.screen):
            await self.push_screen(make_screen("home"))

    async def home(self) -> None:
        """Close all screens above Home, or open it."""
        while len(self.screen_stack) > 1 and not is_home(self.screen):
            await self.pop_screen()
        if not is_home(self.screen):
            await self.push_screen(make_screen("home"))

    def show_help(self) -> None:
        """Show help for the current screen."""
        from .dialogs.help import help_screen

        self.push_screen(help_screen(self.current))

    def show_terms(self) -> None:
        """Explain the terms of the glossary that the current screen shows."""
        from .dialogs.term_lookup import show_terms

        show_terms(self.current)

    def start_demo(self) -> None:
        """Start the job of the demo; it ends with the wizard."""
        self.run_worker(self._demo(), group=DEMO)

    async def _demo(self) -> None:
        from ..app.watchdog.demo_job import DemoJob
        from .triage.demo import DemoScreen

        async with DemoJob(target_python(self.state.options)) as demo:
            self.screen_stack[0].post_message(DemoScreen.Started(demo.pid))
            await asyncio.Event().wait()

    async def leave(self, code: int = 0) -> None:
        """End the wizard: cancel running workers and let them clean up; the supervisor ends their processes."""
        running = [worker for worker in self.workers if not worker.is_finished]
        if any(worker.group == DEMO for worker in running):
            self.current.show_status("Ending the job of the demo.")
        for worker in running:
            worker.cancel()
        for worker in running:
            with suppress(WorkerError, asyncio.TimeoutError):  # one may not have begun yet
                await wait_for(CLEAN_UP_LIMIT_S, worker.wait())
        self.left_at = self._resume_hint()
        self.exit(code, return_code=code)

    def show_error(self, error: UserError) -> None:
        """Show on the current screen why something could not be done."""
        self.current.show_status(to_ascii(str(error)) if self.state.options.ascii else str(error))

    async def action_open(self, place: str) -> None:
        await self.open(place)

    def action_palette(self) -> None:
        from .dialogs.command_palette import PaletteScreen

        if not isinstance(self.screen, PaletteScreen):
            self.push_screen(PaletteScreen(self.current), callback=PaletteScreen.run)

    def action_next_theme(self) -> None:
        at = theme.CYCLE.index(self.theme) if self.theme in theme.CYCLE else -1
        self.theme = theme.CYCLE[(at + 1) % len(theme.CYCLE)]

    async def action_leave(self) -> None:
        await self.leave()

    def _resume_hint(self) -> str:
        """Return how to continue, by the top screen that says so, else by the open case; "" if there is nothing."""
        screens = (each for each in reversed(self.screen_stack) if isinstance(each, WizardScreen))
        return next(filter(None, (each.resume_hint() for each in screens)), "") or self.state.resume_hint()

    async def action_interrupt(self) -> None:
        if self.current.cancel_running():
            self.current.show_status(self.current.cancelled_text())
        elif time.monotonic() - self._interrupted_at < QUIT_AGAIN_S:
            await self.leave(130)
        else:
            self._interrupted_at = time.monotonic()
            hint = self._resume_hint()
            kept = "" if self.state.unsaved or not hint else f" {hint[0].upper()}{' '.join(hint[1:].split())}"
            self.current.show_status(f"ctrl+c again quits.{kept}")

    def _handle_exception(self, error: Exception) -> None:
        self.problem = error.error if isinstance(error, WorkerFailed) else error  # type: ignore[assignment]
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        # Textual would print a traceback with local variables, which may hold secrets; the caller logs ours.
        self._close_messages_no_wait()


def is_home(screen: object) -> bool:
    """Return whether this is the Home screen."""
    return type(screen).__name__ == SCREEN_CLASSES["home"][1]


def make_screen(place: str, **arguments: Any) -> WizardScreen:
    """Build a screen by its name."""
    return screen_class(place)(**arguments)


def screen_class(place: str) -> type[Any]:
    """Import and return the class of a screen."""
    module, name = SCREEN_CLASSES[place]
    return getattr(importlib.import_module(f".{module}", __package__), name)
