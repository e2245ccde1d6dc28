"""torchrun processes without ranks: starting up, or waiting for others at the rendezvous."""

import socket
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ..launchers.arguments import launch_request
from ..launchers.recognise import launcher_name
from ..system import containers
from ..system.procfs import Proc
from ..text.numbers import MOST_RANKS
from .types import Job


def waiting_jobs(candidates: Iterable[Proc], processes: Mapping[int, Proc]) -> list[Job]:
    """Return the jobs of torchrun processes without children. Those with one rendezvous are one job."""
    parents = {proc.parent for proc in processes.values() if proc.state != "Z"}
    found = [proc for proc in candidates if launcher_name(proc.command) == "torchrun" and proc.state != "Z"]
    together: dict[object, list[Proc]] = defaultdict(list)
    for proc in found:
        if proc.pid not in parents and proc.is_python:
            request = launch_request(proc.command, proc.environ)
            is_shared = request.endpoint and request.most_nodes > 1
            together[(proc.uid, request.endpoint, request.run_id) if is_shared else proc.pid].append(proc)
    return [job_of_launchers(members) for members in together.values()]


def job_of_launchers(started: Sequence[Proc]) -> Job:
    """Return the job that launchers start together, with the least number of ranks that they ask for."""
    first = min(started, key=lambda proc: proc.pid)
    request = launch_request(first.command, first.environ)
    return Job(
        launcher=launcher_name(first.command) or "",
        launcher_pid=first.pid,
        launcher_command=first.command,
        launcher_cwd=first.cwd,
        world_size=min(request.least_nodes * (request.ranks_per_node or 1), MOST_RANKS),
        master=request.endpoint,
        host=socket.gethostname(),
        container=containers.container_of_others(first.pid),
        asked=msgspec.structs.replace(request, launchers=[proc.pid for proc in started]),
        processes=[],
    )


def launcher_pids(job: Job) -> list[int]:
    """Return the pids of the launchers of a job on this host."""
    return job.asked.launchers if job.asked else [job.launcher_pid] if job.launcher_pid else []
