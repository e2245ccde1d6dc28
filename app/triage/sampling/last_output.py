"""The last output lines of a rank: from the copy that ``ddpwizard run`` or torchrun writes, else from the file to which
its stdout or stderr goes.
"""

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from ...errors import UserError
from ...jobs.types import Job, Process
from ...system import proc_files, run_directory
from ...system.files import open_regular_file
from ...text import redact
from ...text.terminal import strip_sequences_bytes

TAIL_BYTES = 64 * 1024
LINES, LINE_LENGTH = 30, 400
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # in a directory of the rank, next to its output streams
STREAMS = ("stdout.log", "stderr.log")
LOG_DIR = re.compile(r"--log[-_]dir(?:=(.*))?")
FILES = 4096  # of one job
NUMBER = re.compile(r"\d{1,9}")
START_SLACK_S = 1.0  # start times are computed from the age of a process and vary slightly


class LastOutput(msgspec.Struct, frozen=True):
    """The last output lines of a rank, and the path of their file in the rank's file system."""

    lines: list[str]
    path: str


class _File(msgspec.Struct, frozen=True):
    """A file to open at ``at``, known to the rank as ``path``; files with equal ``key`` are the same."""

    path: str
    at: Path
    key: tuple[int, int]
    owner: int
    changed: float
    size_bytes: int


def last_lines_by_rank(job: Job) -> dict[int, LastOutput]:
    """Return the last lines of each rank (by pid), from its most recently written file."""
    chosen: dict[int, _File] = {}
    for process in job.processes:
        if files := [file for file in _of_rank(process) if file.size_bytes]:
            chosen[process.pid] = max(files, key=lambda file: file.changed)
    shared = Counter(file.key for file in chosen.values())
    found: dict[int, LastOutput] = {}
    for process in job.processes:
        if file := chosen.get(process.pid):
            lines = tail_lines(file.at)
            found[process.pid] = LastOutput(lines_of_rank(lines, process) if shared[file.key] > 1 else lines, file.path)
    return found


def log_files(job: Job) -> list[Path]:
    """Return all files with output of the job, also of ended ranks, as paths that can be opened here."""
    found: dict[tuple[int, int], Path] = {}
    launcher = _streams(job.launcher_pid) if job.launcher_pid else []
    for file in [*launcher, *(file for process in job.processes for file in _of_rank(process))]:
        if file.size_bytes:
            found.setdefault(file.key, file.at)
    owners = {proc_files.user_of(process.pid) for process in job.processes}
    for path in [*_of_run(job), *_of_attempt(job), *_of_absent_ranks(job)][:FILES]:
        file = _file(str(path), path)
        if file and file.size_bytes and file.owner in owners:
            found.setdefault(file.key, path)
    return list(found.values())[:FILES]


def tail_lines(path: Path) -> list[str]:
    """Return the last lines of a file without terminal sequences and secrets; of progress bars the last state."""
    try:
        with open_regular_file(path, "") as file:
            start = max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES)
            file.seek(start)
            text = strip_sequences_bytes(file.read(TAIL_BYTES)).decode(errors="replace")
    except UserError:
        return []
    lines = text.split("\n")[1 if start else 0 :]
    shown = (_shown(line.rstrip("\r").rpartition("\r")[2]) for line in lines)
    return [line for line in shown if line.strip()][-LINES:]


def lines_of_rank(lines: Sequence[str], process: Process) -> list[str]:
    """Return the lines that have the prefix of this rank; all lines if none has a prefix of a rank.

    torchrun writes the local rank (``[default3]:``), torch the global one (``[rank3]:``).
    """
    prefix = re.compile(r"\[(rank|default)(\d+)\]:")
    numbers = {"rank": process.rank, "default": process.local_rank}
    prefixed = [(line, found) for line in lines if (found := prefix.match(line))]
    if not prefixed:
        return list(lines)
    return [line for line, found in prefixed if int(found[2]) == numbers[found[1]]]


def _of_rank(process: Process) -> list[_File]:
    """Return the copy that ``ddpwizard run`` keeps, else torchrun's files of the rank, else those of its streams."""
    record = _record_file(process)
    copy = record.with_suffix(".log") if record else None
    if copy and (kept := _file(str(copy), copy)):
        return [kept]
    files: list[_File] = []
    if error_file := process.environ.get(ERROR_FILE):
        owner = proc_files.user_of(process.pid)  # the environment of a process may contain any path
        for name in STREAMS:
            path = str(Path(error_file).with_name(name))
            found = (_file(path, at) for at in proc_files.host_path(process.pid, path))
            files += [file for file in found if file and file.owner == owner][:1]
    return files or _streams(process.pid)


