"""The knowledge base as it is loaded for use: the built-in entries with the team's laid over, read once and kept.

Checking seventy YAML files at every start would cost more than everything else a short ``diagnose`` does, so what was
read and found whole is kept beside the sessions, under the names, sizes and times of the files it was read from.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from .. import __version__
from ..knowledge.loader import BUILT_IN, KnowledgeError, load
from ..knowledge.schema import Knowledge
from . import locations
from .errors import UserError

KEPT = 4  # combinations of directories


def knowledge_with(*directories: Path) -> Knowledge:
    """The built-in knowledge, then a person's own (``locations.team_knowledge_dir``), then these.

    Raises:
        UserError: An entry does not hold together; the message names file and line.
    """
    if missing := next((directory for directory in directories if not directory.is_dir()), None):
        raise UserError(f"{missing}: no such directory of knowledge entries", "check --knowledge")
    team = locations.team_knowledge_dir()
    extra = [*([team] if os.access(team, os.R_OK | os.X_OK) else []), *directories]
    try:
        path = _kept(extra)
        known = _read(path)
        if known is None:
            known = load(*extra)
            _keep(path, known)
    except KnowledgeError as error:
        raise UserError(str(error), "mend that entry or move it away; ddpwizard kb check looks at all") from error
    except OSError as error:
        raise UserError(f"cannot read {error.filename}: {error.strerror}", "check --knowledge") from error
    return known


def _kept(extra: list[Path]) -> Path:
    """Where the knowledge of just these files, unchanged, would be kept."""
    seen = hashlib.sha256(__version__.encode())
    for root in (BUILT_IN, *extra):
        for path in sorted(path for path in root.rglob("*") if path.suffix in (".yaml", ".py")):
            status = path.stat()
            seen.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return locations.cache_dir() / f"knowledge-{seen.hexdigest()[:20]}.msgpack"


def _read(path: Path) -> Knowledge | None:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Knowledge)
    except (OSError, msgspec.DecodeError):
        return None


def _keep(path: Path, known: Knowledge) -> None:
    """Keep it if that can be done; drop the oldest of too many."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_bytes(msgspec.msgpack.encode(known))
        scratch.replace(path)
        older = sorted(path.parent.glob("knowledge-*.msgpack"), key=lambda p: p.stat().st_mtime, reverse=True)[KEPT:]
        for each in older:
            each.unlink()
