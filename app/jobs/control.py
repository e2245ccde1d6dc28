"""Stop a job of this machine, and start it again with its own command line, directory and environment."""

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..errors import UserError
from ..launchers.rank_variables import local_world_size
from ..system.paths import state_dir
from .types import Job

if TYPE_CHECKING:
    import psutil

GRACE_S = 10.0  # for the launcher to end its ranks
LAST_S = 5.0
START_SLACK_S = 2.0  # start times are computed from the age of a process and vary slightly


class JobStart(msgspec.Struct, frozen=True, kw_only=True):
    """The way to start a job again. ``output``: the file that its output is appended to."""

    command: list[str]
    cwd: Path
    environ: dict[str, str]
    output: Path


def plan_start(job: Job) -> JobStart:
    """Read from a running job how to start it again.

    Raises:
        UserError: It spans several hosts, runs in another container, or its command line or environment is not known.
    """
    import psutil

    by_hand = "start it again yourself"
    local = next((n for each in job.processes if (n := local_world_size(each.environ)) is not None), None)
    if local is not None and local < job.world_size:
        raise UserError(
            f"{local} of the {job.world_size} ranks of this job are on this host", f"{by_hand} on all hosts"
        )
    if job.container:
        raise UserError(f"this job runs in the container {job.container}", f"{by_hand} there")
    if not job.launcher_command or job.launcher_pid is None:
        raise UserError("the command line of this job's launcher is not known", by_hand)
    try:
        launcher = psutil.Process(job.launcher_pid)
        environ = launcher.environ()
    except psutil.Error as error:
        raise UserError(f"the environment of process {job.launcher_pid} cannot be read: {error}", by_hand) from error
    cwd = Path(job.launcher_cwd or "/")
    return JobStart(command=job.launcher_command, cwd=cwd, environ=environ, output=_output_file(job.launcher_pid))


def _output_file(launcher_pid: int) -> Path:
    """Return the file that the launcher writes to, or a new one in the state directory."""
    with suppress(OSError):
        target = Path(f"/proc/{launcher_pid}/fd/1").resolve(strict=True)
        if target.is_file() and os.access(target, os.W_OK):
            return target
    return state_dir() / "jobs" / f"{time.strftime('%Y%m%d-%H%M%S')}-{launcher_pid}.log"


def start_job(start: JobStart) -> int:
    """Start a job that outlives this program, and return the pid of its launcher.

    Raises:
        UserError: The program or the directory is gone, or the output file cannot be written.
    """
    try:
        start.output.parent.mkdir(parents=True, exist_ok=True)
        with start.output.open("ab") as output:
            started = subprocess.Popen(
                start.command,
                cwd=start.cwd,
                env=start.environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise UserError(f"cannot start {start.command[0]}: {error.strerror}", "start it again yourself") from error
    return started.pid


def stop_job(job: Job, grace_s: float = GRACE_S) -> int:
    """Terminate the launcher of a job, or its ranks without one; kill what is left after ``grace_s`` seconds.

    Return the number of processes that have ended.

    Raises:
        UserError: A process belongs to another user, or is still there.
    """
    import psutil

    processes = _processes(job)
    launchers = [process for process in processes if process.pid == job.launcher_pid] or processes
    try:
        for process in launchers:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        _, alive = psutil.wait_procs(processes, timeout=grace_s)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
    except psutil.AccessDenied as error:
        raise UserError(f"process {error.pid} belongs to another user", "stop the job as that user") from error
    _, left = psutil.wait_procs(alive, timeout=LAST_S)
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise UserError(f"still there after SIGKILL: {pids}", "a process in the kernel (state D) ends with its request")
    return len(processes)


def _processes(job: Job) -> "list[psutil.Process]":
    """Return the launcher, the ranks and all their descendants, without processes that have taken over a pid."""
    import psutil

    found: dict[int, psutil.Process] = {}
    started = {each.pid: each.started_at for each in job.processes}
    for pid in filter(None, [job.launcher_pid, *started]):
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            at = started.get(pid)
            if at and abs(process.create_time() - at) > START_SLACK_S:
                continue
            found |= {each.pid: each for each in [process, *process.children(recursive=True)]}
    return list(found.values())
