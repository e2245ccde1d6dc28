"""A program over several files: its modules, read when they are imported."""

import ast
from collections.abc import Callable
from pathlib import Path

from .libraries_in_use import libraries_in_use
from .library_calls import UNREAD
from .parsed_modules import PARSED_MODULES, ParsedModule, parse_again
from .values import Module

MOST_MODULES = 150


class Program:
    """The modules of a program, read when they are imported."""

    def __init__(self, script: Path, known: "Callable[[Path], ast.Module | None] | None" = None) -> None:
        """``known`` gives the trees of modules that are not read from their files."""
        self._known = known
        self._script = script.absolute()
        self._libraries = libraries_in_use()
        self._imported: dict[tuple[str, str, int], Module | None] = {}
        self._modules: dict[Path, Module | None] = {}
        self._left = MOST_MODULES

    def imported(self, name: str, level: int, importer: Module) -> Module | None:
        """Return the module that an import in ``importer`` names, or None if it is no file of the program."""
        key = importer.folder if level else "", name, level
        if key not in self._imported:
            is_library = not level and name.partition(".")[0] in UNREAD
            places = () if is_library else self._libraries.places(name, level, importer.folder, self._script)
            self._imported[key] = next((module for each in places if (module := self._read(each))), None)
        return self._imported[key]

    def exported(self, module: Module) -> set[str]:
        """Return the names that a star import of a module binds."""
        names: set[str] = set()
        pending, seen = [module], {module.path}
        while pending:
            each = pending.pop()
            for name, stmt in each.parsed.bound_by.items():
                if not name.startswith("*"):
                    names.add(name)
                elif isinstance(stmt, ast.ImportFrom) and (inner := self.imported(stmt.module or "", stmt.level, each)):
                    pending += [inner] if inner.path not in seen else []
                    seen.add(inner.path)
        return {name for name in names if not name.startswith("_")}

    def forget(self) -> None:
        """Empty the modules, whose functions refer to them."""
        for module in self._modules.values():
            if module:
                module.env.clear()

    @property
    def paths(self) -> frozenset[Path]:
        """The files of the modules that were read."""
        return frozenset(path for path, module in self._modules.items() if module)

    def tree_of(self, path: Path) -> ast.Module | None:
        """Return the syntax tree of a module that was read, None for others."""
        module = self._modules.get(path)
        return module.parsed.tree if module else None

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
        if path == self._script:
            return parse_again(path)
        version = self._libraries.version(path)
        parsed = PARSED_MODULES.get(path, version)
        if parsed is None and self._libraries.leads_to_library(path, self._script):
            return PARSED_MODULES.get(path, version, any_text=True)
        return parsed
