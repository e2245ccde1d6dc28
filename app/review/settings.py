"""Settings of review: the table ``[tool.ddpwizard.review]`` of the nearest ``pyproject.toml``.

A key or value that is not valid is left out, with one line that names it.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, cast, get_args

import msgspec

from ...knowledge.schema import Severity
from ..errors import UserError
from ..system.project_settings import SettingsTable, find_settings

KEYS = ("exclude", "select", "ignore", "severity")


class ReviewSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The rules that run (``select`` None: all) with changed severities, and the patterns of files that are left out.

    ``base`` is the directory that the patterns refer to; ``problems`` are the lines about what is not valid.
    """

    base: Path = Path()
    exclude: tuple[str, ...] = ()
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    severity: dict[str, Severity] = {}
    problems: tuple[str, ...] = ()

    def rules(self, known: Collection[str]) -> list[str]:
        """Return those of the known rules that run."""
        return [rule for rule in known if (self.select is None or rule in self.select) and rule not in self.ignore]


def settings_for(directory: Path, known: Collection[str]) -> ReviewSettings:
    """Return the settings for a directory: those of the nearest ``pyproject.toml`` with our table.

    ``known`` are the ids of all rules.
    """
    try:
        found = find_settings(directory, "review")
    except UserError as error:
        return ReviewSettings(problems=(f"{error.message}; its settings are not used",))
    return _settings(found, known) if found else ReviewSettings()


def _settings(table: SettingsTable, known: Collection[str]) -> ReviewSettings:
    path = table.path
    if not isinstance(table.content, dict):
        return ReviewSettings(problems=(f"{path}: [{table.name}] is not a table; it is left out",))
    given = cast(dict[str, Any], table.content)
    problems = [f"{path}: {problem}; it is left out" for problem in _problems(given, table.name, known)]
    select = given.get("select")
    severity = given.get("severity")
    return ReviewSettings(
        base=path.parent,
        exclude=_texts(given.get("exclude")),
        select=tuple(rule for rule in _texts(select) if rule in known) if _are_texts(select) else None,
        ignore=tuple(rule for rule in _texts(given.get("ignore")) if rule in known),
        severity={
            rule: level
            for rule, level in (severity.items() if isinstance(severity, dict) else ())
            if rule in known and level in get_args(Severity)
        },
        problems=tuple(problems),
    )


def _problems(given: dict[str, Any], table: str, known: Collection[str]) -> Iterator[str]:
    """Yield what is not valid in the table, in words."""
    for key, value in given.items():
        if key not in KEYS:
            yield f"{table}.{key} is no setting ({', '.join(KEYS)})"
        elif key == "severity":
            if not isinstance(value, dict):
                yield f"{table}.severity is not a table of rules"
                continue
            levels = get_args(Severity)
            for rule, level in value.items():
                if rule not in known:
                    yield f"{table}.severity: {rule} is no rule"
                elif level not in levels:
                    yield f"{table}.severity.{rule} is none of {', '.join(levels)}"
        elif not _are_texts(value):
            yield f"{table}.{key} is not a list of texts"
        elif key != "exclude":
            yield from (f"{table}.{key}: {rule} is no rule" for rule in value if rule not in known)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(value) if _are_texts(value) else ()


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
