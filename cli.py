"""The command line. Nothing heavy is imported here: each command's module is loaded when it is called."""

import errno
import gc
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from . import __version__
from .app.commands.suggesting_group import SuggestingGroup
from .app.errors import UserError
from .app.exit_codes import ExitCode

FULL = (errno.ENOSPC, errno.EDQUOT)
UNWRITABLE = (*FULL, errno.EIO, errno.EBADF)  # with no name: of a stream
# command: (module under app.commands, one line for --help)
COMMANDS = {
    "completion": "Print the completion of commands for bash, zsh or fish.",
    "diagnose": "Rank causes from logs, an error or a description.",
    "doctor": "Check this machine.",
    "explain": "Explain a cause and its fixes, a rule of the review, or a term.",
    "learn": "Chapters and labs: jobs that really fail, to find and repair the fault.",
    "kb": "Check, list or draw the knowledge base.",
    "plan": "Compare DDP, FSDP and ZeRO: memory, speed, job files.",
    "review": "Find distributed-training bugs in scripts.",
    "run": "Run a job and diagnose it if it hangs.",
    "serve": "Show the wizard in a browser of this machine.",
    "sessions": "List, resume or export sessions.",
    "triage": "Diagnose the running jobs: which rank, which line, why.",
    "undo": "Revert the last applied fix, or a named one.",
}


class OutputClosed(Exception):
    """The reader of standard output or standard error has ended, as in ``ddpwizard kb list | head -1``."""


@contextmanager
def _closed_output_reported() -> Iterator[None]:
    """Raise ``OutputClosed`` for a broken pipe: click would end the process with 1, which means something found."""
    try:
        yield
    except BrokenPipeError as error:
        raise OutputClosed from error


@contextmanager
def _no_collections() -> Iterator[None]:
    """Search for no garbage while modules are loaded, which live on: that takes a tenth of their loading."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()  # to the oldest generation
        if is_enabled:
            gc.enable()


class LazyGroup(SuggestingGroup):
    """A group whose commands are imported when they are used."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _closed_output_reported():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _closed_output_reported():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        with _no_collections():
            return importlib.import_module(f".app.commands.{cmd_name}", __package__).command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ddpwizard")
@click.option("--demo", is_flag=True, help="Start a real four-process job that hangs, and fix it.")
@click.option("--plain", is_flag=True, help="Ask numbered questions instead of using the full screen.")
@click.option("--ascii", is_flag=True, help="Print only ASCII characters.")
@click.option("--no-mouse", is_flag=True, help="Do not capture the mouse.")
@click.option("--python", metavar="PATH", help="Python interpreter of the training environment.")
@click.option("--knowledge", metavar="DIR", multiple=True, help="Directory with additional knowledge entries.")
@click.option(
    "--allow",
    type=click.Choice(["reads", "connects", "allocates", "perturbs"]),
    help="What probes may do: only read, also open connections, also start processes and use memory, or also "
    "pause a job.",
)
@click.pass_context
def group(ctx: click.Context, demo: bool, **given: Any) -> None:
    """From a symptom of a distributed PyTorch job to a named cause and a proved fix.

    Without a command the wizard starts and inspects this machine.
    """
    ctx.obj = given  # for the command: ``common_options``
    if ctx.invoked_subcommand and demo:
        raise click.UsageError(f"--demo starts the wizard and cannot be combined with {ctx.invoked_subcommand}")
    if ctx.invoked_subcommand is None:
        from pathlib import Path

        from .app.commands.common import ScreenRequested, can_print_unicode
        from .app.options import Options

        given["ascii"] = given["ascii"] or not can_print_unicode()
        given["knowledge"] = tuple(Path(path) for path in given["knowledge"])
        raise ScreenRequested("demo" if demo else "home", Options(**given))


