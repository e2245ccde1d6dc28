"""Find how processes of a job ended: the OOM killer (kernel log, memory cgroup counters), torch's error files, and the
exit status of zombies. Only deaths after the start of the job count.
"""

import os
import re
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...jobs.types import Job, Process
from ...launchers.rank_variables import local_world_size
from ...system import proc_files, procfs
from ...text.numbers import parse_count
from ..types import ProcessDeath

KMSG = Path("/dev/kmsg")
CGROUPS = Path("/sys/fs/cgroup")
RECORD_BYTES = 8192  # larger than any record of the kernel log
RECORDS_MOST = 200_000
EARLY_S = 1.0  # accuracy of both clocks
ERROR_FILE_MOST_BYTES = 1_000_000
ERROR_MOST_LETTERS = 500
RANKS_MOST = 64  # of one host
# mm/oom_kill.c of Linux 6.18; older kernels write "Killed process 7 (python), UID 1000, total-vm:…".
KILLED = re.compile(r"\bKilled process (?P<pid>\d{1,10})(?:, UID \d+,)? \((?P<name>.{0,64}?)\)[ ,].*?anon-rss:")
UID = re.compile(r"\bUID[: ](\d{1,10})")
SLURM_TASK = re.compile(r"/task_\d+$")
LOADER = "pt_data_worker"  # torch/utils/data/_utils/worker.py
SUMMARY = re.compile(r"oom-kill:.*?oom_memcg=(?P<limit>[^,]*),.*?task_memcg=(?P<cgroup>[^,]*),.*?pid=(?P<pid>\d{1,10})")


class OomKill(NamedTuple):
    """A process killed by the OOM killer according to the kernel log. ``at``: seconds since boot."""

    pid: int
    name: str  # of its main thread, at most 15 letters
    uid: int | None
    cgroup: str  # the memory cgroup it was in, "" if not known
    at: float
    message: str


class MemoryCgroup(NamedTuple):
    """A memory cgroup: its path in the kernel log, and the file that counts its OOM kills."""

    path: str
    counter: Path


class ErrorFile(NamedTuple):
    """The error file that torch wrote for a rank. The pid is known only for living ranks."""

    path: str
    rank: int | None
    pid: int | None
    text: str


def find_deaths(job: Job) -> tuple[list[ProcessDeath], list[str]]:
    """Return the deaths of the processes of a job, and the problems of finding them."""
    text, problem = read_kernel_log()
    boot = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    groups = memory_cgroups(job)
    found = deaths_in_kernel_log(job, parse_oom_kills(text), boot, [group.path for group in groups], _uids(job))
    if not found:
        found = deaths_by_cgroup_counters(
            {str(group.counter): oom_kill_count(_text(group.counter)) for group in groups}, job
        )
    return [*found, *deaths_in_error_files(read_error_files(job), job), *zombie_deaths(job)], [
        problem
    ] if problem else []


def read_kernel_log() -> tuple[str, str]:
    """Return the records of the kernel log, one per line, and the reason if it cannot be read."""
    records: list[bytes] = []
    try:
        log = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        why = "needs root, or kernel.dmesg_restrict=0" if isinstance(error, PermissionError) else str(error.strerror)
        return "", f"the kernel log cannot be read ({why}): OOM kills can only be counted in cgroups"
    try:
        while len(records) < RECORDS_MOST:
            try:
                records.append(os.read(log, RECORD_BYTES))
            except BrokenPipeError:  # records were overwritten meanwhile: continue with the oldest one
                continue
            except OSError:
                break
    finally:
        os.close(log)
    return b"".join(records).decode(errors="replace"), ""


