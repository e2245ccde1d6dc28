"""Two runs that use the same rendezvous port: most often ranks left over from the run before."""

import time
from collections.abc import Sequence

from ..text.units import count_text
from .types import Job

SHOWN_PIDS = 4


def shared_port_note(job: Job, jobs: Sequence[Job]) -> str:
    """Return a note that names the older run which uses the same address and port, or ""."""
    older = [
        other
        for other in jobs
        if other is not job and job.master and (other.master, other.container) == (job.master, job.container)
        if 0.0 < _started_at(other) < _started_at(job)
    ]
    if not older:
        return ""
    run = min(older, key=_started_at)
    pids = [process.pid for process in run.processes]
    shown = ", ".join(map(str, pids[:SHOWN_PIDS])) + (" …" if len(pids) > SHOWN_PIDS else "")
    since = time.strftime("%H:%M:%S", time.localtime(_started_at(run)))
    return (
        f"another run uses {job.master} as well: {count_text(len(pids), 'rank')}, pid {shown}, since {since}; "
        "if it is left over, end it"
    )


def _started_at(job: Job) -> float:
    return min((process.started_at for process in job.processes if process.started_at), default=0.0)
