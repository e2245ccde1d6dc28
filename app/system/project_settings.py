"""Settings of a project: the tables ``[tool.ddpwizard.…]`` of the nearest ``pyproject.toml``."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..errors import UserError
from .files import read_regular_file

FILE = "pyproject.toml"
LIMIT_BYTES = 1024 * 1024


class SettingsTable(NamedTuple):
    """A table and the file that has it. ``content`` is what the file has under this name, not always a table."""

    path: Path
    name: str
    content: Any


def table_name(name: str) -> str:
    """Return the whole name of one of our tables: ``tool.ddpwizard.review``."""
    return f"tool.ddpwizard.{name}"


def find_settings(directory: Path, name: str) -> SettingsTable | None:
    """Return our table ``name`` in the nearest ``pyproject.toml`` that has it, or None.

    The search ends at the root of the repository.

    Raises:
        UserError: A file on the way cannot be read, or is not valid TOML.
    """
    start = directory.absolute()
    for folder in (start, *start.parents):
        path = folder / FILE
        if os.path.lexists(path) and (content := _content(path, name)) is not None:
            return SettingsTable(path, table_name(name), content)
        if os.path.lexists(folder / ".git"):
            break
    return None


def _content(path: Path, name: str) -> Any:
    content = read_regular_file(path, LIMIT_BYTES, "")
    try:
        found: Any = msgspec.toml.decode(content)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid TOML: {error}") from error
    for key in table_name(name).split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found