def parse_oom_kills(text: str) -> list[OomKill]:
    """Parse the OOM kills in a kernel log (Documentation/ABI/testing/dev-kmsg: ``6,679,13578613698,-;text``)."""
    cgroups: dict[int, str] = {}
    found: list[OomKill] = []
    for line in text.splitlines():
        head, separator, message = line.partition(";")
        stamp = head.split(",")[2] if head.count(",") >= 2 else ""
        if not separator or not stamp.isdecimal():
            continue
        if summary := SUMMARY.search(message):
            cgroups[int(summary["pid"])] = summary["cgroup"]
        elif killed := KILLED.search(message):
            pid, uid = int(killed["pid"]), UID.search(message)
            found.append(
                OomKill(
                    pid=pid,
                    name=killed["name"],
                    uid=int(uid[1]) if uid else None,
                    cgroup=cgroups.pop(pid, ""),
                    at=int(stamp) / 1e6,
                    message=message.strip()[:300],
                )
            )
    return found


def deaths_in_kernel_log(
    job: Job, victims: Sequence[OomKill], boot: float, groups: Sequence[str], uids: frozenset[int]
) -> list[ProcessDeath]:
    """Return the OOM kills that belong to the job.

    ``boot``: seconds since the epoch; ``groups``: the job's memory cgroups. A pid that no longer exists is attributed
    to the job if it was a Python process of the job's user, in a cgroup of the job or in none, was killed after the
    job started, and a rank is missing (or it was a data loader worker).
    """
    started = min((process.started_at for process in job.processes if process.started_at), default=0.0)
    ended = {process.pid: process.rank for process in job.processes if not process.command}
    present = {process.rank for process in job.processes if process.command}
    missing = sorted(set(range(job.world_size)) - present)
    matched: list[tuple[OomKill, int | None]] = []
    for kill in victims:
        if not started or boot + kill.at < started - EARLY_S:
            continue
        if kill.pid in ended:
            matched.append((kill, ended[kill.pid]))
        elif kill.uid in (None, *uids) and _python_like(kill.name):
            inside = any(_within(kill.cgroup, group) for group in groups)
            if (missing or kill.name == LOADER) and (inside or not kill.cgroup.strip("/")):
                matched.append((kill, None))
    unknown = [kill for kill, rank in matched if rank is None and kill.name != LOADER]
    only_missing = missing[0] if len(missing) == len(unknown) == 1 else None
    return [
        ProcessDeath(
            pid=kill.pid,
            rank=only_missing if rank is None and kill.name != LOADER else rank,
            how="oom_killer",
            what=kill.message,
            where="kernel log",
            at=round(boot + kill.at, 3),
        )
        for kill, rank in matched
    ]


def deaths_by_cgroup_counters(counts: Mapping[str, int], job: Job) -> list[ProcessDeath]:
    """Return the OOM kills counted by the job's cgroups, only if a rank is missing: the counters have no times."""
    present = {process.rank for process in job.processes if process.command}
    missing = sorted(set(range(job.world_size)) - present)
    counted = [(path, count) for path, count in counts.items() if count]
    if not counted or not missing:
        return []
    path, count = counted[0]
    times = "once" if count == 1 else f"{count} times"
    what = f"the OOM killer ran {times} in the cgroup of this job since its creation"
    return [
        ProcessDeath(pid=None, rank=missing[0] if len(missing) == 1 else None, how="oom_killer", what=what, where=path)
    ]


def memory_cgroups(job: Job) -> list[MemoryCgroup]:
    """Return the memory cgroups of the job's living processes and of its launcher."""
    pids = [process.pid for process in job.processes if process.command]
    found: dict[str, MemoryCgroup] = {}
    for pid in [*pids, *([job.launcher_pid] if job.launcher_pid else [])]:
        group = memory_cgroup_of(proc_files.read_text_of(pid, "cgroup"))
        if group:
            found[group.path] = group
    return list(found.values())


def memory_cgroup_of(cgroups: str) -> MemoryCgroup | None:
    """Parse the memory cgroup in /proc/PID/cgroup: version 1 if it has the memory controller, else version 2.

    "/" under version 2 is the root cgroup, which has no counter, or that of our own container, which has one.
    """
    unified = None
    for line in cgroups.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not path or ".." in path.split("/"):
            continue
        if "memory" in controllers.split(",") and path != "/":
            return MemoryCgroup(path, CGROUPS / "memory" / path.lstrip("/") / "memory.oom_control")
        if not controllers:
            unified = MemoryCgroup(path, CGROUPS / path.lstrip("/") / "memory.events")
    return unified


