"""``ddpwizard run -- COMMAND``: start a job and diagnose it if it hangs."""

import os
import shutil
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

import click

from ..errors import InspectionError, UserError
from ..options import Options
from ..system import run_directory
from ..system.files import check_result_file
from ..text.redact import redact_text
from ..text.terminal import print_progress
from ..watchdog import signals
from ..watchdog.environment import DUMP_PREFIX, rank_environment
from ..watchdog.kept_files import redact_run_directory, remove_old_directories
from ..watchdog.notify import split_command
from ..watchdog.watchdog import WatchdogOptions, run_watchdog
from .common import common_options, force_option
from .run_diagnosis import RunDiagnosis

JSON_HELP = (
    "Print an error that prevents the start as one JSON document on stdout, which is the job's once it runs; "
    "--report FILE.json writes the verdict."
)
HANG_AFTER_S = 300
NAME = "ddpwizard: "
LINE_WIDTH = 80  # where the terminal does not know it


@click.command(name="run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--hang-after",
    "hang_after_s",
    type=click.FloatRange(min=0),
    default=HANG_AFTER_S,
    show_default=True,
    metavar="SECONDS",
    help="Diagnose the job if no rank makes progress for this long; 0 disables.",
)
@click.option(
    "--then",
    type=click.Choice(["keep", "stop"]),
    default="keep",
    show_default=True,
    help="What to do with a hung job: keep it running, or stop it.",
)
@click.option("--on-hang", metavar="CMD", help="Run CMD, without a shell, with the verdict as JSON on stdin.")
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the verdict to this file: as JSON if its name ends in .json, else as text.",
)
@force_option("--report")
@click.option(
    "--warn-signal",
    "warn_signals",
    multiple=True,
    default=["USR1"],
    show_default=True,
    metavar="NAME",
    help="Diagnose when this signal arrives, such as a scheduler's warning; 'none' disables it. Repeatable.",
)
@click.argument("words_of_command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND…")
@partial(common_options, json_help=JSON_HELP)
def command(
    hang_after_s: float,
    then: Literal["keep", "stop"],
    on_hang: str | None,
    report: Path | None,
    force: bool,
    warn_signals: tuple[str, ...],
    words_of_command: tuple[str, ...],
    options: Options,
) -> int:
    """Run a job without changing it, and diagnose it if it hangs or if a rank fails.

    The diagnosis needs no permission to trace the ranks: torch's worker server (on a private socket) and the Flight
    Recorder are enabled in each rank, and its output is copied. Standard output is the job's alone. The verdict goes
    to standard error as text, to --report as JSON or text, and to --on-hang as JSON. The exit code is that of the job
    (128 + n for signal n), 1 if a hung job was ended, 126 or 127 if the command cannot be started or does not exist,
    2 for a wrong option, 3 if no private directory can be created.

    \b
    Examples:
      ddpwizard run -- torchrun --nproc-per-node=8 train.py
      ddpwizard run --hang-after 600 --then stop --report hang.json -- accelerate launch train.py
    """
    if not words_of_command:
        raise UserError("run: no command", "ddpwizard run -- torchrun --nproc-per-node=2 train.py")
    watchdog_options = WatchdogOptions(hang_after_s=hang_after_s, then=then, warn_signals=_signals(warn_signals))
    on_hang_words = split_command(on_hang) if on_hang else []
    if on_hang_words and not shutil.which(on_hang_words[0]):
        raise UserError(f"--on-hang {on_hang_words[0]}: no such program", "name a program on the PATH")
    if report:
        check_result_file(report, "--report", force=force)
    remove_old_directories()
    try:
        private = run_directory.create_run_directory()
    except OSError as error:
        raise InspectionError(f"cannot create a private directory: {error.strerror}", "free space in /tmp") from None
    keep, failure = False, ""
    try:
        diagnosis = RunDiagnosis(words_of_command, private, options, then == "stop", report, on_hang_words, _write)
        code, keep = run_watchdog(
            words_of_command,
            rank_environment(os.environ, private),
            private,
            watchdog_options,
            diagnosis,
            _write,
        )
        diagnosis.record_end()
        failure = diagnosis.failure
    finally:
        if (keep and any(private.iterdir())) or any(private.glob(f"{DUMP_PREFIX}*")):
            redact_run_directory(private)
            again = [failure] if failure else []  # the launcher may have printed a long traceback since
            _write("\n".join([*again, f"output and records of the ranks: {private}"]))
        else:
            shutil.rmtree(private, ignore_errors=True)
    return code


def _write(text: str) -> None:
    """Write a message to standard error: at a terminal wrapped below its first line, else our name before each line."""
    lines = redact_text(text).strip().splitlines() or [""]
    with suppress(AttributeError, OSError, ValueError):  # standard error is closed: the watchdog continues
        named = lines[:1] if sys.stderr.isatty() else lines
        shown = [*(f"{NAME}{line}".rstrip() for line in named), *lines[len(named) :]]
        print_progress("\n".join(shown))


def _signals(names: tuple[str, ...]) -> frozenset[int]:
    """Return the signals of names (USR1, SIGUSR1) or numbers; only those of ``signals.HANDLED`` are possible."""
    able = {number.name.removeprefix("SIG"): number for number in signals.HANDLED if number != signal.SIGCHLD}
    able |= {str(int(number)): number for number in able.values()}
    found: set[int] = set()
    for name in names:
        if name.lower() == "none":
            continue
        number = able.get(name.upper().removeprefix("SIG"))
        if number is None:
            raise UserError(
                f"--warn-signal {name}: not one of {', '.join(n for n in able if n.isalnum() and not n.isdigit())}"
            )
        found.add(number)
    return frozenset(found)
