"""Recent log files: those that the ranks of a job write to, and those of the current directory."""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

SUFFIXES = (".log", ".out", ".err")
FOLDERS = (".", "logs", "log", "outputs", "slurm")
MOST_ENTRIES = 2000  # of one directory
RECENT_S = 7 * 86400.0
MOST_LOGS = 4


def recent_logs(written_by_ranks: Iterable[str], directory: Path) -> list[Path]:
    """Return the logs of the ranks below ``directory``, then its newest ones and those of its usual folders, then the
    logs of ranks elsewhere: they may be of jobs of others."""
    of_ranks = [Path(path).absolute() for path in written_by_ranks if path and Path(path).is_file()]
    newest = [path.absolute() for _, path in sorted(_logs_in(directory), key=lambda item: -item[0])]
    here = [path for path in of_ranks if path.is_relative_to(directory.absolute())]
    return list(dict.fromkeys([*here, *newest, *of_ranks]))[:MOST_LOGS]


def _logs_in(directory: Path) -> Iterator[tuple[float, Path]]:
    """Yield modification time and path of each recent log that is not empty."""
    since = time.time() - RECENT_S
    for folder in FOLDERS:
        try:
            with os.scandir(directory / folder) as entries:
                for entry, _ in zip(entries, range(MOST_ENTRIES), strict=False):
                    if entry.name.endswith(SUFFIXES) and entry.is_file():
                        status = entry.stat()
                        if status.st_size and status.st_mtime >= since:
                            yield status.st_mtime, Path(entry.path)
        except OSError:
            continue
