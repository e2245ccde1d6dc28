"""Jobs of other users, and orphaned processes that hold GPU memory."""

import os
import pwd
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..launchers.recognise import launcher_name
from ..snapshot import Gpu, GpuProcess
from ..system import procfs
from ..system.procfs import Proc
from ..text.units import bytes_text, count_text
from .types import Job


def jobs_of_other_users(processes: Mapping[int, Proc]) -> list[str]:
    """Return a line for each user whose jobs run here and are not readable, with the needed command.

    Only the launchers identify them: of other users' processes only the command line is readable.
    """
    if os.geteuid() == 0:
        return []
    launchers = {proc.pid for proc in processes.values() if proc.uid != os.geteuid() and launcher_name(proc.command)}
    outermost = [
        processes[pid].uid
        for pid in launchers
        if not any(above.pid in launchers for above in procfs.ancestors(pid, processes))
    ]
    return [
        f"{count_text(number, 'job')} of user {user_name(uid)} run{'s' if number == 1 else ''} here: "
        "needs sudo (sudo ddpwizard triage)"
        for uid, number in sorted(Counter(outermost).items())
    ]


def orphan_gpu_processes(gpus: Sequence[Gpu], jobs: Iterable[Job], processes: Mapping[int, Proc]) -> list[str]:
    """Return a line for each process that holds GPU memory and belongs to no living job: left over from an ended job, a
    zombie, or another user's process."""
    ranks = {process.pid for job in jobs if not job.launcher_gone for process in job.processes}
    held: dict[int, list[tuple[int, GpuProcess]]] = {}
    for gpu in gpus:
        for process in gpu.processes:
            above = {process.pid, *(above.pid for above in procfs.ancestors(process.pid, processes))}
            if not above & ranks:
                held.setdefault(process.pid, []).append((gpu.index, process))
    return [_holder(pid, places) for pid, places in sorted(held.items())]


def _holder(pid: int, places: Sequence[tuple[int, GpuProcess]]) -> str:
    process = places[0][1]
    known = [each.used_bytes for _, each in places if each.used_bytes is not None]
    size = bytes_text(sum(known)) if known else "memory"
    where = f"GPU{'s' if len(places) > 1 else ''} {', '.join(str(index) for index, _ in places)}"
    if not process.alive:
        who = "it has ended or runs in another container"
    elif process.orphan:
        who = f"rank {process.rank} of a job whose launcher is gone"
    else:
        who = f"no rank of a job on this host, user {process.user or '?'}"
    name = f" ({process.command[:60]})" if process.command else ""
    return f"pid {pid}{name} holds {size} on {where}: {who}"


def user_name(uid: int) -> str:
    """Return the user's name, or the number if it has no name on this machine."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
