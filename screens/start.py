"""Start of the wizard: full screen if the terminal can show it, else numbered questions."""

import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from ..app.errors import UserError
from ..app.options import Options
from ..app.system.parent import end_with_parent
from ..app.text.terminal import print_progress
from .shell.limits import LEAST_COLUMNS, LEAST_ROWS

FRAMES_PER_S = "200"  # upper limit; with the 60 of Textual a finished screen waits 8 ms, and nothing is animated


def run_wizard(screen: str, options: Options, arguments: dict[str, Any]) -> int:
    """Run the wizard from a screen (home, demo, paste, resume, …) to its end, and return the exit code.

    Raises:
        UserError: The terminal is too small, or a session to resume does not exist.
    """
    from .shell.state import WizardState

    if options.plain or not has_screen(os.environ):
        from .plain.wizard import run_plain

        _clean_up_after_signals()
        return run_plain(screen, WizardState(options), arguments)
    if is_in_browser(os.environ):
        end_with_parent()
    else:
        _check_size()
    os.environ.setdefault("TEXTUAL_FPS", FRAMES_PER_S)
    from .app import WizardApp
    from .shell import gc_freeze

    state = WizardState(options)
    if screen == "resume":
        screen, arguments = state.resume(str(arguments.get("id", "last")))
    app = WizardApp(state, screen, **arguments)
    gc_freeze.freeze_garbage("the wizard")
    app.run(mouse=not options.no_mouse)
    if resume_hint := app.left_at or state.resume_hint():
        print_progress(resume_hint)
    if app.ended_by:
        return 128 + app.ended_by
    if app.problem:
        raise app.problem
    return app.return_code or 0


def _check_size() -> None:
    size = os.get_terminal_size(sys.__stderr__.fileno()) if sys.__stderr__ else os.terminal_size((80, 24))
    if 0 < size.columns < LEAST_COLUMNS or 0 < size.lines < LEAST_ROWS:
        raise UserError(
            f"this terminal is {size.columns} × {size.lines}, the wizard needs {LEAST_COLUMNS} × {LEAST_ROWS}",
            "make it larger, or use --plain",
        )


def _clean_up_after_signals() -> None:
    """Let SIGTERM and SIGHUP end plain mode by an exception, so that temporary directories are removed."""

    def end(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


def has_screen(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal can show a full screen, and none was declined with ACCESSIBLE or TERM."""
    if is_in_browser(environ):
        return True
    if environ.get("ACCESSIBLE", "") not in ("", "0") or environ.get("TERM", "") in ("", "dumb"):
        return False
    streams = (sys.__stdin__, sys.__stderr__)  # the screen is drawn on stderr: stdout may be a file
    return all(stream is not None and stream.isatty() for stream in streams)


def is_in_browser(environ: Mapping[str, str]) -> bool:
    """Return whether the screen is that of a browser: ``ddpwizard serve`` has started this process."""
    return environ.get("TEXTUAL_DRIVER", "").endswith(":WebDriver")
