"""The script of a job, as a path."""

from pathlib import Path

from ..launchers.arguments import parse_launcher
from ..launchers.recognise import parse_python
from .types import Job, Process


def script_of_process(process: Process) -> str:
    """Return the path of the Python file that a rank runs, also as a module of its directory; "" if it runs none."""
    python = parse_python(process.command)
    if python is None:
        return ""
    if python.is_module:
        path = Path(process.cwd, python.target.replace(".", "/")).with_suffix(".py")
        return str(path) if path.is_file() else ""
    return str(Path(process.cwd) / python.target) if python.target.endswith(".py") else ""


def script_of_job(job: Job) -> str:
    """Return the path of the Python file that the ranks of a job run, or that its launcher is to start, or ""."""
    line = parse_launcher(job.launcher_command)
    started = str(Path(job.launcher_cwd) / line.script) if line and line.script.endswith(".py") else ""
    return next((path for process in job.processes if (path := script_of_process(process))), started)
