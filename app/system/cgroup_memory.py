"""The memory of a control group: its limit, what is used, and how many processes were killed for it."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..text.numbers import parse_count

UNLIMITED_V1_BYTES = 1 << 62  # cgroup v1 writes "no limit" as the largest multiple of the page size
BYTES_DIGITS = 20  # of a size in bytes, up to 2**64


class CgroupMemory(NamedTuple):
    """``used_bytes`` is without page cache that can be reclaimed; ``count_killed``: processes killed for memory."""

    limit_bytes: int | None
    used_bytes: int | None
    count_killed: int | None


def read_cgroup_memory(proc: Path) -> CgroupMemory:
    """Return the memory of the group with the tightest limit, from that of a process (its ``/proc/PID``) upwards."""
    paths: dict[str, str] = {}
    for line in _text(proc / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    if "memory" in paths:
        return tightest_limit("/sys/fs/cgroup/memory", paths["memory"], read_v1)
    if "" in paths:
        return tightest_limit("/sys/fs/cgroup", paths[""], read_v2)
    return CgroupMemory(None, None, None)


def available_memory_bytes() -> int:
    """The memory that this process may still take: of the machine, or of its control group."""
    import psutil

    memory = read_cgroup_memory(Path("/proc/self"))
    machine = psutil.virtual_memory().available
    if memory.limit_bytes is None:
        return machine
    return max(0, min(machine, memory.limit_bytes - (memory.used_bytes or 0)))


def tightest_limit(mount: str, path: str, read_one: Callable[[Path], CgroupMemory]) -> CgroupMemory:
    """Return the tightest limit of a group and those above it, with the processes killed in the group itself."""
    here = Path(mount, path.lstrip("/"))
    groups = [group for group in (here, *here.parents) if group.is_relative_to(mount) and group.is_dir()]
    found = [read_one(group) for group in groups or [Path(mount)]]
    tightest = min(found, key=lambda one: (one.limit_bytes is None, one.limit_bytes or 0))
    return tightest._replace(count_killed=found[0].count_killed)


def read_v1(group: Path) -> CgroupMemory:
    """Return the memory of one group of version 1."""
    limit, used = _number(group / "memory.limit_in_bytes"), _number(group / "memory.usage_in_bytes")
    cache = _fields(group / "memory.stat").get("total_inactive_file", 0)
    killed = _fields(group / "memory.oom_control").get("oom_kill")
    limit = None if limit is None or limit >= UNLIMITED_V1_BYTES else limit
    return CgroupMemory(limit, None if used is None else max(0, used - cache), killed)


def read_v2(group: Path) -> CgroupMemory:
    """Return the memory of one group of version 2."""
    used = _number(group / "memory.current")  # the root group has none
    cache = _fields(group / "memory.stat").get("inactive_file", 0)
    killed = _fields(group / "memory.events").get("oom_kill")
    return CgroupMemory(_number(group / "memory.max"), None if used is None else max(0, used - cache), killed)


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
