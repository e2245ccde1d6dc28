"""Write a fix to disk, completely or not at all, and undo it.

The files before the change are kept under the state directory with a record of each apply. A file that differs from the
original of the fix (or, for ``undo``, from the result of the fix) is never touched.
"""

import hashlib
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from ..errors import UserError
from ..system.atomic_files import FileWrite, backup_lock, replace_file, write_all
from ..training_script.source import read_source
from .types import Fix

RECORD = "record.json"


class AppliedFix(msgspec.Struct, frozen=True, kw_only=True):
    """One apply: the fix and its cause, the files changed or created, and the time (seconds since the epoch)."""

    id: str
    fix: str
    cause: str
    paths: list[str]
    at: float


class _Change(msgspec.Struct, frozen=True, kw_only=True):
    """One file of an apply. ``before`` names the backup next to the record, or is "" if the file did not exist."""

    path: str
    before: str
    after_sha256: str


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    applied: AppliedFix
    changes: list[_Change]
    made_directories: list[str] = []
    undone_at: float | None = None


def apply_fix(fix: Fix, directory: Path) -> AppliedFix:
    """Write the patches of ``fix`` (a relative path counts from ``directory``) and its new files in ``directory``.

    Raises:
        UserError: A file is missing, changed since the fix was made, or cannot be written; or a new file exists with
            other content. No file is changed then.
    """
    writes = [*_patched(fix, directory), *_new(fix, directory)]
    paths = [write.path for write in writes]
    if len(set(paths)) != len(paths):
        raise UserError(f"the fix {fix.id} changes one file twice", "apply its parts one after the other")
    if not writes:
        raise UserError(f"the fix {fix.id} changes no file here", "it is there already, or is to be done by hand")
    with backup_lock() as home:
        id_ = time.strftime("%Y%m%d-%H%M%S") + "-" + secrets.token_hex(2)
        applied = AppliedFix(id=id_, fix=fix.id, cause=fix.cause, paths=[str(path) for path in paths], at=time.time())
        kept = _keep(home / id_, applied, writes)
        try:
            write_all(writes)
        except BaseException:
            _forget(home / id_, kept)
            raise
    return applied


def undo_fix(id_: str | None = None) -> AppliedFix:
    """Undo the last apply, or the one whose id is or begins with ``id_``.

    Raises:
        UserError: There is none, it was undone already, or a file changed since. No file is changed then.
    """
    with backup_lock() as home:
        folder, record = _find(home, id_)
        write_all([_reverse(folder, record, change) for change in record.changes])
        _remove_directories(record.made_directories)
        _save(folder, msgspec.structs.replace(record, undone_at=time.time()))
    return record.applied


def _reverse(folder: Path, record: _Record, change: _Change) -> FileWrite:
    """Return the write that undoes one change."""
    path = Path(change.path)
    now = path.read_bytes() if path.is_file() else None
    if now is None or hashlib.sha256(now).hexdigest() != change.after_sha256:
        what = "was changed" if now is not None else "was removed"
        raise UserError(
            f"{path} {what} since the fix {record.applied.id} was applied",
            f"the original is in {folder / change.before}" if change.before else "remove it by hand",
        )
    before = (folder / change.before).read_bytes() if change.before else None
    return FileWrite(path=path, before=now, after=before)


def _patched(fix: Fix, directory: Path) -> Iterator[FileWrite]:
    for patch in fix.patches:
        path = (directory / Path(patch.path).expanduser()).resolve()
        data, text, encoding = read_source(path)
        if text != patch.before:
            raise UserError(f"{path} is not what the fix was made for: it changed since", "look again, then apply")
        try:
            after = patch.after.encode(encoding)
        except UnicodeEncodeError as error:
            raise UserError(
                f"{path}: the fix has a character that {encoding} cannot hold", "save the file as UTF-8, then apply"
            ) from error
        if after != data:
            yield FileWrite(path=path, before=data, after=after)


def _new(fix: Fix, directory: Path) -> Iterator[FileWrite]:
    root = directory.resolve()
    if fix.files and not root.is_dir():
        raise UserError(f"{directory}: no such directory", "make it, or give another")
    for name, content in fix.files.items():
        path = (root / name).resolve()
        if not path.is_relative_to(root):
            raise UserError(f"{name} would be written outside {root}", "give the directory it belongs in")
        after = content.encode()
        if path.exists():
            if path.is_file() and path.read_bytes() == after:
                continue
            raise UserError(
                f"{path} is there already, with other content", "move it away, or write to another directory"
            )
        yield FileWrite(path=path, before=None, after=after)


# ---- the record


def _keep(folder: Path, applied: AppliedFix, writes: list[FileWrite]) -> _Record:
    """Save the current files, make the directories that new files need, and write the record."""
    changes: list[_Change] = []
    made: list[str] = []
    try:
        folder.mkdir(mode=0o700)
        for number, write in enumerate(writes):
            name = f"{number}-{write.path.name}"[:200] if write.before is not None else ""
            if write.before is not None:
                replace_file(folder / name, write.before)
            digest = hashlib.sha256(write.after or b"").hexdigest()
            changes.append(_Change(path=str(write.path), before=name, after_sha256=digest))
        for write in writes:
            for parent in reversed([p for p in write.path.parents if not p.exists()]):
                parent.mkdir()
                made.append(str(parent))
        record = _Record(applied=applied, changes=changes, made_directories=made)
        _save(folder, record)
    except OSError as error:
        _forget(folder, _Record(applied=applied, changes=changes, made_directories=made))
        raise UserError(
            f"cannot write {error.filename}: {error.strerror}; nothing was changed", "check permissions and free space"
        ) from error
    return record


def _save(folder: Path, record: _Record) -> None:
    replace_file(folder / RECORD, msgspec.json.encode(record))


def _forget(folder: Path, record: _Record) -> None:
    _remove_directories(record.made_directories)
    with suppress(OSError):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def _remove_directories(paths: list[str]) -> None:
    for path in reversed(paths):
        with suppress(OSError):  # not empty: another program put something there
            Path(path).rmdir()


def _find(home: Path, id_: str | None) -> tuple[Path, _Record]:
    records = [(folder, record) for folder in home.iterdir() if (record := _load(folder)) is not None]
    records.sort(key=lambda item: item[1].applied.at)
    if id_ is None:
        left = [item for item in records if item[1].undone_at is None]
        if not left:
            raise UserError("nothing to take back: no fix is applied", "ddpwizard review --fix applies some")
        return left[-1]
    named = [i for i in records if i[1].applied.id == id_] or [i for i in records if i[1].applied.id.startswith(id_)]
    if not id_ or len(named) != 1:
        what = "no apply" if not id_ or not named else f"{len(named)} applies"
        last = ", ".join(record.applied.id for _, record in records[-3:])
        raise UserError(f"{what} with the id {id_!r}", f"the last ones: {last}" if last else "nothing was applied yet")
    if named[0][1].undone_at is not None:
        raise UserError(f"{named[0][1].applied.id} was taken back already", "nothing is left to do")
    return named[0]


def _load(folder: Path) -> _Record | None:
    try:
        return msgspec.json.decode((folder / RECORD).read_bytes(), type=_Record)
    except (OSError, msgspec.DecodeError):
        return None  # no apply, or an unfinished one
