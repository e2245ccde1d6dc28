"""Zombie ranks: they have ended and their parent has not collected them."""

from collections.abc import Mapping, Sequence

from ..launchers.recognise import launcher_name
from ..system import procfs
from ..system.procfs import Proc
from .types import Process


def zombie_ranks(living: Sequence[Process], here: set[int], processes: Mapping[int, Proc]) -> list[Process]:
    """Return the zombies among the children of the ranks' parents.

    /proc no longer shows their ranks. They follow from the order in which the ranks of this host (``here``) started;
    zombies for which that is ambiguous are left out.
    """
    parents = {processes[rank.pid].parent for rank in living}
    if 1 in parents and not launcher_name(processes[1].command):  # init; in a container pid 1 can be the launcher
        parents.remove(1)
    numbers = {rank.pid: rank.rank for rank in living}
    zombies = {p.pid for p in processes.values() if p.state == "Z" and p.parent in parents}
    row = sorted((processes[pid] for pid in {*numbers, *zombies}), key=lambda proc: (proc.started_s, proc.pid))
    found: list[Process] = []
    run: list[Proc] = []
    before = min(here, default=0) - 1
    for proc in [*row, None]:
        if proc and proc.pid in zombies:
            run.append(proc)
            continue
        rank = numbers[proc.pid] if proc else max(here, default=-1) + 1
        if rank is not None and run and rank - before - 1 == len(run):
            found += [_zombie(zombie, before + 1 + at) for at, zombie in enumerate(run)]
        run, before = [], rank if rank is not None else before
    return found


def _zombie(proc: Proc, rank: int) -> Process:
    return Process(
        pid=proc.pid,
        rank=rank,
        local_rank=None,
        command=[],
        cwd="",
        python="",
        environ={},
        started_at=procfs.started_at(proc),
        rank_from="order",
    )
