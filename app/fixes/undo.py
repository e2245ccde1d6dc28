"""Undo applied fixes. A file that is neither as the fix left it nor as it was before is never touched."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Literal

import msgspec

from ..errors import UserError
from ..system import paths
from ..system.atomic_files import FileWrite, backup_lock, write_all
from ..system.files import content_digest
from ..system.paths import relative_to_cwd
from ..text.diff import unified_diff
from .records import (
    AppliedFix,
    Change,
    Record,
    StoredRecord,
    clean_after_kill,
    record_write,
    remove_directories,
    stored_records,
)

State = Literal["applied", "unfinished", "taken back", "changed since", "removed", "damaged"]
LISTED = "ddpwizard undo --list shows all"


class ListedFix(msgspec.Struct, frozen=True, kw_only=True):
    """An applied fix and its state; of a damaged record only the id is known."""

    id: str
    state: State
    applied: AppliedFix | None = None


class UndoPreview(msgspec.Struct, frozen=True, kw_only=True):
    """The fix that ``undo_fix`` would take back, and the change as a unified diff."""

    applied: AppliedFix
    diff: str


def undo_fix(id_: str | None = None) -> AppliedFix:
    """Undo the last apply, or the one whose id is or begins with ``id_``.

    Raises:
        UserError: There is none, it was undone already, or a file changed since. No file is changed then.
    """
    with _backups() as home:
        clean_after_kill(home)
        folder, record = _find(home, id_)
        undone = record_write(folder, msgspec.structs.replace(record, undone_at=time.time()))
        write_all([*_reverse_all(home, folder, record), undone])
        remove_directories(record.made_directories)
    return record.applied


def preview_undo(id_: str | None = None) -> UndoPreview:
    """Return what ``undo_fix`` with the same id would do.

    Raises:
        UserError: As ``undo_fix``.
    """
    with _backups() as home:
        folder, record = _find(home, id_)
        writes = _reverse_all(home, folder, record)
    shown = [
        unified_diff(_text(write.before), _text(write.after), relative_to_cwd(str(write.path))) for write in writes
    ]
    return UndoPreview(applied=record.applied, diff="".join(shown))


def applied_fixes() -> list[ListedFix]:
    """Return all applied fixes with their state, newest first.

    Raises:
        UserError: The state directory cannot be written.
    """
    with _backups() as home:
        return [_listed_fix(stored) for stored in reversed(stored_records(home))]


@contextmanager
def _backups() -> Iterator[Path]:
    """Yield the locked directory of backups; one that is not there and cannot be made has no record.

    Raises:
        UserError: It cannot be locked.
    """
    home = paths.backups_dir()
    with suppress(OSError):
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with backup_lock() if home.is_dir() else nullcontext(home) as home:
        yield home


def _listed_fix(stored: StoredRecord) -> ListedFix:
    record = stored.record
    if record is None:
        return ListedFix(id=stored.folder.name, state="damaged")
    return ListedFix(id=record.applied.id, state=_state(stored.folder, record), applied=record.applied)


def _state(folder: Path, record: Record) -> State:
    if record.undone_at is not None:
        return "taken back"
    if _is_gone(record):
        return "removed"
    try:
        for change in record.changes:
            _reverse(folder, record, change, "")
    except UserError:
        return "changed since"
    return "applied" if record.finished else "unfinished"


def _is_gone(record: Record) -> bool:
    """Return whether no directory of a changed file exists any more, as after a demo."""
    return all(not Path(change.path).parent.exists() for change in record.changes)


def _reverse_all(home: Path, folder: Path, record: Record) -> list[FileWrite]:
    older = [
        each[1].applied.id
        for each in _open_records(home)
        if each[1].number < record.number and _state(*each) in ("applied", "unfinished")
    ]
    advice = f"; ddpwizard undo {older[-1]} reverts the fix before it" if older else ""
    writes = [_reverse(folder, record, change, advice) for change in record.changes]
    return [write for write in writes if write is not None]


def _reverse(folder: Path, record: Record, change: Change, advice: str) -> FileWrite | None:
    """Return the write that undoes one change; None if the file is as before."""
    path = Path(change.path)
    now = path.read_bytes() if path.is_file() else None
    before = (folder / change.before).read_bytes() if change.before else None
    if now == before:
        return None
    if now is None or content_digest(now) != change.after_sha256:
        what = "was changed" if now is not None else "was removed"
        original = f"the original is in {folder / change.before}" if change.before else "remove it by hand"
        raise UserError(f"{path} {what} since the fix {record.applied.id} was applied", original + advice)
    return FileWrite(path=path, before=now, after=before)


def _open_records(home: Path) -> list[tuple[Path, Record]]:
    """Return the records that are left to take back, oldest first."""
    found = [(each.folder, each.record) for each in stored_records(home) if each.record]
    return [(folder, record) for folder, record in found if record.undone_at is None and not _is_gone(record)]


def _find(home: Path, id_: str | None) -> tuple[Path, Record]:
    return _newest(home) if id_ is None else _record_with_id(home, id_)


def _newest(home: Path) -> tuple[Path, Record]:
    left = _open_records(home)
    stored = stored_records(home)
    if stored and stored[-1].record is None:
        before = f"; ddpwizard undo {left[-1][1].applied.id} reverts the fix before it" if left else ""
        raise UserError(
            f"the record of the last fix, in {stored[-1].folder}, is damaged",
            f"copy the originals from there by hand, then remove it{before}",
        )
    if not left:
        raise UserError("nothing to revert: no fix is applied", "ddpwizard review --fix applies fixes")
    return left[-1]


def _record_with_id(home: Path, id_: str) -> tuple[Path, Record]:
    records = [(each.folder, each.record) for each in stored_records(home) if each.record]
    named = [i for i in records if i[1].applied.id == id_] or [i for i in records if i[1].applied.id.startswith(id_)]
    if not id_ or len(named) != 1:
        what = "no apply" if not id_ or not named else f"{len(named)} applies"
        last = ", ".join(record.applied.id for _, record in records[-3:])
        raise UserError(
            f"{what} with the id {id_!r}", f"the last ones: {last}; {LISTED}" if last else "nothing was applied yet"
        )
    if named[0][1].undone_at is not None:
        raise UserError(f"{named[0][1].applied.id} was already reverted", LISTED)
    return named[0]


def _text(content: bytes | None) -> str:
    return (content or b"").decode("utf-8", errors="replace")
