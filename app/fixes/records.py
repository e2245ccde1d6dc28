"""Records of applied fixes: one directory each, with the original files, below the state directory.

A record is written before the first file changes and marked as finished after the last, so that an apply that was
killed can be taken back.
"""

import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from ..errors import UserError
from ..system.atomic_files import FileWrite, advice_for, remove_temporaries, replace_file
from ..system.files import content_digest
from .types import Fix

RECORD = "record.json"


class AppliedFix(msgspec.Struct, frozen=True, kw_only=True):
    """One apply: the fix and its cause, the files changed or created, and the time (seconds since the epoch)."""

    id: str
    fix: str
    cause: str
    paths: list[str]
    at: float
    title: str = ""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One file of an apply. ``before`` names the backup next to the record, or is "" if the file did not exist."""

    path: str
    before: str
    after_sha256: str


class Record(msgspec.Struct, frozen=True, kw_only=True):
    applied: AppliedFix
    changes: list[Change]
    made_directories: list[str] = []
    undone_at: float | None = None
    finished: bool = True
    number: int = 0  # 1, 2, … in the order of applying, whatever the clock says


class StoredRecord(msgspec.Struct, frozen=True):
    """A record with its directory; ``record`` is None if it is damaged."""

    folder: Path
    record: Record | None


def stored_records(home: Path) -> list[StoredRecord]:
    """Return the records, oldest first; a damaged one has its place by the time in its name."""
    found: list[tuple[int, float, str, StoredRecord]] = []
    for folder in sorted(home.iterdir()) if home.is_dir() else []:
        if (folder / RECORD).exists():
            record = load_record(folder)
            number = record.number if record else max((item[0] for item in found), default=0)
            at = record.applied.at if record else max((item[1] for item in found), default=0.0)
            found.append((number, at, folder.name, StoredRecord(folder, record)))
    return [item[3] for item in sorted(found, key=lambda item: item[:3])]


def load_record(folder: Path) -> Record | None:
    """Return the record in a directory, or None if it cannot be read."""
    try:
        return msgspec.json.decode((folder / RECORD).read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None


def create_record(home: Path, fix: Fix, writes: Sequence[FileWrite]) -> tuple[Path, Record]:
    """Save the current files, make the directories that new files need, and write the record.

    Raises:
        UserError: The state directory cannot be written. Nothing is changed then.
    """
    id_ = time.strftime("%Y%m%d-%H%M%S") + "-" + secrets.token_hex(2)
    applied = AppliedFix(
        id=id_,
        fix=fix.id,
        cause=fix.cause,
        paths=[str(write.path) for write in writes],
        at=time.time(),
        title=fix.title,
    )
    number = max((each.record.number for each in stored_records(home) if each.record), default=0) + 1
    folder = home / id_
    changes: list[Change] = []
    made: list[str] = []
    try:
        folder.mkdir(mode=0o700)
        for index, write in enumerate(writes):
            name = f"{index}-{write.path.name}"[:200] if write.before is not None else ""
            if write.before is not None:
                replace_file(folder / name, write.before)
            digest = content_digest(write.after or b"")
            changes.append(Change(path=str(write.path), before=name, after_sha256=digest))
        for write in writes:
            for parent in reversed([p for p in write.path.parents if not p.exists()]):
                parent.mkdir()
                made.append(str(parent))
        record = Record(applied=applied, changes=changes, made_directories=made, finished=False, number=number)
        replace_file(folder / RECORD, msgspec.json.encode(record))
    except OSError as error:
        remove_record(folder, made)
        raise UserError(
            f"cannot write {error.filename or folder}: {error.strerror}; nothing was changed",
            advice_for(error),
        ) from error
    return folder, record


def record_write(folder: Path, after: Record) -> FileWrite:
    """Return the write that replaces a stored record, as a part of the transaction that changes the files."""
    path = folder / RECORD
    return FileWrite(path=path, before=path.read_bytes(), after=msgspec.json.encode(after))


def remove_record(folder: Path, made_directories: Sequence[str]) -> None:
    """Remove a record whose apply changed nothing."""
    remove_directories(made_directories)
    with suppress(OSError):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def remove_directories(paths: Sequence[str]) -> None:
    """Remove the directories that an apply made, as far as they are empty."""
    for path in reversed(paths):
        with suppress(OSError):  # not empty: another program put something there
            Path(path).rmdir()


def clean_after_kill(home: Path) -> None:
    """Remove the temporary files of an apply or undo that was killed, and backups without a record. Needs the lock."""
    for folder in home.iterdir() if home.is_dir() else []:
        if folder.is_dir() and not (folder / RECORD).exists():
            remove_record(folder, [])
    for stored in stored_records(home):
        if stored.record and stored.record.undone_at is None:
            for change in stored.record.changes:
                remove_temporaries(Path(change.path))
