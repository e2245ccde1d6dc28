"""A program over several files, and which module an import of it names.

Modules are found from a script: next to it, and in the directories of its project, which ends at a mark of a project or
at the current directory. Files of installed libraries are not read.
"""

import ast
from collections.abc import Callable
from pathlib import Path

from .library_calls import LIBRARIES
from .parsed_modules import PARSED_MODULES, ParsedModule, parse_again
from .values import Module

PROJECT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
MOST_MODULES = 150
MOST_ABOVE = 8  # directories above a script that may be its project


class Program:
    """The modules of a program, read when they are imported."""

    def __init__(self, script: Path, known: "Callable[[Path], ast.Module | None] | None" = None) -> None:
        """``known`` gives the trees of modules that are not read from their files."""
        self._known = known
        self._script = script.absolute()
        self._roots = project_roots(script.absolute().parent)
        self._roots_of: dict[str, list[Path]] = {}
        self._imported: dict[tuple[str, str], Module | None] = {}
        self._modules: dict[Path, Module | None] = {}
        self._left = MOST_MODULES

    def imported(self, name: str, level: int, importer: Module) -> Module | None:
        """Return the module that an import in ``importer`` names, or None if it is no file of the program."""
        key = (importer.path if level else "", "." * level + name)
        if key not in self._imported:
            if not level and name.partition(".")[0] in LIBRARIES:
                self._imported[key] = None
            elif level:
                self._imported[key] = self._at(Path(importer.path).parents[level - 1], name)
            else:
                found = (self._at(root, name) for root in self._roots_with(name.partition(".")[0]))
                self._imported[key] = next((each for each in found if each), None)
        return self._imported[key]

    def forget(self) -> None:
        """Empty the modules, whose functions refer to them."""
        for module in self._modules.values():
            if module:
                module.env.clear()

    def _roots_with(self, name: str) -> list[Path]:
        if name not in self._roots_of:
            self._roots_of[name] = [
                root for root in self._roots if (root / name).is_dir() or (root / f"{name}.py").is_file()
            ]
        return self._roots_of[name]

    def _at(self, folder: Path, name: str) -> Module | None:
        place = folder.joinpath(*name.split(".")) if name else folder
        return (self._read(place.with_name(f"{place.name}.py")) if name else None) or self._read(place / "__init__.py")

    def given(self, path: str) -> Module | None:
        """Return the module of a path."""
        return self._read(Path(path))

    def _read(self, path: Path) -> Module | None:
        if path not in self._modules:
            tree = self._known(path) if self._known else None
            parsed = ParsedModule(tree) if tree else self._parsed(path) if self._left else None
            self._left -= parsed is not None
            self._modules[path] = Module(str(path), parsed, is_asked=self._known is not None) if parsed else None
        return self._modules[path]

    def _parsed(self, path: Path) -> ParsedModule | None:
        """Return the module in a file; a script that something imports is another module than the one that runs."""
        return parse_again(path) if path == self._script else PARSED_MODULES.get(path)


def project_roots(folder: Path) -> list[Path]:
    """Return the directories whose modules a script in ``folder`` may import: its own, and those of its project."""
    above = [folder, *folder.parents][:MOST_ABOVE]
    here = Path.cwd()
    for number, each in enumerate(above, 1):
        if each == here or any((each / mark).exists() for mark in PROJECT_MARKS):
            return list(dict.fromkeys(root for up in above[:number] for root in (up, up / "src") if root.is_dir()))
    package = next((each for each in above if not (each / "__init__.py").is_file()), folder)
    return list(dict.fromkeys([folder, package]))
