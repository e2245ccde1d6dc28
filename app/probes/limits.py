"""Limits of this host: shared memory, locked memory, open files, the container's memory, and ptrace permissions."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from ..snapshot import LimitsSection
from ..system import procfs, ptrace
from ..text.numbers import parse_count
from .context import ProbeContext
from .env import read_launch_environment
from .isolated import ChildRequest, run_isolated
from .limits_judge import judge

__all__ = ["collect", "judge"]

UNLIMITED_V1_BYTES = 1 << 62  # cgroup v1 writes "no limit" as the largest multiple of the page size
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

BYTES_DIGITS = 20  # of a size in bytes, up to 2**64

Memory = tuple[int | None, int | None, int | None]  # limit and use in bytes, killed processes


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
    limit, used, kills = cgroup_memory(proc)
    memory = psutil.virtual_memory()
    scope = ptrace.read_ptrace_scope()
    limits = _rlimits(proc)
    return LimitsSection(
        shm_total_bytes=shm[0],
        shm_free_bytes=shm[1],
        shm_problem=shm[2],
        memlock_bytes=limits[0],
        open_files=limits[1],
        cgroup_memory_limit_bytes=limit,
        cgroup_memory_used_bytes=used,
        cgroup_oom_kills=kills,
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


def available_memory_bytes() -> int:
    """The memory that this process may still take: of the machine, or of its control group."""
    import psutil

    limit, used, _ = cgroup_memory(Path("/proc/self"))
    machine = psutil.virtual_memory().available
    return machine if limit is None else max(0, min(machine, limit - (used or 0)))


def _rlimits(proc: Path) -> tuple[int | None, int | None]:
    """Soft limits on locked memory (bytes) and open files; None: unlimited."""
    found: dict[str, int | None] = {}
    for line in _text(proc / "limits").splitlines()[1:]:
        soft = line[26:].split()[0]  # names have blanks; the kernel pads them to 26 columns
        found[line[:26].strip()] = None if soft == "unlimited" else int(soft)
    return found["Max locked memory"], found["Max open files"]


def cgroup_memory(proc: Path) -> Memory:
    """The tightest memory limit from the process's control group upwards, the memory used there without reclaimable
    page cache, and the number of processes killed by the OOM killer."""
    paths: dict[str, str] = {}
    for line in _text(proc / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    if "memory" in paths:
        return _tightest("/sys/fs/cgroup/memory", paths["memory"], _v1)
    if "" in paths:
        return _tightest("/sys/fs/cgroup", paths[""], _v2)
    return None, None, None


def _tightest(mount: str, path: str, read_one: Callable[[Path], Memory]) -> Memory:
    here = Path(mount, path.lstrip("/"))
    groups = [group for group in (here, *here.parents) if group.is_relative_to(mount) and group.is_dir()]
    found = [read_one(group) for group in groups or [Path(mount)]]
    limit, used, _ = min(found, key=lambda one: (one[0] is None, one[0] or 0))
    return limit, used, found[0][2]


def _v1(group: Path) -> Memory:
    limit, used = _number(group / "memory.limit_in_bytes"), _number(group / "memory.usage_in_bytes")
    cache = _fields(group / "memory.stat").get("total_inactive_file", 0)
    kills = _fields(group / "memory.oom_control").get("oom_kill")
    limit = None if limit is None or limit >= UNLIMITED_V1_BYTES else limit
    return limit, None if used is None else max(0, used - cache), kills


def _v2(group: Path) -> Memory:
    used = _number(group / "memory.current")  # the root group has none
    cache = _fields(group / "memory.stat").get("inactive_file", 0)
    kills = _fields(group / "memory.events").get("oom_kill")
    return _number(group / "memory.max"), None if used is None else max(0, used - cache), kills


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


def _fields(path: Path) -> dict[str, int]:
    """Lines of ``name number …`` or ``name: number …``."""
    pairs = (line.split() for line in _text(path).splitlines())
    numbers = ((pair[0].rstrip(":"), parse_count(pair[1], BYTES_DIGITS)) for pair in pairs if len(pair) > 1)
    return {name: number for name, number in numbers if number is not None}


def _number(path: Path) -> int | None:
    return parse_count(_text(path), BYTES_DIGITS)  # None for "max": no limit


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
