"""The knowledge base as it is loaded for use: the built-in entries with the team's laid over, read once and kept.

Checking seventy YAML files at every start would cost more than everything else a short ``diagnose`` does, so what was
read and found whole is kept beside the sessions, with the names, sizes and times of the files it was read from.
"""

import os
import zlib
from contextlib import suppress
from pathlib import Path

import msgspec

from .. import __version__
from ..knowledge.schema import BUILT_IN, Knowledge
from .errors import UserError
from .system import paths

KEPT = 4  # combinations of directories


class CachedKnowledge(msgspec.Struct, frozen=True):
    """Knowledge, and the ``seal`` of what it was read from."""

    seal: bytes
    known: Knowledge


def load_knowledge(*directories: Path) -> Knowledge:
    """The built-in knowledge, then a person's own (``locations.team_knowledge_dir``), then these.

    Raises:
        UserError: An entry does not hold together; the message names file and line.
    """
    if missing := next((directory for directory in directories if not directory.is_dir()), None):
        raise UserError(f"{missing}: no such directory of knowledge entries", "check --knowledge")
    team = paths.team_knowledge_dir()
    extra = [*([team] if os.access(team, os.R_OK | os.X_OK) else []), *directories]
    try:
        seal, path = _seal(extra), _path(extra)
        known = _read(path, seal)
        if known is None:
            known = _checked(extra)
            _keep(path, CachedKnowledge(seal, known))
    except OSError as error:
        raise UserError(f"cannot read {error.filename}: {error.strerror}", "check --knowledge") from error
    return known


def _checked(extra: list[Path]) -> Knowledge:
    from ..knowledge.loader import KnowledgeError, read_knowledge

    try:
        return read_knowledge(*extra)
    except KnowledgeError as error:
        raise UserError(str(error), "mend that entry or move it away; ddpwizard kb check looks at all") from error


def _seal(extra: list[Path]) -> bytes:
    """What changes when any of the files does, or this program."""
    seen = [__version__]
    for root in (BUILT_IN, *extra):
        for path in sorted(path for path in root.rglob("*") if path.suffix in (".yaml", ".py")):
            status = path.stat()
            seen.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    return os.fsencode("\n".join(seen))


def _path(extra: list[Path]) -> Path:
    """Where the knowledge of these directories is kept."""
    directories = os.fsencode("\n".join(map(str, (BUILT_IN, *extra))))
    return paths.cache_dir() / f"knowledge-{zlib.crc32(directories):08x}.msgpack"


def _read(path: Path, seal: bytes) -> Knowledge | None:
    try:
        kept = msgspec.msgpack.decode(path.read_bytes(), type=CachedKnowledge)
    except (OSError, msgspec.DecodeError):
        return None
    return kept.known if kept.seal == seal else None


def _keep(path: Path, kept: CachedKnowledge) -> None:
    """Keep it if that can be done; drop the oldest of too many."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_bytes(msgspec.msgpack.encode(kept))
        scratch.replace(path)
        older = sorted(path.parent.glob("knowledge-*.msgpack"), key=lambda p: p.stat().st_mtime, reverse=True)[KEPT:]
        for each in older:
            each.unlink()
