"""Discover the distributed jobs of this machine in one pass over /proc.

A rank is a Python process whose environment assigns one (torch's RANK, or that of MPI or Slurm), or that
``spawned_ranks`` recognises. Ranks with the same run id and master belong together. The launcher is one of their
ancestors.
"""

import os
import shutil
import socket
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..errors import InspectionError, UserError
from ..launchers.rank_variables import RankAssignment, rank_from_environment
from ..launchers.recognise import is_multiprocessing_spawn, is_wizard, launcher_name
from ..system import containers, proc_files, procfs
from ..system.procfs import Proc
from . import spawned_ranks, waiting_launchers
from .other_processes import user_name
from .types import Job, Process
from .zombie_ranks import zombie_ranks

Key = tuple[int, str, str, int, str]
KTHREADD = 2  # the pid of the parent of all kernel threads, outside containers


class _Rank(NamedTuple):
    proc: Proc
    assignment: RankAssignment


def find_jobs(processes: dict[int, Proc] | None = None) -> list[Job]:
    """Return every job of this user, as root of all users.

    Raises:
        InspectionError: There is no /proc, or the processes of a job are not readable.
    """
    processes = procfs.all_processes() if processes is None else processes
    readable = [proc for proc in processes.values() if os.geteuid() in (0, proc.uid)]
    jobs = _jobs(readable, processes) + waiting_launchers.waiting_jobs(readable, processes)
    if not jobs:
        for proc in readable:
            if proc.denied and any(launcher_name(above.command) for above in procfs.ancestors(proc.pid, processes)):
                raise _denied(proc)
    return jobs


def job_of_pid(pid: int, processes: dict[int, Proc] | None = None) -> list[Job]:
    """Return the job of a process: a launcher, a rank, a child of either, or the process that started the launcher.

    A process without a job becomes a job of world size 1.

    Raises:
        UserError: There is no such process.
        InspectionError: The process is not readable.
    """
    processes = procfs.all_processes() if processes is None else processes
    proc = processes.get(pid)
    if proc is None:
        raise UserError(f"no process has the pid {pid}", "ddpwizard triage lists the jobs that run here")
    jobs = _jobs(processes.values(), processes)
    above = [pid, *(ancestor.pid for ancestor in procfs.ancestors(pid, processes))]
    for each in above:
        if found := [job for job in jobs if any(each == rank.pid for rank in job.processes)]:
            return found
    below = [
        job
        for job in jobs
        if any(pid == ancestor.pid for rank in job.processes for ancestor in procfs.ancestors(rank.pid, processes))
    ]
    if below and pid != 1:
        return below
    without = waiting_launchers.waiting_jobs(processes.values(), processes)
    for each in above:
        if found := [job for job in (*jobs, *without) if each in waiting_launchers.launcher_pids(job)]:
            return found
    started = {
        above.pid: job
        for job in without
        for launcher in waiting_launchers.launcher_pids(job)
        for above in procfs.ancestors(launcher, processes)
    }
    if pid in started and pid != 1:
        return [started[pid]]
    if proc.state == "Z":
        raise UserError(f"pid {pid} has ended; its parent has not collected it", "name the launcher or another rank")
    _ = proc.environ
    if proc.denied:
        raise _denied(proc)
    return [_single_process_job(proc, processes)]


def _jobs(candidates: Iterable[Proc], processes: dict[int, Proc]) -> list[Job]:
    pythons = [
        proc for proc in candidates if not _is_kernel_thread(proc, processes) and proc.is_python and not _is_ours(proc)
    ]
    assigned = [
        _Rank(proc, found)
        for proc in pythons
        if (found := rank_from_environment(proc.environ)) and not launcher_name(proc.command)
    ]
    groups = spawned_ranks.group_spawned_ranks(
        _without_rank(pythons, assigned, processes), processes, {rank.proc.pid for rank in assigned}
    )
    spawned_ones = {member.proc.pid for group in groups for member in group.members}
    spawned_ones |= {group.parent.pid for group in groups if group.parent}
    assigned = [
        rank
        for rank in assigned
        if not spawned_ones & {rank.proc.pid, *(above.pid for above in procfs.ancestors(rank.proc.pid, processes))}
    ]
    ranks = _without_starters(_topmost(assigned, processes), processes)
    jobs = [_spawned_job(group, processes) for group in groups]
    together: dict[Key, list[_Rank]] = defaultdict(list)
    for rank in ranks:
        together[_key(rank, processes)].append(rank)
    for members in together.values():
        if _is_job(members):
            jobs += [_job(part, processes) for part in _split(members, processes)]
    return sorted(jobs, key=lambda job: min(process.pid for process in job.processes))


