"""Flight Recorder dumps that ranks of a living job have written already, and how to get one where there is none."""

import os
import stat
import time
from pathlib import Path

from ...jobs.types import Job, Process
from ...system import proc_files
from ..flight_recorder.loader import load_records
from ..types import RankRecord

# TORCH_FR_… since torch 2.8, the other name before; the rank is appended (torch/csrc/distributed/c10d).
PREFIX_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
USUAL_PREFIX = "/tmp/nccl_trace_rank_"
PIPE_VARIABLE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
POLL_S = 0.1
EARLY_S = 2.0  # clocks of files and of processes differ


def read_dumps(job: Job) -> tuple[list[RankRecord], list[str]]:
    """The records of dumps that this job's ranks wrote, and what could not be read of them."""
    files = [path for process in job.processes if (path := _file(process))]
    found = load_records(files) if files else None
    return (found.records, found.problems) if found else ([], [])


def request_dumps(job: Job, limit_s: float) -> None:
    """Have the ranks dump that listen on a pipe for it (NCCL only); wait until the dumps are there, or the limit.

    Writing into the pipe makes torch dump and go on (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp).
    """
    began = time.time()
    asked = [process for process in job.processes if _write(process)]
    until = time.monotonic() + limit_s
    while asked and time.monotonic() < until:
        asked = [process for process in asked if not (path := _file(process)) or path.stat().st_mtime < began - 1]
        time.sleep(POLL_S)


def _write(process: Process) -> bool:
    """Whether a process reads the pipe that belongs to this rank, and was written to."""
    prefix = process.environ.get(PIPE_VARIABLE, "")
    if process.rank is None or not prefix.startswith("/"):
        return False
    try:
        path = proc_files.host_path(process.pid, f"{prefix}{process.rank}.pipe")[0]
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # there is none, or nobody reads it
        return False
    try:
        return stat.S_ISFIFO(os.fstat(pipe).st_mode) and os.write(pipe, b"1\n") > 0
    except OSError:
        return False
    finally:
        os.close(pipe)


def how_to_enable(job: Job) -> str:
    """What to do so that the ranks tell what they did last."""
    pipes = {process.environ.get(PIPE_VARIABLE, "") for process in job.processes} - {""}
    if pipes:
        by_hand = f"echo 1 > {min(pipes)}RANK.pipe"
        return f"the flight record: --allow perturbs has the ranks dump it ({by_hand} does so by hand)"
    return "the flight record of this job: only a job started with ddpwizard run, or one that dumps it, tells it"


def _file(process: Process) -> Path | None:
    """The dump of a rank, where it is younger than its process and belongs to the same user."""
    prefix = next((value for name in PREFIX_VARIABLES if (value := process.environ.get(name))), USUAL_PREFIX)
    if process.rank is None or not prefix.startswith("/"):
        return None
    for path in proc_files.host_path(process.pid, f"{prefix}{process.rank}"):
        try:
            file = path.stat()
        except OSError:
            continue
        own = file.st_uid == proc_files.user_of(process.pid)
        if stat.S_ISREG(file.st_mode) and own and file.st_mtime >= process.started_at - EARLY_S:
            return path if os.access(path, os.R_OK) else None
    return None
