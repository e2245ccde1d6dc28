"""Private directory of one ``ddpwizard run``.

Each rank has a record (PID.json), the socket of its worker server (PID.sock), its stacks on a signal (PID.stacks) and
a copy of its output with times (PID.log).
"""

import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ..errors import UserError
from . import proc_files
from .files import read_regular_file

FOLDER_VARIABLE = "DDPWIZARD_FLIGHT_DIR"
RUNS_DIRECTORY = Path("/tmp")  # not TMPDIR: a socket's path has room for 107 bytes, and another shell must find it
RUN_PREFIX = "ddpw-"
RECORD_LIMIT_BYTES = 4_000_000  # a command line and an environment have at most 2 MB


class RankRecordFile(msgspec.Struct, frozen=True, kw_only=True):
    """Record that a rank writes of itself. ``started_ticks`` (/proc/PID/stat) reveals a pid that was used again.

    ``ended`` is "exit" or the error that ended the rank; empty while it lives and if it was killed.
    """

    pid: int
    started_ticks: int
    rank: int | None = None
    world_size: int | None = None
    main_thread: str = ""  # its name in a dump of stacks: 0x…, 16 digits
    signal: int = 0  # the number of the signal on which it writes its stacks; 0: none was free
    command: list[str] = []
    cwd: str = ""
    python: str = ""
    torch: str = ""
    environ: dict[str, str] = {}  # what launchers and torch put there
    ended: str = ""
    ended_at: float | None = None


def create_run_directory() -> Path:
    """Create a private directory for one run, with a short path.

    Raises:
        OSError: No directory can be written.
    """
    writable = os.access(RUNS_DIRECTORY, os.W_OK | os.X_OK)
    return Path(tempfile.mkdtemp(prefix=RUN_PREFIX, dir=RUNS_DIRECTORY if writable else None))


def read_record(path: Path) -> RankRecordFile | None:
    """Return the record in this file, or None if it cannot be read."""
    try:
        return msgspec.json.decode(read_regular_file(path, RECORD_LIMIT_BYTES, ""), type=RankRecordFile)
    except (UserError, msgspec.MsgspecError, RecursionError):
        return None


def read_records(folder: Path) -> list[RankRecordFile]:
    """Return the records of all ranks of this run, ended ones included, in the order of the ranks."""
    found = [each for path in folder.glob("*.json") if (each := read_record(path))]
    return sorted(found, key=lambda each: (each.rank is None, each.rank or 0, each.pid))


def output_copies(folder: Path, pid: int) -> list[Path]:
    """Return the copies of the output of a rank, the older part first."""
    return [path for ending in (".log.1", ".log") if (path := folder / f"{pid}{ending}").is_file()]


def record_of(pid: int, given: str = "") -> Path | None:
    """Return the record file of a living process: in ``given`` (a path as the process sees it), else in any run.

    The file must belong to the process's own user, because a path that a process names may lead anywhere.
    """
    number = proc_files.pid_inside(pid) or pid
    places = proc_files.host_path(pid, given) if given else _folders()
    for place in places:
        path = place / f"{number}.json"
        if _same_user(path, pid) and (record := read_record(path)) and record.started_ticks == _started_ticks(pid):
            return path
    return None


def live_records(found: Iterable[RankRecordFile]) -> list[RankRecordFile]:
    """Return the records whose process still lives (no zombies)."""
    return [
        each
        for each in found
        if _started_ticks(each.pid) == each.started_ticks and proc_files.process_state(each.pid) != "Z"
    ]


def _folders() -> list[Path]:
    try:
        return sorted(RUNS_DIRECTORY.glob(f"{RUN_PREFIX}*"))
    except OSError:
        return []


def _same_user(path: Path, pid: int) -> bool:
    try:
        file = path.lstat()
        return stat.S_ISREG(file.st_mode) and file.st_uid == path.parent.lstat().st_uid == proc_files.user_of(pid)
    except OSError:
        return False


def _started_ticks(pid: int) -> int:
    fields = proc_files.stat_fields(pid)
    return int(fields[19]) if len(fields) > 19 else -1