def oom_kill_count(text: str) -> int:
    """Parse ``oom_kill`` in memory.events or memory.oom_control."""
    found = re.search(r"^oom_kill (\d{1,15})$", text, re.MULTILINE)
    return int(found[1]) if found else 0


def zombie_deaths(job: Job) -> list[ProcessDeath]:
    """Return the zombies of the job that ended by a signal or an error, from their exit status."""
    found: list[ProcessDeath] = []
    for process in job.processes:
        status = procfs.wait_status(process.pid) if not process.command else None
        if not status:
            continue
        code = os.waitstatus_to_exitcode(status)
        how = "signal" if code < 0 else "exit"
        what = _signal_name(-code) if code < 0 else f"exit status {code}"
        where = f"/proc/{process.pid}/stat"
        found.append(ProcessDeath(pid=process.pid, rank=process.rank, how=how, what=what, where=where))
    return found


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def deaths_in_error_files(files: Iterable[ErrorFile], job: Job) -> list[ProcessDeath]:
    """Parse torch's error files (torch/distributed/elastic/multiprocessing/errors/error_handler.py)."""
    started = min((process.started_at for process in job.processes if process.started_at), default=0.0)
    found: list[ProcessDeath] = []
    for file in files:
        try:
            content = msgspec.json.decode(file.text.encode())
        except (msgspec.DecodeError, RecursionError):
            continue
        message = content.get("message") if isinstance(content, dict) else None
        extra = message.get("extraInfo") if isinstance(message, dict) else None
        what = message.get("message") if isinstance(message, dict) else message
        stamp = str(extra.get("timestamp", "")) if isinstance(extra, dict) else ""
        at = parse_count(stamp, 11)
        if isinstance(what, str) and what and (at is None or at >= started - EARLY_S):
            what = what.strip()[:ERROR_MOST_LETTERS]
            found.append(ProcessDeath(pid=file.pid, rank=file.rank, how="exit", what=what, where=file.path, at=at))
    return found


def read_error_files(job: Job) -> list[ErrorFile]:
    """Read the error files of the job.

    The environment of a dead rank is gone: its file is found next to those of living ranks, in a directory named by the
    local rank.
    """
    found: dict[str, ErrorFile] = {}
    pids = {process.rank: process.pid for process in job.processes}
    for process in job.processes:
        own = process.environ.get("TORCHELASTIC_ERROR_FILE", "")
        for path, rank in _sibling_error_files(own, process, job.world_size).items():
            file = procfs.source_file(process.pid, path) if path not in found else None
            if file and 0 < len(file.text) <= ERROR_FILE_MOST_BYTES:
                found[path] = ErrorFile(path, rank, pids.get(rank), file.text)
    return list(found.values())


def _sibling_error_files(own: str, process: Process, world_size: int) -> dict[str, int | None]:
    """Return the paths of the error files of a process and of the other ranks of its node, with their ranks."""
    if not own.startswith("/"):
        return {}
    local, on_node = process.local_rank, local_world_size(process.environ)
    parts = Path(own).parts
    if process.rank is None or local is None or on_node is None or len(parts) < 3 or parts[-2] != str(local):
        return {own: process.rank}
    first = process.rank - local
    return {
        str(Path(*parts[:-2], str(other), parts[-1])): first + other
        for other in range(min(on_node, world_size, RANKS_MOST))
    }


def _uids(job: Job) -> frozenset[int]:
    pids: Iterable[int] = [process.pid for process in job.processes] + [job.launcher_pid or 0]
    return frozenset(found.uid for pid in pids if pid and (found := procfs.process_of(pid)))


def _python_like(name: str) -> bool:
    """Return whether a process of this name may belong to the job. Names of torch's threads begin with pt_."""
    return name.lower().startswith(("python", "pypy", "pt_"))


def _within(path: str, group: str) -> bool:
    path, group = SLURM_TASK.sub("", path), SLURM_TASK.sub("", group)
    return group != "/" and (path == group or path.startswith(group + "/"))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
