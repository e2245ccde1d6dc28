"""The files of a project that an import may name, and the text of such a file.

Modules are found from a script: next to it, and in the directories of its project, which ends at a mark of a project or
at the current directory. Files of installed libraries are not read.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from ..errors import UserError
from ..system.files import read_regular_file
from .source import decode_source

PROJECT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
MOST_ABOVE = 8  # directories above a script that may be its project
INSTALLED = ("site-packages", "dist-packages")
LARGEST_BYTES = 1_000_000  # of an imported module; a larger one is data


class Directories:
    """The names in the directories that were searched, as long as no file changes."""

    def __init__(self) -> None:
        self._names: dict[str, frozenset[str] | None] = {}  # None: it cannot be read

    def has(self, path: str) -> bool:
        """Return whether there is a file or directory."""
        folder, _, name = path.rpartition("/")
        if folder not in self._names:
            self._names[folder] = _names_in(folder)
        names = self._names[folder]
        return (names is None or name in names) and _exists(path)


class ProjectImports:
    """The modules that a script and the files of its project may import."""

    def __init__(self, script: Path, directories: Directories | None = None) -> None:
        """Search ``directories``, of which what is known is kept."""
        self._script = script.absolute()
        self._directories = directories or Directories()
        self.roots = project_roots(self._script.parent)
        self._roots_of: dict[str, tuple[Path, ...]] = {}

    def candidates(self, name: str, level: int, importer: Path) -> Iterator[Path]:
        """Yield where the module of an import in ``importer`` may be, the first choice first.

        ``level`` is the number of dots of a relative import, 0 for an absolute one.
        """
        return map(Path, self._candidates(name, level, importer))

    def _candidates(self, name: str, level: int, importer: Path) -> Iterator[str]:
        folders = importer.absolute().parents[level - 1 : level] if level else self.roots_with(name.partition(".")[0])
        inside = "/".join(filter(None, name.split(".")))
        for folder in folders:
            if name:
                place = f"{str(folder).rstrip('/')}/{inside}"
                yield from (f"{place}.py", f"{place}/__init__.py")
            else:
                yield str(folder / "__init__.py")

    def find(self, name: str, level: int, importer: Path) -> Path | None:
        """Return the file of the module that an import in ``importer`` names, or None if it is none of the project."""
        return next(self.existing(name, level, importer), None)

    def existing(self, name: str, level: int, importer: Path) -> Iterator[Path]:
        """Yield the files that may be the module of an import in ``importer``, the first choice first."""
        return (Path(each) for each in self._candidates(name, level, importer) if self._directories.has(each))

    def roots_with(self, name: str) -> tuple[Path, ...]:
        """Return the directories that have a module or a package of this name."""
        if name not in self._roots_of:
            self._roots_of[name] = tuple(
                root for root in self.roots if self._has(root, name) and not self._is_installed(root / name)
            )
        return self._roots_of[name]

    def _has(self, root: Path, name: str) -> bool:
        place = f"{str(root).rstrip('/')}/{name}"
        return self._directories.has(place) or self._directories.has(f"{place}.py")

    def _is_installed(self, package: Path) -> bool:
        """Return whether a package is an installed one, and not that of the script."""
        return package.parent.name in INSTALLED and not self._script.is_relative_to(package)


def project_roots(folder: Path) -> list[Path]:
    """Return the directories whose modules a script in ``folder`` may import: its own, and those of its project."""
    above = [folder, *folder.parents][:MOST_ABOVE]
    here = Path.cwd()
    for number, each in enumerate(above, 1):
        if each == here or is_project_top(each):
            return list(dict.fromkeys(root for up in above[:number] for root in (up, up / "src") if _exists(root)))
    package = next((each for each in above if not _exists(each / "__init__.py")), folder)
    return list(dict.fromkeys([folder, package]))


def is_project_top(folder: Path) -> bool:
    """Return whether a directory has a mark of the top of a project."""
    return any(_exists(folder / mark) for mark in PROJECT_MARKS)


def read_module(path: Path) -> str | None:
    """Return the text of an imported module, or None if it cannot be read or is too large."""
    try:
        return decode_source(read_regular_file(path, LARGEST_BYTES, ""), path)[0]
    except (OSError, UserError, ValueError):
        return None


def _names_in(folder: str) -> frozenset[str] | None:
    """Return the names in a directory, None if it cannot be read."""
    try:
        with os.scandir(folder or "/") as entries:
            return frozenset(each.name for each in entries)
    except (NotADirectoryError, FileNotFoundError):
        return frozenset()
    except OSError:
        return None


def _exists(path: Path | str) -> bool:
    """Return whether there is a file or directory, as far as the directories above it can be read."""
    return os.access(path, os.F_OK)
