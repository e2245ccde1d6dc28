"""Limits of this host: shared memory, locked memory, open files, the container's memory, and ptrace permissions."""

import os
from collections.abc import Mapping
from pathlib import Path

from ..snapshot import LimitsSection
from ..system import procfs, ptrace
from ..system.cgroup_memory import read_cgroup_memory
from .context import ProbeContext
from .env import read_launch_environment
from .isolated import ChildRequest, run_isolated
from .limits_judge import judge

__all__ = ["collect", "judge"]

MARKS = {".dockerenv": "docker", "run/.containerenv": "podman", ".singularity.d": "apptainer"}
VARIABLES = {
    "KUBERNETES_SERVICE_HOST": "kubernetes",
    "APPTAINER_CONTAINER": "apptainer",
    "SINGULARITY_CONTAINER": "apptainer",
}
CGROUP_WORDS = {
    "kubepods": "kubernetes",
    "docker": "docker",
    "libpod": "podman",
    "containerd": "containerd",
    "lxc": "lxc",
}


async def collect(context: ProbeContext, limit_s: float) -> LimitsSection:
    """Collect the limits of this process, or with ``context.pids`` of the job's first process.

    Raises:
        InspectionError: The limits could not be read in time.
    """
    return await run_isolated(
        read_limits_section, LimitsSection, context, limit_s=limit_s, subject="the limits of this host"
    )


def read_limits_section(request: ChildRequest) -> LimitsSection:
    """Read the section in this process (called in the child)."""
    import psutil

    _, environ, _, _ = read_launch_environment(request)
    pid = next((pid for pid in request.pids if procfs.process_of(pid)), 0)
    proc = Path("/proc", str(pid) if pid else "self")
    root = proc / "root" if pid and os.access(proc / "root", os.X_OK) else Path("/")
    shm = _shm(root)
    group = read_cgroup_memory(proc)
    memory = psutil.virtual_memory()
    scope = ptrace.read_ptrace_scope()
    limits = _rlimits(proc)
    return LimitsSection(
        shm_total_bytes=shm[0],
        shm_free_bytes=shm[1],
        shm_problem=shm[2],
        memlock_bytes=limits[0],
        open_files=limits[1],
        cgroup_memory_limit_bytes=group.limit_bytes,
        cgroup_memory_used_bytes=group.used_bytes,
        cgroup_oom_kills=group.count_killed,
        memory_total_bytes=memory.total,
        memory_available_bytes=memory.available,
        cpus=len(os.sched_getaffinity(pid)),
        container=_container(environ, proc, root),
        ptrace_scope=scope,
        can_ptrace=_can_ptrace(scope or 0),
        rdma_devices=sorted(path.name for path in Path("/sys/class/infiniband").glob("*")),
    )


def _shm(root: Path) -> tuple[int | None, int | None, str]:
    """Size and free bytes of /dev/shm below ``root``, and the reason why it cannot be used."""
    path = root / "dev/shm"
    try:
        state = os.statvfs(path)
    except OSError as error:
        return None, None, f"/dev/shm: {error.strerror}"
    problem = ""
    if state.f_flag & os.ST_RDONLY:
        problem = "/dev/shm is mounted read-only"
    elif not os.access(path, os.W_OK | os.X_OK):
        problem = "/dev/shm is not writable for this user"
    return state.f_blocks * state.f_frsize, state.f_bavail * state.f_frsize, problem


def _rlimits(proc: Path) -> tuple[int | None, int | None]:
    """Soft limits on locked memory (bytes) and open files; None: unlimited."""
    found: dict[str, int | None] = {}
    for line in _text(proc / "limits").splitlines()[1:]:
        soft = line[26:].split()[0]  # names have blanks; the kernel pads them to 26 columns
        found[line[:26].strip()] = None if soft == "unlimited" else int(soft)
    return found["Max locked memory"], found["Max open files"]


def _container(environ: Mapping[str, str], proc: Path, root: Path) -> str:
    """The kind of container, or an empty string outside of one."""
    for name, kind in VARIABLES.items():
        if environ.get(name):
            return kind
    for mark, kind in MARKS.items():
        if (root / mark).exists():
            return kind
    groups = _text(proc / "cgroup")
    return _text(root / "run/systemd/container") or next((k for word, k in CGROUP_WORDS.items() if word in groups), "")


def _can_ptrace(scope: int) -> bool:
    """Return whether the stacks of this user's processes can be read if they are no children of ours.

    Yama (Documentation/admin-guide/LSM/Yama.rst): 0: all of the same user, 1: only descendants, 2: only with
    CAP_SYS_PTRACE, 3: none.
    """
    return scope == 0 or (scope < 3 and ptrace.has_sys_ptrace(os.getpid()))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
