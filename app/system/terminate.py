"""End processes and all their descendants: SIGTERM first, SIGKILL for what is left."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from ..errors import UserError
from . import procfs
from .supervisor import descendants

GRACE_S = 10.0  # for a launcher to end its ranks
LAST_S = 5.0
PAUSE_S = 0.05


class Terminated(NamedTuple):
    """``seen``: number of processes that were found, descendants included. ``left``: pids that outlived SIGKILL."""

    seen: int
    left: list[int]


def terminate_processes(first: Iterable[int], further: Iterable[int] = (), *, grace_s: float = GRACE_S) -> Terminated:
    """Send SIGTERM to ``first``; after ``grace_s`` kill what is left of them, their descendants and ``further``.

    Processes that start meanwhile are included. A zombie counts as ended: its parent may be the caller.

    Raises:
        UserError: One of ``first`` belongs to another user.
    """
    roots = list(first)
    known = _with_start([*roots, *further])

    def alive() -> list[int]:
        known.update(_with_start(pid for pid in descendants(*roots) if pid not in known))
        return _alive(known)

    alive()  # before the signal: afterwards the descendants may have another parent
    for pid in roots:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            continue
        except PermissionError as error:
            raise UserError(f"process {pid} belongs to another user", "stop the job as that user") from error
    until = time.monotonic() + grace_s
    while alive() and time.monotonic() < until:
        time.sleep(PAUSE_S)
    until = time.monotonic() + LAST_S
    while (left := alive()) and time.monotonic() < until:
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE_S)
    return Terminated(len(known), left)


def _with_start(pids: Iterable[int]) -> dict[int, float]:
    """Return the start time of each existing process, to recognise a reused pid."""
    return {pid: proc.started_s for pid in pids if (proc := procfs.process_of(pid))}


def _alive(known: dict[int, float]) -> list[int]:
    here = ((pid, started_s, procfs.process_of(pid)) for pid, started_s in known.items())
    return [pid for pid, started_s, proc in here if proc and proc.started_s == started_s and proc.state != "Z"]
