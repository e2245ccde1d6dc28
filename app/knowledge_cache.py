"""Load the knowledge base: the built-in entries with the team's entries on top, checked once and then cached.

Checking more than eighty YAML files at every start would take longer than the rest of a short ``diagnose``. The checked
entries are cached together with the names, sizes and times of the files they were read from. The course is cached in
the same way.
"""

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from .. import __version__
from ..knowledge.schema import BUILT_IN, Knowledge
from .errors import UserError
from .system import paths

MAX_CACHED = 4  # combinations of directories
KNOWLEDGE = "knowledge"
T = TypeVar("T")


class Cached(msgspec.Struct, frozen=True):
    """An encoded value, and the fingerprint of the files it was read from."""

    fingerprint: bytes
    encoded: bytes


def load_knowledge(*directories: Path) -> Knowledge:
    """Return the built-in knowledge with the team's entries (``paths.team_knowledge_dir``) and ``directories`` on top.

    An invalid entry is not part of it; ``left_out`` names its file, line and problem.

    Raises:
        UserError: A directory does not exist or cannot be read.
    """
    if missing := next((directory for directory in directories if not directory.is_dir()), None):
        raise UserError(f"{missing}: no such directory of knowledge entries", "check --knowledge")
    extra = [*team_directories(), *directories]
    return load_cached(KNOWLEDGE, extra, Knowledge, lambda: _read_entries(extra))


def load_cached(name: str, extra: Sequence[Path], type_: type[T], read: Callable[[], T]) -> T:
    """Return what ``read`` returns, from the cache if no file of the built-in knowledge and of ``extra`` has changed.

    Raises:
        UserError: A directory cannot be read.
    """
    try:
        fingerprint, path = _fingerprint(extra), _cache_path(name, extra)
        if (cached := _read_cache(path, fingerprint, type_)) is not None:
            return cached
        value = read()
        _write_cache(path, Cached(fingerprint, msgspec.msgpack.encode(value, enc_hook=str)))  # paths
    except OSError as error:
        raise UserError(f"cannot read {error.filename}: {error.strerror}", "check --knowledge") from error
    return value


def team_directories() -> list[Path]:
    """Return the directory of the team's entries, or nothing if there is none that can be read."""
    team = paths.team_knowledge_dir()
    return [team] if os.access(team, os.R_OK | os.X_OK) and team.is_dir() else []


def _read_entries(extra: list[Path]) -> Knowledge:
    from ..knowledge.loader import read_valid_knowledge

    knowledge, problems = read_valid_knowledge(*extra)
    return msgspec.structs.replace(knowledge, left_out=[str(problem) for problem in problems])


def _fingerprint(extra: Sequence[Path]) -> bytes:
    """Return bytes that differ if any of the files, or this program, has changed."""
    parts = [__version__]
    for root in (BUILT_IN, *extra):
        parts += sorted(_versions_of_files(str(root)))
    return os.fsencode("\n".join(parts))


def _versions_of_files(folder: str) -> Iterator[str]:
    """Yield path, size and time of each file below a folder, compiled Python files left out."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # a link that leads nowhere
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != "__pycache__":
                        yield from _versions_of_files(entry.path)
                else:
                    status = entry.stat()
                    yield f"{entry.path} {status.st_size} {status.st_mtime_ns}"


def _cache_path(name: str, extra: Sequence[Path]) -> Path:
    """Return the cache file for what is read from these directories."""
    directories = os.fsencode("\n".join(map(str, (BUILT_IN, *extra))))
    return paths.cache_dir() / f"{name}-{zlib.crc32(directories):08x}.msgpack"


def _read_cache(path: Path, fingerprint: bytes, type_: type[T]) -> T | None:
    try:
        cached = msgspec.msgpack.decode(path.read_bytes(), type=Cached)
        if cached.fingerprint != fingerprint:
            return None
        return msgspec.msgpack.decode(cached.encoded, type=type_, dec_hook=_path)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None


def _path(type_: type[Any], value: str) -> Any:
    """Decode a path, the only type of ours that is none of msgspec."""
    return type_(value)


def _write_cache(path: Path, cached: Cached) -> None:
    """Write the cache file if the cache directory is writable, and remove the oldest of too many."""
    from .system.atomic_files import replace_file

    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, msgspec.msgpack.encode(cached), sync=False)
        same = path.parent.glob(f"{path.name.partition('-')[0]}-*.msgpack")
        for each in sorted(same, key=lambda p: p.stat().st_mtime, reverse=True)[MAX_CACHED:]:
            each.unlink()