def _streams(pid: int) -> list[_File]:
    """Return the files of stdout and stderr. The kernel's link also opens a file in another container."""
    files: list[_File] = []
    for fd in ("1", "2"):
        link = proc_files.PROC / str(pid) / "fd" / fd
        try:
            path = str(link.readlink())
        except OSError:
            continue
        if path.startswith("/") and not path.startswith("/dev/"):
            here = _file(path, Path(path))
            there = _file(path, link)
            files += [here if here and there and here.key == there.key else there] if there else []
    return files


def _record_file(process: Process) -> Path | None:
    return run_directory.record_of(process.pid, process.environ.get(run_directory.FOLDER_VARIABLE, ""))


def _of_run(job: Job) -> list[Path]:
    """Return the copies of every rank's output in the directory of a job started with ``ddpwizard run``."""
    folders = {record.parent for process in job.processes if (record := _record_file(process))}
    return [path for each in sorted(folders) for path in sorted(each.glob("[0-9]*.log"))]


def _of_attempt(job: Job) -> list[Path]:
    """Return the files of every rank of torchrun's last attempt."""
    found: list[Path] = []
    for process in job.processes:
        if error_file := process.environ.get(ERROR_FILE):
            attempt = str(Path(error_file).parent.parent)
            places = proc_files.host_path(process.pid, attempt)
            found += [at for at in places if os.access(at, os.R_OK | os.X_OK)][:1]
    if not found and (given := _log_dir(job.launcher_command)):
        attempts = Path(job.launcher_cwd, given).glob("*/attempt_*")
        found += sorted(attempts, key=_changed)[-1:]
    return [path for each in dict.fromkeys(found) for name in STREAMS for path in sorted(each.glob(f"*/{name}"))]


def _of_absent_ranks(job: Job) -> list[Path]:
    """Return the files of ranks that have ended: those of the other ranks, with the number of the ended one.

    A file that was last written before the job started is of an earlier run.
    """
    present = {process.rank: process for process in job.processes if process.rank is not None and process.command}
    absent = sorted(set(range(min(job.world_size, FILES))) - set(present))
    if not absent:
        return []
    files = [(rank, process.pid, file) for rank, process in present.items() for file in _streams(process.pid)]
    owners = {file.key: set[int]() for _, _, file in files}
    for rank, _, file in files:
        owners[file.key].add(rank)
    own = ((rank, pid, file) for rank, pid, file in files if len(owners[file.key]) == 1)
    named = ((path, pid) for rank, pid, file in own for path in _renumbered(file.path, rank, absent))
    started = min((process.started_at for process in job.processes if process.started_at), default=0.0)
    found: list[Path] = []
    for path, pid in dict(islice(named, FILES)).items():
        inside, here = (_file(path, at) for at in proc_files.host_path(pid, path))
        file = here if here and (inside is None or inside.key == here.key) else inside
        if file and file.changed >= started - START_SLACK_S:
            found.append(file.at)
    return found


def _renumbered(path: str, rank: int, absent: Sequence[int]) -> Iterator[str]:
    """Yield a path with the numbers of other ranks, at each place where it has that of its own rank."""
    for number in NUMBER.finditer(path):
        if int(number[0]) == rank:
            for other in absent:
                digits = str(other).zfill(len(number[0])) if number[0].startswith("0") else str(other)
                yield path[: number.start()] + digits + path[number.end() :]


def _log_dir(command: Iterable[str]) -> str:
    words = list(command)
    for index, word in enumerate(words):
        if found := LOG_DIR.fullmatch(word):
            return found[1] or (words[index + 1] if index + 1 < len(words) else "")
    return ""


def _file(path: str, at: Path) -> _File | None:
    try:
        status = at.stat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return _File(path, at, (status.st_dev, status.st_ino), status.st_uid, status.st_mtime, status.st_size)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _shown(line: str) -> str:
    plain = "".join(character if character.isprintable() else " " for character in line)
    return redact.redact_text(plain[: 2 * LINE_LENGTH])[:LINE_LENGTH].rstrip()