def main(argv: list[str] | None = None) -> None:
    """Run the ``ddpwizard`` command. A standard stream that is closed is None in Python, and then is /dev/null here."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stdout is None:
        problem, next_step = "standard output is closed", "open it, or redirect it to a file or /dev/null"
        sys.exit(_report_error(problem, next_step, ExitCode.USAGE, False))
    sys.exit(_flushed(run(sys.argv[1:] if argv is None else argv)))


def _flushed(code: int) -> int:
    """Return the exit code once all output is written.

    It is ``OUTPUT_CLOSED`` if the reader has ended, and ``NOT_INSPECTED``, with a message, if the output cannot be
    written.
    """
    try:
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        result = ExitCode.OUTPUT_CLOSED
    except OSError as error:
        result = _report_unwritable(error)
    _discard_output()
    return result


def _discard_output() -> None:
    """Send what is still in the buffers to /dev/null, as Python writes it again when it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _report_unwritable(error: OSError) -> int:
    problem = f"standard output cannot be written: {error.strerror}"
    return _report_error(problem, "redirect it elsewhere", ExitCode.NOT_INSPECTED, False)


def run(argv: list[str]) -> int:
    """Run one command line and return its exit code (``ExitCode``). Every exception is reported, none is raised."""
    wants_json = "--json" in (argv[: argv.index("--")] if "--" in argv else argv)  # what follows is of the job of run
    try:
        result = group.main(argv, prog_name="ddpwizard", standalone_mode=False)
        return result if isinstance(result, int) else ExitCode.OK
    except click.exceptions.Abort:
        return ExitCode.INTERRUPTED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        return _report_error(error.format_message(), _help_line(error), ExitCode.USAGE, wants_json)
    except UserError as error:
        return _report_error(error.message, error.next_step, error.exit_code, wants_json)
    except (OutputClosed, BrokenPipeError):
        _discard_output()
        return ExitCode.OUTPUT_CLOSED
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None and error.errno in UNWRITABLE:
            return _report_unwritable(error)
        if isinstance(error, OSError) and error.errno in FULL:
            problem = f"cannot write {error.filename}: {error.strerror}"
            return _report_error(problem, "free some space there", ExitCode.NOT_INSPECTED, wants_json)
        if type(error).__name__ == "ScreenRequested":
            return _open_screen(error)
        if problem := _unusable_directory(error):
            return _report_error(*problem, ExitCode.NOT_INSPECTED, wants_json)
        return _report_exception(error, wants_json)


def _help_line(error: click.ClickException) -> str:
    """Return which help lists what may be given instead: that of the command whose arguments are wrong."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return "ddpwizard --help lists the commands"
    listed = "commands" if isinstance(context.command, click.Group) else "options and arguments"
    return f"{context.command_path} --help lists the {listed}"


def _open_screen(request: Any) -> int:
    from .screens.start import run_wizard

    try:
        return run_wizard(request.screen, request.options, request.arguments)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return ExitCode.OUTPUT_CLOSED
    except UserError as error:
        return _report_error(error.message, error.next_step, error.exit_code, False)
    except Exception as error:
        if problem := _unusable_directory(error):
            return _report_error(*problem, ExitCode.NOT_INSPECTED, False)
        return _report_exception(error, wants_json=False)


def _unusable_directory(error: Exception) -> tuple[str, str] | None:
    """Return what the state directory does not allow, and what to do; None if the error has another reason."""
    from .app.system.paths import state_dir

    place, directory = str(getattr(error, "filename", None) or ""), state_dir()
    if not isinstance(error, OSError) or not place.startswith("/"):
        return None
    if not (Path(place).is_relative_to(directory) or directory.is_relative_to(place)):
        return None
    problem = f"the state directory {directory} cannot be used: {place}: {error.strerror}"
    return problem, "set XDG_STATE_HOME to a directory in which you can write"


def _report_exception(error: Exception, wants_json: bool) -> int:
    from .app.system.error_log import log_traceback

    next_step = f"the traceback is in {log_traceback()}"
    return _report_error(f"{type(error).__name__}: {error}", next_step, ExitCode.USAGE, wants_json)


def _report_error(message: str, next_step: str, code: int, wants_json: bool) -> int:
    from .app.text.terminal import print_progress, strip_control

    message, next_step = strip_control(message), strip_control(next_step)
    if wants_json:
        from .app.text.json_output import print_json

        with suppress(OSError):  # main reports that it cannot be written
            print_json({"schema": "ddpwizard.error/1", "message": message, "next": next_step})
    with suppress(OSError):  # standard error cannot be written either: the exit code remains
        print_progress(f"ddpwizard: {message}" + (f" → {next_step}" if next_step else ""))
    return code


if __name__ == "__main__":
    main()
