"""The script of a job, as a path."""

import os
from pathlib import Path

from ..launchers.arguments import parse_launcher
from ..launchers.recognise import parse_python
from .types import Job, Process


def path_from(directory: str, path: str) -> str:
    """Return a path as seen from a directory, without ``..`` where that leads to the same file."""
    joined = Path(directory, path)
    plain = Path(os.path.normpath(joined))
    return str(plain if joined == plain or is_same_file(joined, plain) else joined)


def is_same_file(one: Path, other: Path) -> bool:
    """Return whether two paths lead to one file, as far as both can be read."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def script_of_process(process: Process) -> str:
    """Return the path of the Python file that a rank runs, also as a module of its directory; "" if it runs none."""
    python = parse_python(process.command)
    if python is None:
        return ""
    if python.is_module:
        path = Path(process.cwd, python.target.replace(".", "/")).with_suffix(".py")
        return str(path) if path.is_file() else ""
    return path_from(process.cwd, python.target) if python.target.endswith(".py") else ""


def script_of_job(job: Job) -> str:
    """Return the path of the Python file that the ranks of a job run, or that its launcher is to start, or ""."""
    line = parse_launcher(job.launcher_command)
    started = path_from(job.launcher_cwd, line.script) if line and line.script.endswith(".py") else ""
    return next((path for process in job.processes if (path := script_of_process(process))), started)
