"""Directories that runs leave behind: remove the secrets from a new one, and remove old ones."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from ..system import run_directory
from ..system.atomic_files import replace_file
from ..text.redact import redact_command, redact_environment, redact_text

KEPT_S = 7 * 24 * 3600.0
KEPT_LOG_BYTES = 1 << 20  # of the output of each rank, the end; all of it went to its own destination


def redact_run_directory(private: Path) -> None:
    """Remove secrets from the records and from the copied output of the ranks that have ended.

    A file that cannot be rewritten is removed. Ranks that still run need their files as they are.
    """
    living = {f"{record.pid}" for record in run_directory.live_records(run_directory.read_records(private))}
    for path in sorted(private.iterdir()):
        if path.is_symlink() or not path.is_file() or path.name.partition(".")[0] in living:
            continue
        try:
            if path.suffix == ".json":
                _redact_record(path)
            elif ".log" in path.suffixes:
                replace_file(path, redact_text(_end_of(path)).encode(), sync=False)
        except OSError:
            with suppress(OSError):
                path.unlink()


def remove_old_directories() -> None:
    """Remove directories of earlier runs of this user, unless a process of the run still lives."""
    for private in _own_directories():
        with suppress(OSError):
            old = time.time() - private.stat().st_mtime > KEPT_S
            if old and not run_directory.live_records(run_directory.read_records(private)):
                shutil.rmtree(private, ignore_errors=True)


def _redact_record(path: Path) -> None:
    record = run_directory.read_record(path)
    if record is None:
        path.unlink()
        return
    clean = msgspec.structs.replace(
        record,
        command=redact_command(record.command),
        environ=redact_environment(record.environ),
        ended=redact_text(record.ended),
    )
    replace_file(path, msgspec.json.encode(clean), sync=False)


def _end_of(path: Path) -> str:
    """Return the last whole lines of a file."""
    with path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        file.seek(max(0, size_bytes - KEPT_LOG_BYTES))
        content = file.read(KEPT_LOG_BYTES)
    if size_bytes > KEPT_LOG_BYTES:
        content = content.partition(b"\n")[2]
    return content.decode(errors="replace")


def _own_directories() -> Iterator[Path]:
    for path in run_directory.RUNS_DIRECTORY.glob(f"{run_directory.RUN_PREFIX}*"):
        with suppress(OSError):
            status = path.lstat()
            if path.is_dir() and not path.is_symlink() and status.st_uid == os.geteuid():
                yield path