def _is_kernel_thread(proc: Proc, processes: dict[int, Proc]) -> bool:
    """Return whether kthreadd started a process; in a container process 2 may be any program, such as torchrun."""
    parent = processes.get(KTHREADD) if proc.parent == KTHREADD else None
    return parent is not None and not parent.command


def _is_ours(proc: Proc) -> bool:
    return proc.pid == os.getpid() or is_wizard(proc.command)


def _without_rank(pythons: list[Proc], assigned: list[_Rank], processes: dict[int, Proc]) -> list[Proc]:
    """Candidates for ranks without an environment: neither ranks of a larger world nor processes these started.

    A rank of an MPI or Slurm world, or of a world of one, may have started the real ranks itself.
    """
    final = {rank.proc.pid for rank in assigned if rank.assignment.certain and rank.assignment.world_size > 1}
    return [
        proc
        for proc in pythons
        if proc.pid not in final
        and not launcher_name(proc.command)
        and not any(above.pid in final for above in procfs.ancestors(proc.pid, processes))
    ]


def _topmost(ranks: list[_Rank], processes: dict[int, Proc]) -> list[_Rank]:
    """Drop the children of a rank (data loader workers), which inherit its environment."""
    by_pid = {rank.proc.pid: rank for rank in ranks}
    return [
        rank
        for rank in ranks
        if not any(
            _identity(above_rank.assignment) == _identity(rank.assignment)
            for above in procfs.ancestors(rank.proc.pid, processes)
            if (above_rank := by_pid.get(above.pid))
        )
    ]


def _without_starters(ranks: list[_Rank], processes: dict[int, Proc]) -> list[_Rank]:
    """Drop processes that only started the real ranks and have a rank themselves from Slurm or from their shell."""
    starters = {above.pid for rank in ranks for above in procfs.ancestors(rank.proc.pid, processes)}
    return [
        rank
        for rank in ranks
        if rank.proc.pid not in starters or (rank.assignment.certain and rank.assignment.world_size > 1)
    ]


def _identity(where: RankAssignment) -> tuple[int, str, str]:
    return where.rank, where.master, where.run


def _key(rank: _Rank, processes: dict[int, Proc]) -> Key:
    """The key that ranks of one job share. A loopback address is another one in each container."""
    where, run = rank.assignment, rank.assignment.run
    if not where.certain and not run:
        launcher = _launcher(rank.proc, processes)
        run = f"started by {launcher.pid}" if launcher else ""
    address = where.master.rpartition(":")[0]
    namespace = procfs.network_namespace(rank.proc.pid) if address.startswith(("127.", "localhost", "::1")) else ""
    return rank.proc.uid, run, where.master, where.world_size, namespace


def _is_job(members: list[_Rank]) -> bool:
    """Return whether ranks are a job. sbatch makes every process of its script rank 0: a single one must use torch."""
    first = members[0]
    return first.assignment.certain or len(members) > 1 or first.assignment.rank > 0 or procfs.has_torch(first.proc.pid)


def _split(members: list[_Rank], processes: dict[int, Proc]) -> list[list[_Rank]]:
    """Split by launcher if a rank occurs twice: then two jobs use the same port. Without launchers, by start time.

    Two launchers can also belong to one job: torchrun once per node, both started on one host.
    """
    if not _has_duplicates(members):
        return [members]
    parts: dict[int | None, list[_Rank]] = defaultdict(list)
    for member in members:
        launcher = _launcher(member.proc, processes)
        parts[launcher.pid if launcher else None].append(member)
    return [run for part in parts.values() for run in _split_by_start(sorted(part, key=lambda m: m.proc.started_s))]


def _split_by_start(members: list[_Rank]) -> list[list[_Rank]]:
    """Split ranks, the oldest first, at the longest pause between two starts, until no rank occurs twice."""
    if not _has_duplicates(members):
        return [members]
    pauses = [after.proc.started_s - before.proc.started_s for before, after in pairwise(members)]
    cut = max(range(len(pauses)), key=lambda place: pauses[place]) + 1
    return _split_by_start(members[:cut]) + _split_by_start(members[cut:])


def _has_duplicates(members: list[_Rank]) -> bool:
    return len({member.assignment.rank for member in members}) < len(members)


