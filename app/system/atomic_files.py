"""Write files atomically: one file, or several of which all are written or none."""

import errno
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ..errors import UserError
from . import paths

LOCK_LIMIT_S = 5.0
LOCK_PAUSE_S = 0.05
ACCESS_LIST = "system.posix_acl_access"
TEMPORARY = ".ddpwizard"  # the ending of temporary files
APPLY_AGAIN = "review the fix again, then apply it"


class FileWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A file before and after a change; None if it does not exist."""

    path: Path
    before: bytes | None
    after: bytes | None


@contextmanager
def backup_lock() -> Iterator[Path]:
    """Lock the directory of backups against a second apply or undo at the same time, and yield it.

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
        _lock(fd, home / "lock")
        yield home
    finally:
        os.close(fd)


def _lock(fd: int, path: Path) -> None:
    """Lock a file, with our pid as its content for those who wait.

    Raises:
        UserError: Another process keeps it locked.
    """
    until = time.monotonic() + LOCK_LIMIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > until:
                raise UserError(
                    f"{_holder(fd)} is applying or undoing a fix and holds {path}; nothing was changed",
                    "wait until it has ended, or end it, then try again",
                ) from None
            time.sleep(LOCK_PAUSE_S)
    with suppress(OSError):  # the disk is full: only the message for those who wait lacks the pid
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)


def _holder(fd: int) -> str:
    pid = os.pread(fd, 20, 0).decode("ascii", errors="replace")
    return f"another ddpwizard, pid {pid}," if pid.isdigit() else "another ddpwizard"


def replace_file(path: Path, content: bytes, mode: int = 0o600, *, sync: bool = True) -> None:
    """Write a file so that readers find the old or the new content, never a part of it.

    ``sync``: wait until the content is on the disk, so that it survives a power failure.

    Raises:
        OSError: The directory is missing or cannot be written.
    """
    temporary = _stage_file(path.absolute(), content, mode, sync=sync)
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def create_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a new file, which appears with its whole content.

    Raises:
        FileExistsError: There is such a file or symbolic link.
        OSError: The directory is missing or cannot be written.
    """
    temporary = _stage_file(path.absolute(), content, mode)
    try:
        os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_all(writes: Sequence[FileWrite]) -> None:
    """Write all files; if one fails, restore those written before it.

    Raises:
        UserError: A file cannot be written, or no longer has the content ``before``.
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
        raise UserError(f"cannot write {where}: {error.strerror}; nothing was changed", advice_for(error)) from error
    except BaseException:
        _put_back(done)
        raise
    finally:
        for _, temporary in staged:
            if temporary:
                temporary.unlink(missing_ok=True)
    for folder in {write.path.parent for write in writes}:
        _sync(folder)


def remove_temporaries(path: Path) -> None:
    """Remove the temporary files of writes to ``path`` that were killed. Needs the lock."""
    with suppress(OSError):
        for entry in list(path.parent.iterdir()):
            if entry.name.startswith(_prefix(path)) and entry.name.endswith(TEMPORARY):
                entry.unlink()


def advice_for(error: OSError) -> str:
    """Return the next step after a file could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space there, then try again"
    if error.errno == errno.EMLINK:
        return "copy the file over its name (cp -p, then mv), or change it by hand"
    return "check the permissions of the file and of its directory"


def _prefix(path: Path) -> str:
    return f".{path.name[:100]}."


def _stage(write: FileWrite) -> Path | None:
    """Write the new content to a temporary file, with the mode and owner of the target."""
    if write.after is None:
        return None
    if write.before is None:
        return _stage_file(write.path, write.after, 0o666 & ~_umask())
    status = write.path.stat()
    if not status.st_mode & 0o222:
        raise PermissionError(errno.EACCES, "the file is read-only")
    if status.st_nlink > 1:
        others = f"it has {status.st_nlink} names (hard links), and the others would keep the old content"
        raise OSError(errno.EMLINK, others)
    if not os.access(write.path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return _stage_file(write.path, write.after, status.st_mode & 0o7777, like=write.path)


def _stage_file(path: Path, content: bytes, mode: int, *, like: Path | None = None, sync: bool = True) -> Path:
    """Write ``content`` to a temporary file in the directory of ``path``, which a rename puts in its place.

    It gets the owner and the extended attributes (with the access control list) of the file ``like``.
    """
    fd, name = tempfile.mkstemp(prefix=_prefix(path), suffix=TEMPORARY, dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            if like:
                _keep_owner(fd, like)
            os.fchmod(fd, mode)
            if like:
                _keep_attributes(fd, like)
            if sync:
                os.fsync(fd)
    except BaseException as error:
        with suppress(OSError):
            Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # of a write; without a name it reads as stdout's
            error.filename = str(path)
        raise
    return Path(name)


def _keep_owner(fd: int, like: Path) -> None:
    status, wanted = os.fstat(fd), like.stat()
    if (status.st_uid, status.st_gid) != (wanted.st_uid, wanted.st_gid):
        try:
            os.fchown(fd, wanted.st_uid, wanted.st_gid)
        except PermissionError as error:
            raise PermissionError(errno.EPERM, "its owner or group could not be kept") from error


def _keep_attributes(fd: int, like: Path) -> None:
    for name in _attributes(like):
        value = os.getxattr(like, name)
        try:
            os.setxattr(fd, name, value)
        except OSError as error:
            if name == ACCESS_LIST:  # the mode alone could give more rights
                raise PermissionError(errno.EPERM, "its access control list could not be kept") from error


def _attributes(path: Path) -> list[str]:
    try:
        return os.listxattr(path)
    except OSError:  # a file system without them
        return []


def _put(write: FileWrite, temporary: Path | None) -> None:
    if write.before is None:
        assert temporary
        try:
            os.link(temporary, write.path)  # unlike a rename, this fails if the file exists meanwhile
        except FileExistsError as error:
            raise UserError(f"{write.path} was just created by another program", APPLY_AGAIN) from error
        return
    if write.path.read_bytes() != write.before:
        raise UserError(f"{write.path} was just changed by another program", APPLY_AGAIN)
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
