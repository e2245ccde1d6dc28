"""Put several files in place together: each atomically, all of them or none."""

import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ..errors import UserError
from . import paths


class FileWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it is and as it will be; None where it is not there."""

    path: Path
    before: bytes | None
    after: bytes | None


@contextmanager
def backup_lock() -> Iterator[Path]:
    """The directory of backups, held against a second apply or undo at the same time.

    Raises:
        UserError: The state directory cannot be written.
    """
    home = paths.backups_dir()
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UserError(
            f"cannot keep a backup in {home}: {error.strerror}; nothing was changed",
            "set XDG_STATE_HOME to a directory you can write",
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield home
    finally:
        os.close(fd)


def save_bytes(path: Path, data: bytes) -> None:
    """Write a file of ours and wait until it is on the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_all(writes: Sequence[FileWrite]) -> None:
    """Put all files in place; where one fails, those before it are put back.

    Raises:
        UserError: A file cannot be written, or is no longer what ``before`` says.
    """
    staged: list[tuple[FileWrite, Path | None]] = []
    done: list[FileWrite] = []
    try:
        for write in writes:
            staged.append((write, _stage(write)))
        for write, temporary in staged:
            _put(write, temporary)
            done.append(write)
    except OSError as error:
        _put_back(done)
        where = writes[max(len(staged) - 1, len(done))].path if len(staged) == len(writes) else writes[len(staged)].path
        raise UserError(
            f"cannot write {where}: {error.strerror}; nothing was changed", "check the permissions of its directory"
        ) from error
    except BaseException:
        _put_back(done)
        raise
    finally:
        for _, temporary in staged:
            if temporary:
                temporary.unlink(missing_ok=True)
    for folder in {write.path.parent for write in writes}:
        _sync(folder)


def _stage(write: FileWrite) -> Path | None:
    """The new content in a file of its own beside the target, on the disk, with the target's mode and owner."""
    if write.after is None:
        return None
    fd, name = tempfile.mkstemp(prefix=f".{write.path.name[:100]}.", suffix=".ddpwizard", dir=write.path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(write.after)
            file.flush()
            if write.before is None:
                os.fchmod(fd, 0o666 & ~_umask())
            else:
                status = write.path.stat()
                with suppress(PermissionError):
                    os.fchown(fd, status.st_uid, status.st_gid)
                os.fchmod(fd, status.st_mode & 0o7777)
            os.fsync(fd)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


def _put(write: FileWrite, temporary: Path | None) -> None:
    if write.before is None:
        assert temporary
        try:
            os.link(temporary, write.path)  # unlike a rename, never over a file that came meanwhile
        except FileExistsError as error:
            raise UserError(f"{write.path} has just been made by somebody else", "look again, then apply") from error
        return
    if write.path.read_bytes() != write.before:
        raise UserError(f"{write.path} has just been changed by somebody else", "look again, then apply")
    if temporary:
        temporary.replace(write.path)
    else:
        write.path.unlink()


def _put_back(done: list[FileWrite]) -> None:
    for write in reversed(done):
        if write.before is None:
            write.path.unlink(missing_ok=True)
        elif temporary := _stage(FileWrite(path=write.path, before=write.after, after=write.before)):
            temporary.replace(write.path)


def _sync(folder: Path) -> None:
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
