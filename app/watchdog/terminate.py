"""End a job: terminate its launcher, then kill what is left."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress

from ..system import procfs
from ..system.supervisor import descendants

GRACE_S = 10.0  # for the launcher to end its ranks
LAST_S = 5.0
PAUSE_S = 0.1


def terminate_job(child: "subprocess.Popen[bytes]", further: Iterable[int] = ()) -> None:
    """End ``child``, its descendants, and ``further`` processes of the job that are no longer its descendants."""
    known = _with_start([child.pid, *further])
    until = time.monotonic() + GRACE_S
    child.terminate()
    while time.monotonic() < until and (child.poll() is None or _alive(known)):
        known |= _with_start(descendants(child.pid))
        time.sleep(PAUSE_S)
    until = time.monotonic() + LAST_S
    while time.monotonic() < until and (child.poll() is None or _alive(known)):
        known |= _with_start(descendants(child.pid))
        for pid in _alive(known):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE_S)


def _with_start(pids: Iterable[int]) -> dict[int, float]:
    """Return the start time of each living process, to recognise a reused pid."""
    return {pid: proc.started_s for pid in pids if (proc := procfs.process_of(pid))}


def _alive(known: dict[int, float]) -> list[int]:
    here = ((pid, started_s, procfs.process_of(pid)) for pid, started_s in known.items())
    return [pid for pid, started_s, proc in here if proc and proc.started_s == started_s and proc.state != "Z"]
