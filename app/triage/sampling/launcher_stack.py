"""Sample launchers that have started no rank: their age and stack."""

import time

from ...jobs.types import Job
from ...system import procfs
from ..types import Launcher
from . import stacks


async def sample_launchers(job: Job) -> list[Launcher]:
    """Return the launchers of a job without ranks; [] if the job has ranks."""
    pids = [] if job.processes or job.asked is None else job.asked.launchers
    found = {pid: proc for pid in pids if (proc := procfs.process_of(pid))}
    dumps = await stacks.dump_stacks(list(found))
    return [
        Launcher(
            host=job.host,
            age_s=round(time.time() - procfs.started_at(proc), 1),
            stack=stacks.main_stack(dumps[pid], pid, proc.cwd),
            problem=dumps[pid].problem,
        )
        for pid, proc in found.items()
    ]
