"""Detect progress of a rank from counters alone, which is cheap enough for every few seconds of a job.

A rank makes progress when its main thread is woken repeatedly, when it uses CPU time (ignored where a GPU is in use:
CUDA and NCCL spin), when it reads or writes, or when its recorder counts another collective.
"""

import time
from pathlib import Path

import msgspec

from ..system import procfs
from ..triage.rank_activity.progress import CPU_SHARE_AT_WORK, STOPPED_OR_GONE

WAKES_PER_S = 2.0  # a polling wait (the store, a loader's queue) wakes less often
BYTES_PER_S = 1000.0


class CounterSample(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of a process at one moment. ``collectives`` is None if the recorder was not read."""

    at: float
    state: str
    cpu_s: float = 0.0
    wakes: int = 0
    io_bytes: int = 0
    gpu: bool = False
    collectives: int | None = None


def sample_counters(pid: int) -> CounterSample:
    """Read the current counters of a process."""
    used = procfs.counters(pid)
    if used is None:
        return CounterSample(at=time.monotonic(), state="")
    io_bytes = sum(procfs.read_io_bytes(pid))
    return CounterSample(
        at=time.monotonic(), state=used.state, cpu_s=used.cpu_s, wakes=used.switches, io_bytes=io_bytes
    )


def has_progressed(first: CounterSample, last: CounterSample) -> bool:
    """Return whether a process made progress between two samples."""
    if last.state in STOPPED_OR_GONE:
        return False
    elapsed_s = max(last.at - first.at, 1e-3)
    counted = first.collectives is not None and last.collectives is not None
    return (
        (counted and first.collectives != last.collectives)
        or (last.wakes - first.wakes) / elapsed_s > WAKES_PER_S
        or (last.io_bytes - first.io_bytes) / elapsed_s > BYTES_PER_S
        or ((last.cpu_s - first.cpu_s) / elapsed_s > CPU_SHARE_AT_WORK and not last.gpu)
    )


def count_collectives(answer: bytes) -> int | None:
    """Return the number of collectives entered and finished in all groups of a record."""
    try:
        groups = msgspec.json.decode(answer, type=_Groups).pg_status
        return sum(int(number) for status in groups.values() for number in status.values() if int(number) > 0)
    except (msgspec.MsgspecError, ValueError):
        return None


class _Groups(msgspec.Struct):
    pg_status: dict[str, dict[str, str]] = {}


def find_worker_socket(private: Path, pid: int) -> Path | None:
    """Return the worker server's socket of a rank, or None."""
    path = private / f"{pid}.sock"
    return path if path.is_socket() else None
