"""What the ranks of a job started with ``ddpwizard run`` leave in the run's private folder, and how to find it: for
each rank a note about itself (PID.json), the socket of its worker server (PID.sock), its stacks on a signal
(PID.stacks) and a copy of what it printed, with times (PID.log).
"""

import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from . import proc_files

FOLDER_VARIABLE = "DDPWIZARD_FLIGHT_DIR"
RUNS_DIRECTORY = Path("/tmp")  # not TMPDIR: a socket's path has room for 107 bytes, and another shell must find it
RUN_PREFIX = "ddpw-"


class RankRecordFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank says of itself. ``started_ticks`` is that of /proc/PID/stat, so that a pid used again is noticed.

    ``ended`` is empty while it lives and where it was killed; else "exit", or the error that ended it.
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
    """A new private folder for one run, with a short path.

    Raises:
        OSError: There is no place to write.
    """
    writable = os.access(RUNS_DIRECTORY, os.W_OK | os.X_OK)
    return Path(tempfile.mkdtemp(prefix=RUN_PREFIX, dir=RUNS_DIRECTORY if writable else None))


def read_record(path: Path) -> RankRecordFile | None:
    """The note in this file, or None where there is none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=RankRecordFile)
    except (OSError, msgspec.MsgspecError):
        return None


def read_records(folder: Path) -> list[RankRecordFile]:
    """The notes of all ranks that came up in this run, the dead ones too; in the order of their ranks."""
    found = [each for path in folder.glob("*.json") if (each := read_record(path))]
    return sorted(found, key=lambda each: (each.rank is None, each.rank or 0, each.pid))


def record_of(pid: int, given: str = "") -> Path | None:
    """The note of a living process: in the folder ``given`` (as the process sees it), else in any run's.

    Only where the file belongs to the process's own user: what a process names may lead anywhere.
    """
    number = proc_files.pid_inside(pid) or pid
    places = proc_files.host_path(pid, given) if given else _folders()
    for place in places:
        path = place / f"{number}.json"
        if _same_user(path, pid) and (said := read_record(path)) and said.started_ticks == _started_ticks(pid):
            return path
    return None


def live_records(found: Iterable[RankRecordFile]) -> list[RankRecordFile]:
    """Those of the notes whose process still lives (no zombies)."""
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
