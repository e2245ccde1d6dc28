"""Stop a job of this machine, and start it again with its own command line, directory and environment."""

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from ..errors import UserError
from ..launchers.rank_variables import local_world_size
from ..system import procfs
from ..system.paths import state_dir
from ..system.terminate import GRACE_S, terminate_processes
from .types import Job, Process

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
    ranks = [each.pid for each in job.processes if _is_same(each)]
    ended = terminate_processes(_launcher(job) or ranks, ranks, grace_s=grace_s)
    if ended.left:
        pids = ", ".join(map(str, ended.left))
        raise UserError(f"still there after SIGKILL: {pids}", "a process in the kernel (state D) ends with its request")
    return ended.seen


def is_running(job: Job) -> bool:
    """Return whether the launcher or a rank of the job still runs on this host."""
    return bool(_launcher(job)) or any(_is_same(each) for each in job.processes)


def has_ended(job: Job) -> bool:
    """Return whether every process of the job that was seen on this host is gone; False if none was seen."""
    return (job.launcher_pid is not None or bool(job.processes)) and not is_running(job)


def _is_same(rank: Process) -> bool:
    """Return whether the pid of a rank still belongs to the process that was seen, and that it has not ended."""
    proc = procfs.process_of(rank.pid)
    return proc is not None and proc.state != "Z" and abs(procfs.started_at(proc) - rank.started_at) <= START_SLACK_S


def _launcher(job: Job) -> list[int]:
    """Return the pid of the launcher if it still belongs to it, else nothing."""
    proc = procfs.process_of(job.launcher_pid) if job.launcher_pid is not None else None
    return [proc.pid] if proc and proc.command == job.launcher_command else []
