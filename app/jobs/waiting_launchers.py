"""Torchruns that have started no rank: they start up, or wait at their rendezvous for others."""

import socket
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ..launchers.arguments import launch_request
from ..launchers.recognise import launcher_name
from ..system import containers
from ..system.procfs import Proc
from .types import Job


def waiting_jobs(candidates: Iterable[Proc], processes: Mapping[int, Proc]) -> list[Job]:
    """The torchruns that have no process below them; those that are to meet are one job."""
    parents = {proc.parent for proc in processes.values() if proc.state != "Z"}
    found = [proc for proc in candidates if launcher_name(proc.command) == "torchrun" and proc.state != "Z"]
    together: dict[object, list[Proc]] = defaultdict(list)
    for proc in found:
        if proc.pid not in parents and proc.is_python:
            wanted = launch_request(proc.command, proc.environ)
            meets = wanted.endpoint and wanted.most_nodes > 1
            together[(proc.uid, wanted.endpoint, wanted.run_id) if meets else proc.pid].append(proc)
    return [job_of_launchers(members) for members in together.values()]


def job_of_launchers(started: Sequence[Proc]) -> Job:
    """The job that some launchers are to start together, with as many ranks as they ask for at least."""
    first = min(started, key=lambda proc: proc.pid)
    wanted = launch_request(first.command, first.environ)
    return Job(
        launcher=launcher_name(first.command) or "",
        launcher_pid=first.pid,
        launcher_command=first.command,
        launcher_cwd=first.cwd,
        world_size=wanted.least_nodes * (wanted.ranks_per_node or 1),
        master=wanted.endpoint,
        host=socket.gethostname(),
        container=containers.foreign_container(first.pid),
        asked=msgspec.structs.replace(wanted, launchers=[proc.pid for proc in started]),
        processes=[],
    )


def launcher_pids(found: Job) -> list[int]:
    """The pids of what starts the ranks of a job on this host."""
    return found.asked.launchers if found.asked else [found.launcher_pid] if found.launcher_pid else []
