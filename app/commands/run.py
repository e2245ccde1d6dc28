"""``ddpwizard run -- COMMAND``: start a job and diagnose it if it hangs."""

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Literal

import click

from ..errors import InspectionError, UserError
from ..options import Options
from ..system import run_directory
from ..system.files import check_writable
from ..system.timeouts import wait_for
from ..text.terminal import print_progress
from ..watchdog.environment import DUMP_PREFIX, rank_environment
from ..watchdog.notify import split_command
from ..watchdog.watchdog import Report, WatchdogOptions, run_watchdog
from .common import common_options

HANG_AFTER_S = 300.0
DIAGNOSIS_LIMIT_S = 60.0


@click.command(name="run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--hang-after",
    "hang_after_s",
    type=click.FloatRange(min=0),
    default=HANG_AFTER_S,
    show_default="300",
    metavar="SECONDS",
    help="Diagnose the job if no rank makes progress for this long; 0 disables.",
)
@click.option(
    "--then",
    type=click.Choice(["keep", "stop"]),
    default="keep",
    show_default=True,
    help="Keep a hung job running, or end it.",
)
@click.option("--on-hang", metavar="CMD", help="Run CMD, without a shell, with the verdict as JSON on stdin.")
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the verdict: .json, else text.",
)
@click.option(
    "--warn-signal",
    "warn_signals",
    multiple=True,
    default=["USR1"],
    show_default="USR1",
    metavar="NAME",
    help="Diagnose when this signal arrives (a scheduler's warning); none disables. Repeatable.",
)
@click.argument("words_of_command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND…")
@common_options
def command(
    hang_after_s: float,
    then: Literal["keep", "stop"],
    on_hang: str | None,
    report: Path | None,
    warn_signals: tuple[str, ...],
    words_of_command: tuple[str, ...],
    options: Options,
) -> int:
    """Run an unchanged job so that a hang can be diagnosed without the right to trace its ranks.

    Each rank gets torch's worker server on a private socket, the flight recorder and a copy of its output. Standard
    output belongs to the job, also with --json: the verdict goes to standard error, --report and --on-hang. The exit
    code is the job's (128+n for a signal), 1 if a hung job was ended, 127 if the command does not exist.

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
        check_writable(report, "--report")
    try:
        private = run_directory.create_run_directory()
    except OSError as error:
        raise InspectionError(f"cannot create a private directory: {error.strerror}", "free space in /tmp") from None
    keep = False
    try:
        code, keep = run_watchdog(
            words_of_command,
            rank_environment(os.environ, private),
            private,
            watchdog_options,
            lambda pid, why: _diagnose(pid, why, report, on_hang_words, options),
            _write_line,
        )
    finally:
        if (keep and any(private.iterdir())) or any(private.glob(f"{DUMP_PREFIX}*")):
            _write_line(f"output and records of the ranks: {private}")
        else:
            shutil.rmtree(private, ignore_errors=True)
    return code


def _write_line(line: str) -> None:
    with suppress(AttributeError, OSError, ValueError):  # standard error is closed: the watchdog continues
        print_progress(f"ddpwizard: {line}".rstrip())


def _signals(names: tuple[str, ...]) -> frozenset[int]:
    """Return the signals of names (USR1, SIGUSR1) or numbers; only those of ``HANDLED_SIGNALS`` are possible."""
    from ..watchdog.watchdog import HANDLED_SIGNALS

    able = {number.name.removeprefix("SIG"): number for number in HANDLED_SIGNALS if number != signal.SIGCHLD}
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


def _diagnose(pid: int, why: str, report: Path | None, on_hang: list[str], options: Options) -> Report:
    """Diagnose the job, write the report and run the hook. Loads the knowledge only now."""
    import asyncio

    from ..options import knowledge_for
    from ..text.json_output import json_bytes, public_document
    from ..triage.triage import triage_jobs
    from ..watchdog import notify
    from .triage import report_as_json, report_lines

    try:
        triage = triage_jobs(pid=pid, allow=options.allow or "reads")
        reports = asyncio.run(wait_for(DIAGNOSIS_LIMIT_S, triage))
        knowledge = knowledge_for(options)
        body = {"why": why, "jobs": [report_as_json(each, knowledge) for each in reports]}
        lines = [line for each in reports for line in report_lines(each, knowledge)]
    except UserError as error:
        return Report("unknown", [str(error)])
    except asyncio.TimeoutError:
        return Report("unknown", [f"the diagnosis took more than {DIAGNOSIS_LIMIT_S:.0f} s and was cancelled"])
    verdict = json_bytes(public_document("triage", knowledge, body))
    more = [notify.write_report(report, verdict, [why, "", *lines])] if report else []
    if on_hang and (problem := notify.run_hook(on_hang, verdict)):
        more.append(problem)
    return Report(reports[0].verdict.state if reports else "unknown", lines + more)
