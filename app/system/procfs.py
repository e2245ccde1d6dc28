"""Processes from /proc. A process that ends in the meantime gives None, not an error; a refusal is recorded."""

import os
import re
import stat
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..errors import InspectionError, UserError
from . import proc_files, run_directory
from .files import read_regular_file

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SOURCE_LIMIT_BYTES = 4_000_000


class Proc:
    """A living process or zombie; the environment and the paths are read on first use."""

    def __init__(self, pid: int, parent: int, state: str, cpu_s: float, started_s: float, uid: int) -> None:
        self.pid, self.parent, self.state, self.uid = pid, parent, state, uid
        self.cpu_s = cpu_s
        self.started_s = started_s  # since boot
        self.denied = False  # set when the kernel refuses the environment

    @cached_property
    def command(self) -> list[str]:
        """Argument list; empty for a zombie or a kernel thread."""
        return _strings(proc_files.read_bytes_of(self.pid, "cmdline"))

    @cached_property
    def environ(self) -> dict[str, str]:
        """Environment at the start of the process; later changes are not visible (proc(5))."""
        try:
            text = Path(f"{proc_files.PROC}/{self.pid}/environ").read_bytes()
        except PermissionError:
            record = self._record()
            self.denied = record is None
            return record.environ if record else {}
        except OSError:
            return {}
        pairs = (entry.partition("=") for entry in _strings(text))
        return {name: value for name, equals, value in pairs if equals}

    @cached_property
    def executable(self) -> str:
        return proc_files.read_link_of(self.pid, "exe") or ((record := self._record()) and record.python) or ""

    @cached_property
    def cwd(self) -> str:
        return proc_files.read_link_of(self.pid, "cwd") or ((record := self._record()) and record.cwd) or ""

    def _record(self) -> run_directory.RankRecordFile | None:
        """Return the record of a rank started with ``ddpwizard run``, for values that the kernel hides."""
        path = (
            run_directory.record_of(self.pid) if self.command[:1] and "python" in Path(self.command[0]).name else None
        )
        return run_directory.read_record(path) if path else None

    @property
    def is_python(self) -> bool:
        """True if the program is a Python interpreter, by the name of its executable or else of its command."""
        program = self.executable or (self.command[0] if self.command else "")
        return Path(program).name.lower().startswith(("python", "pypy"))

    @property
    def name(self) -> str:
        """Text such as "pid 4711 (python train.py)", the program without its directory."""
        command = " ".join([Path(self.command[0]).name, *self.command[1:3]]) if self.command else ""
        return f"pid {self.pid} ({command[:80]})" if command else f"pid {self.pid}"


class Counters(msgspec.Struct, frozen=True):
    """Use of a process so far: CPU seconds of all its threads, voluntary switches of its main thread."""

    state: str
    cpu_s: float
    switches: int


def all_processes() -> dict[int, Proc]:
    """Return every process, from one pass over /proc.

    Raises:
        InspectionError: There is no /proc (another system, or a container that hides it).
    """
    try:
        names = [entry.name for entry in proc_files.PROC.iterdir()]
    except OSError:
        names = []
    found = {int(name): proc for name in names if name.isdigit() and (proc := process_of(int(name)))}
    if not found:
        raise InspectionError(
            f"there is no {proc_files.PROC} to read processes from",
            "run ddpwizard on the Linux machine where the job runs",
        )
    return found


def process_of(pid: int) -> Proc | None:
    """Return the process with this pid, or None if there is none."""
    fields, uid = proc_files.stat_fields(pid), proc_files.user_of(pid)
    if not fields or uid is None:
        return None
    cpu_s = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return Proc(pid, int(fields[1]), fields[0], cpu_s, int(fields[19]) / TICKS_PER_S, uid)


def counters(pid: int) -> Counters | None:
    """Return the state of the main thread and the use so far, or None if the process is gone."""
    whole, (state, switches) = proc_files.stat_fields(pid), thread_state(pid, pid)
    return Counters(state, (int(whole[11]) + int(whole[12])) / TICKS_PER_S, switches) if whole and state else None


def thread_state(pid: int, number: int) -> tuple[str, int]:
    """Return the state of a thread and its voluntary switches so far, or "" and 0 if it is gone."""
    status = proc_files.read_text_of(pid, f"task/{number}/status")
    found = dict(re.findall(r"^(State|voluntary_ctxt_switches):\s+(\w+)", status, re.MULTILINE))
    return found.get("State", ""), int(found.get("voluntary_ctxt_switches", 0))