def _job(members: list[_Rank], processes: dict[int, Proc]) -> Job:
    members = sorted(members, key=lambda member: (member.assignment.rank, member.proc.pid))
    first = members[0]
    launcher = _launcher(first.proc, processes)
    name = launcher_name(launcher.command) if launcher else None
    ranks = [
        msgspec.structs.replace(_process(proc), rank=where.rank, local_rank=where.local_rank) for proc, where in members
    ]
    here = set[int]()
    for _, where in members:
        if where.local_world_size and where.local_rank is not None:
            start = where.rank - where.local_rank
            here |= set(range(start, start + where.local_world_size))
    return Job(
        launcher=name or ("torchrun" if "TORCHELASTIC_RUN_ID" in first.proc.environ else "python"),
        launcher_pid=launcher.pid if launcher else None,
        launcher_command=launcher.command if launcher else [],
        launcher_cwd=launcher.cwd if launcher else "",
        world_size=first.assignment.world_size,
        master=first.assignment.master,
        host=socket.gethostname(),
        container=containers.container_of_others(first.proc.pid),
        launcher_gone=launcher is None and first.proc.parent != 0 and "TORCHELASTIC_RUN_ID" in first.proc.environ,
        processes=ranks + zombie_ranks(ranks, here or set(range(first.assignment.world_size)), processes),
    )


def _spawned_job(group: spawned_ranks.SpawnedRanks, processes: dict[int, Proc]) -> Job:
    ranks = [
        msgspec.structs.replace(
            _process(member.proc), rank=member.rank, local_rank=member.local_rank, rank_from=member.rank_from
        )
        for member in group.members
    ]
    parent, first = group.parent, group.members[0].proc
    return Job(
        launcher="python",
        launcher_pid=parent.pid if parent else None,
        launcher_command=parent.command if parent else [],
        launcher_cwd=parent.cwd if parent else "",
        world_size=group.world_size,
        master=group.master,
        host=socket.gethostname(),
        container=containers.container_of_others(first.pid),
        launcher_gone=parent is None and first.parent != 0 and is_multiprocessing_spawn(first.command),
        processes=ranks + zombie_ranks(ranks, set(range(group.world_size)), processes),
    )


def _launcher(proc: Proc, processes: dict[int, Proc]) -> Proc | None:
    """The nearest launcher among the ancestors; of several of one kind (DeepSpeed has two) the outermost."""
    found: Proc | None = None
    for above in procfs.ancestors(proc.pid, processes):
        name = launcher_name(above.command)
        if found and name != launcher_name(found.command):
            break
        found = above if name else found
    return found


def _process(proc: Proc) -> Process:
    return Process(
        pid=proc.pid,
        rank=None,
        local_rank=None,
        command=proc.command,
        cwd=proc.cwd,
        python=_interpreter(proc),
        environ=proc.environ,
        started_at=procfs.started_at(proc),
        pid_inside=proc_files.pid_inside(proc.pid),
    )


def _interpreter(proc: Proc) -> str:
    """The interpreter as it was called: the executable itself is outside of its virtual environment."""
    called = proc.command[0] if proc.command and proc.is_python else ""
    found = called if called.startswith("/") else shutil.which(called, path=proc.environ.get("PATH"))
    return found if found and Path(found).is_file() else proc.executable


def _single_process_job(proc: Proc, processes: Mapping[int, Proc]) -> Job:
    """The job of a process that belongs to none: a launcher without ranks, or accelerate with a single process, which
    has no rank in its environment."""
    name = launcher_name(proc.command)
    below = [each for each in processes.values() if each.parent == proc.pid and each.is_python and each.state != "Z"]
    if name and not (name == "accelerate" and len(below) == 1):
        return waiting_launchers.job_of_launchers([proc])
    return Job(
        launcher=name or Path(proc.executable or "process").name.rstrip("0123456789."),
        launcher_pid=proc.pid if name else None,
        launcher_command=proc.command if name else [],
        launcher_cwd=proc.cwd if name else "",
        world_size=1,
        master="",
        host=socket.gethostname(),
        processes=[msgspec.structs.replace(_process(each), rank=0) for each in (below if name else [proc])],
    )


def _denied(proc: Proc) -> InspectionError:
    return InspectionError(
        f"{proc.name}: no permission to read its environment (it belongs to user {user_name(proc.uid)}, "
        "or has capabilities that ddpwizard lacks)",
        "run ddpwizard as that user, or as root with the SYS_PTRACE capability",
    )
