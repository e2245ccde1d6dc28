"""Read Flight Recorder dumps of a living job, and request dumps from its ranks."""

import asyncio
import os
import shlex
import stat
import time
from pathlib import Path

from ...errors import InspectionError
from ...jobs.types import Job, Process
from ...system import proc_files
from ...system.waiting import run_in_thread, wait_for
from ..flight_recorder.loader import read_records
from ..types import RankRecord

# TORCH_FR_… since torch 2.8, TORCH_NCCL_… before; the rank is appended (torch/csrc/distributed/c10d).
PREFIX_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
DEFAULT_PREFIX = "/tmp/nccl_trace_rank_"
PIPE_VARIABLE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
POLL_S = 0.1
SUBJECT = "the Flight Recorder dumps"
EARLY_S = 2.0  # difference of file and process clocks


async def read_dumps(job: Job, limit_s: float) -> tuple[list[RankRecord], list[str]]:
    """Return the records in dumps written by this job's ranks, and the problems of reading them.

    Raises:
        InspectionError: They could not be read within the limit.
    """
    files = await run_in_thread(lambda: dump_files(job), limit_s=limit_s, subject=SUBJECT)
    if not files:
        return [], []
    try:
        found = await wait_for(limit_s, read_records(files))
    except asyncio.TimeoutError:
        raise InspectionError(
            f"{SUBJECT}: not read within {limit_s:g} s", "read them alone: ddpwizard triage --flight-recorder FILE…"
        ) from None
    return found.records, found.problems


def dump_files(job: Job) -> list[Path]:
    """Return the dumps written by this job's ranks."""
    return [path for process in job.processes if (path := _file(process))]


def request_dumps(job: Job, limit_s: float) -> None:
    """Request dumps from ranks that listen on a pipe (NCCL only); wait until they are written, at most ``limit_s``.

    A line in the pipe makes torch write a dump and continue (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp).
    """
    began = time.time()
    pending = [process for process in job.processes if _request_dump(process)]
    until = time.monotonic() + limit_s
    while pending and time.monotonic() < until:
        pending = [process for process in pending if not (path := _file(process)) or path.stat().st_mtime < began - 1]
        time.sleep(POLL_S)


def _request_dump(process: Process) -> bool:
    """Write to the pipe of a rank; return whether its process reads it."""
    prefix = process.environ.get(PIPE_VARIABLE, "")
    if process.rank is None or not prefix.startswith("/"):
        return False
    try:
        path = proc_files.host_path(process.pid, f"{prefix}{process.rank}.pipe")[0]
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # no pipe, or no reader
        return False
    try:
        return stat.S_ISFIFO(os.fstat(pipe).st_mode) and os.write(pipe, b"1\n") > 0
    except OSError:
        return False
    finally:
        os.close(pipe)


def how_to_enable(job: Job) -> str:
    """Return how to get Flight Recorder records of this job."""
    pipes = {process.environ.get(PIPE_VARIABLE, "") for process in job.processes} - {""}
    if pipes:
        by_hand = f"echo 1 > {shlex.quote(min(pipes))}RANK.pipe"
        return (
            f"the Flight Recorder, torch's record of the collectives: --allow perturbs requests it (by hand: {by_hand})"
        )
    return "the Flight Recorder, torch's record of the collectives: jobs started with ddpwizard run have it"


def _file(process: Process) -> Path | None:
    """Return the dump of a rank if it is newer than the process and belongs to the same user, else None."""
    prefix = next((value for name in PREFIX_VARIABLES if (value := process.environ.get(name))), DEFAULT_PREFIX)
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
