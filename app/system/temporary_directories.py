"""Temporary directories of the wizard. Those of a wizard that was killed are removed by the next one.

A directory is locked (flock) by the process that made it, as long as that process lives.
"""

import fcntl
import os
import tempfile
import time
from contextlib import suppress
from os.path import realpath
from pathlib import Path

from .supervisor import remove_tree

TEMP = realpath(tempfile.gettempdir())  # as /proc shows it
UNLOCKED_S = 5.0  # perhaps not locked yet

_locks: list[int] = []  # descriptors; the kernel releases them when this process ends


def make_temporary_directory(prefix: str) -> Path:
    """Create a private directory, and remove abandoned ones with this prefix.

    Raises:
        OSError: No directory can be created.
    """
    for path in Path(TEMP).glob(f"{prefix}*"):
        with suppress(OSError):
            _remove_abandoned(path)
    for descriptor in [each for each in _locks if os.fstat(each).st_nlink == 0]:  # of a directory that was removed
        _locks.remove(descriptor)
        os.close(descriptor)
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=TEMP))
    with suppress(OSError):  # a file system without locks: it is not removed later
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _locks.append(descriptor)
    return path


def _remove_abandoned(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if status.st_uid == os.getuid() and time.time() - status.st_mtime > UNLOCKED_S:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(path)
    finally:
        os.close(descriptor)
