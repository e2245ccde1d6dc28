"""A launcher that has started no rank: how old it is, and where it stands."""

import time

from ..find import procfs
from ..types import Job, Launcher
from . import stacks


async def look(job: Job) -> list[Launcher]:
    """The launchers of a job without ranks; none where it has some."""
    pids = [] if job.processes or job.asked is None else job.asked.launchers
    found = {pid: proc for pid in pids if (proc := procfs.process(pid))}
    dumps = await stacks.read(list(found))
    return [
        Launcher(
            host=job.host,
            age_s=round(time.time() - procfs.started_at(proc), 1),
            stack=stacks.main_stack(dumps[pid], pid, proc.cwd),
            problem=dumps[pid].problem,
        )
        for pid, proc in found.items()
    ]
