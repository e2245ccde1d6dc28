"""Pass a verdict on: write the report file, run the command of ``--on-hang``."""

import shlex
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError
from ..system.files import write_atomic
from ..text.redact import redact_text

ON_HANG_LIMIT_S = 60.0


def write_report(path: Path, document: bytes, lines: Sequence[str]) -> str:
    """Write the document to a .json file, the lines to any other. Return the message to print."""
    text = document if path.suffix == ".json" else redact_text("\n".join([*lines, ""])).encode()
    try:
        write_atomic(path, text, "--report")
    except UserError as error:
        return str(error)
    return f"report: {path}"


def split_command(command: str) -> list[str]:
    """Split the command of an option into an argument list, without a shell.

    Raises:
        UserError: It is empty or a quote is not closed.
    """
    try:
        found = shlex.split(command)
    except ValueError as error:
        raise UserError(f"--on-hang {command}: {error}", "close the quotes") from None
    if not found:
        raise UserError("--on-hang: an empty command", "name the program that reads the verdict from its stdin")
    return found


def run_hook(command: Sequence[str], document: bytes) -> str:
    """Run the user's command with the document on its stdin. Return "" or an error message. Its output goes to standard
    error: standard output belongs to the job."""
    try:
        done = subprocess.run(
            command, input=document, stdout=2, timeout=ON_HANG_LIMIT_S, check=False, preexec_fn=_no_signal_blocked
        )
    except subprocess.TimeoutExpired:
        return f"--on-hang {command[0]} was ended: it took more than {ON_HANG_LIMIT_S:.0f} s"
    except (OSError, ValueError) as error:
        return f"--on-hang {command[0]} cannot be started: {getattr(error, 'strerror', None) or error}"
    return f"--on-hang {command[0]} ended with code {done.returncode}" if done.returncode else ""


def _no_signal_blocked() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