def wait_status(pid: int) -> int | None:
    """Return the exit status of a zombie as ``os.waitpid`` does, or None if it is not a zombie.

    The kernel shows 0 to users who may not inspect the process.
    """
    fields = proc_files.stat_fields(pid, "stat")
    return int(fields[49]) if len(fields) > 49 and fields[0] == "Z" else None


def read_io_bytes(pid: int) -> tuple[int, int]:
    """Return the bytes read and written so far (proc(5), rchar and wchar), or zeros if the kernel refuses."""
    found = dict(re.findall(r"^(\w+): (\d+)$", proc_files.read_text_of(pid, "io"), re.MULTILINE))
    return int(found.get("rchar", 0)), int(found.get("wchar", 0))


def kernel_wait_function(pid: int) -> str:
    """Return the kernel function in which the main thread sleeps, or "" if it runs or the kernel hides it.

    Kernels without symbols for wchan show it on the kernel stack, which needs root.
    """
    wchan = proc_files.read_text_of(pid, "wchan")
    if wchan not in ("", "0"):
        return wchan.partition(".")[0]  # without what the compiler added: poll_schedule_timeout.constprop.0
    top = re.match(r"\[<\w+>\] (\w+)", proc_files.read_text_of(pid, "stack"))
    return top[1] if top else ""


def main_thread_name(pid: int) -> str:
    """Return the name of the main thread: that of the program, unless the process changed it."""
    return proc_files.read_text_of(pid, "comm").rstrip("\n")


def has_gpu_open(pid: int) -> bool:
    """Return whether the process has a compute device of NVIDIA or AMD open."""
    try:
        targets = [fd.readlink().name for fd in (proc_files.PROC / str(pid) / "fd").iterdir()]
    except OSError:
        return False
    return any((name.startswith("nvidia") and name[6:].isdigit()) or name in ("nvidia-uvm", "kfd") for name in targets)


def has_torch(pid: int) -> bool:
    """Return whether the process has torch's library loaded."""
    return b"/libtorch" in proc_files.read_bytes_of(pid, "maps")


def open_sockets(pid: int) -> frozenset[int]:
    """Return the inodes of the open sockets of the process."""
    found: set[int] = set()
    try:
        entries = list((proc_files.PROC / str(pid) / "fd").iterdir())
    except OSError:
        return frozenset()
    for entry in entries:
        try:
            target = entry.readlink().name
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(int(target[8:-1]))
    return frozenset(found)


def network_namespace(pid: int) -> str:
    """Return a text that is equal for processes of one network namespace, or "" if it may not be read."""
    return proc_files.read_link_of(pid, "ns/net")


def started_at(proc: Proc) -> float:
    """Return the start time in seconds since the epoch."""
    return time.time() - max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - proc.started_s)


def ancestors(pid: int, processes: Mapping[int, Proc]) -> list[Proc]:
    """Return the parent of the process, the parent's parent and so on."""
    found: list[Proc] = []
    proc = processes.get(pid)
    while proc and (parent := processes.get(proc.parent)) and parent not in found:
        found.append(parent)
        proc = parent
    return found


class SourceFile(NamedTuple):
    """The text of a source file and the time of its last change, in seconds since the epoch."""

    text: str
    modified_at: float


def source_file(pid: int, path: str) -> SourceFile | None:
    """Return a file as this process sees it (its container's file system), else as we do, or None.

    A process may name any path, so only files that its own user may read are read, whatever our rights.
    """
    for candidate in proc_files.host_path(pid, path):
        try:
            file = candidate.stat()
            if stat.S_ISREG(file.st_mode) and _may_read(pid, file):
                text = read_regular_file(candidate, SOURCE_LIMIT_BYTES, "").decode("utf-8", "replace")
                return SourceFile(text, file.st_mtime)
        except (OSError, UserError):
            continue
    return None


def _may_read(pid: int, file: os.stat_result) -> bool:
    """Return whether the process's user may read a file as its owner, through a group, or as everybody."""
    if proc_files.user_of(pid) in (0, file.st_uid) or file.st_mode & stat.S_IROTH:
        return True
    fields = dict(line.split(":", 1) for line in proc_files.read_text_of(pid, "status").splitlines() if ":" in line)
    groups = {int(word) for name in ("Gid", "Groups") for word in fields.get(name, "").split()}
    return bool(file.st_mode & stat.S_IRGRP) and file.st_gid in groups


def _strings(text: bytes) -> list[str]:
    return text.rstrip(b"\0").decode(errors="replace").split("\0") if text else []
