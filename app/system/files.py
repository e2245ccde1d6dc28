"""Read files that users name, and write files for them, complete and over an existing one only with ``--force``."""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ..errors import UserError

CHUNK_BYTES = 1 << 20
MOST_FILES = 100_000  # of a directory with logs or dumps


def content_digest(content: bytes) -> str:
    """Return the digest by which the content of a file is recognised."""
    return hashlib.sha256(content).hexdigest()


def expand_user(given: str) -> Path:
    """Return a path as a user writes it with ``~`` expanded.

    Raises:
        UserError: There is no such home directory.
    """
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        user = given.partition("/")[0]
        raise UserError(f"{given}: no home directory is known for {user}", "write the path without ~") from error


def files_below(directory: Path) -> list[Path]:
    """Return the files in a directory and below it, sorted; hidden directories and links to directories are left out.

    Raises:
        OSError: The directory cannot be read.
        UserError: There are more than ``MOST_FILES`` files.
    """
    found: list[Path] = []

    def fail_at_the_top(error: OSError) -> None:
        if error.filename == str(directory):
            raise error

    for folder, folders, names in os.walk(directory, onerror=fail_at_the_top):
        folders[:] = [each for each in folders if not each.startswith(".")]
        found += [path for name in names if (path := Path(folder, name)).is_file()]
        if len(found) > MOST_FILES:
            raise UserError(f"{directory}: more than {MOST_FILES:,} files", "pass the directory of one job")
    return sorted(found)


@contextmanager
def open_regular_file(path: Path, next_step: str) -> Iterator[BinaryIO]:
    """Open a regular file to read it; refuse anything else, as reading a pipe or a device may never end.

    Raises:
        UserError: It is not a regular file, or cannot be read, also later in the block; ``next_step`` is the advice.
    """
    if "\0" in str(path):
        raise UserError(f"{path!s} is not a path", next_step)
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe or a device can have effects of its own
            raise UserError(f"{path} is not a regular file", next_step)
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UserError(f"{path} is not a regular file", next_step)
            yield file
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", next_step) from error


def read_regular_file(path: Path, limit_bytes: int, next_step: str) -> bytes:
    """Return the content of a regular file.

    Raises:
        UserError: It is not a regular file, is larger than the limit, or cannot be read; ``next_step`` is the advice.
    """
    too_large = UserError(f"{path} has more than {limit_bytes:,} bytes, too many", next_step)
    with open_regular_file(path, next_step) as file:
        size_bytes = os.fstat(file.fileno()).st_size  # 0 for files of /proc
        if size_bytes > limit_bytes:
            raise too_large
        content = file.read(size_bytes)  # read(limit_bytes) takes memory for all of them
        while more := file.read(CHUNK_BYTES):
            content += more
            if len(content) > limit_bytes:
                raise too_large
    return content


def write_atomic(path: Path, content: bytes, option: str, mode: int = 0o600) -> None:
    """Write a file atomically, through a symbolic link; ``option`` is the command line option that named it.

    Raises:
        UserError: The directory is missing or cannot be written.
    """
    from .atomic_files import replace_file

    try:
        replace_file(Path(os.path.realpath(path)), content, mode)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", f"name another file with {option}") from error


def write_result(path: Path, content: bytes, option: str, *, force: bool) -> None:
    """Write the result of a command for its user only; an existing file is overwritten with ``force`` only.

    Raises:
        UserError: The file exists, or its directory is missing or cannot be written.
    """
    from .atomic_files import create_file

    if force:
        write_atomic(path, content, option)
        return
    try:
        create_file(path, content)
    except FileExistsError:
        raise _exists(path, option) from None
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", f"name another file with {option}") from error


def check_result_file(path: Path, option: str, *, force: bool) -> None:
    """Check before a long measurement that its result can be written; ``option`` named the file.

    Raises:
        UserError: It is not a file, it exists and ``force`` is not set, or its directory cannot be written.
    """
    parent = path.absolute().parent
    if path.exists() and not path.is_file():
        raise UserError(f"{option} {path} is not a file", "name a file")
    if os.path.lexists(path) and not force:
        raise _exists(path, option)
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise UserError(f"{option} {path}: {parent} cannot be written to", "name another directory")


def _exists(path: Path, option: str) -> UserError:
    return UserError(f"{option} {path}: the file exists; it is not overwritten", "name another file, or add --force")


def write_new_file(name: str, content: str, directory: Path | None = None, mode: int = 0o666) -> Path:
    """Write a new file into ``directory`` (default: the working directory) under the first free name.

    Raises:
        UserError: The directory cannot be written.
    """

    def write(path: Path) -> None:
        with open(path, "x", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)

    return _first_free(name, directory or Path.cwd(), write)


def make_new_directory(name: str) -> Path:
    """Make a new directory below the working directory under the first free name.

    Raises:
        UserError: It cannot be made.
    """
    return _first_free(name, Path.cwd(), Path.mkdir)


def _first_free(name: str, directory: Path, make: Callable[[Path], None]) -> Path:
    """Call ``make`` with ``name``, or with name-2 and so on if that exists, and return the path."""
    stem, dot, ending = name.partition(".")
    for number in range(1, 1000):
        path = directory / (name if number == 1 else f"{stem}-{number}{dot}{ending}")
        try:
            make(path)
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(
                f"cannot write {path}: {error.strerror}", "start the wizard in a directory of yours"
            ) from error
        return path
    raise UserError(f"{directory} has too many files called {name}", "remove some")
