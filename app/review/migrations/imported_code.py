"""Functions and classes that a training script imports from other files of its project."""

import ast
from pathlib import Path
from typing import NamedTuple

from ...errors import UserError
from ...training_script.name_resolution import Names
from ...training_script.project_imports import ProjectImports, read_module
from ...training_script.source import ScriptSource
from ...training_script.syntax import FUNCTIONS, Function
from .facts import TrainingFacts

MOST_PATHS = 500
MOST_DEFINITIONS = 200


class Definition(NamedTuple):
    """A function or class of another file."""

    names: Names
    node: Function | ast.ClassDef

    def place(self, node: ast.AST) -> str:
        """Return ``losses.py:12`` for a node of it."""
        return f"{Path(self.names.source.path).name}:{getattr(node, 'lineno', self.node.lineno)}"

    @property
    def run(self) -> Function | None:
        """The function itself, or the ``forward`` of a class."""
        return self.node if isinstance(self.node, FUNCTIONS) else self.names.method(self.node, "forward")


class ImportedCode:
    """Finds definitions in the files that a script imports; each file is read once."""

    def __init__(self, facts: TrainingFacts) -> None:
        self._names = facts.names
        self._imports = ProjectImports(Path(facts.source.path))
        self._files: dict[Path, Names | None] = {}

    def definition(self, called: ast.expr) -> Definition | None:
        """Return the function or class of another file that an expression of the script names."""
        found = self._named(called)
        return found if found and found.names is not self._names else None

    def used_by(self, called: ast.expr) -> list[Definition]:
        """Return the definitions of other files that what an expression names consists of."""
        first = self._named(called)
        found = {first.node: first} if first else {}
        pending = [*found.values()]
        while pending and len(found) < MOST_DEFINITIONS:
            names, node = pending.pop()
            for inner in ast.walk(node):
                if isinstance(inner, (ast.Name, ast.Attribute)) and isinstance(inner.ctx, ast.Load):
                    used = self._find(names, inner)
                    if used and used.node not in found:
                        found[used.node] = used
                        pending.append(used)
        return [each for each in found.values() if each.names is not self._names]

    def _named(self, called: ast.expr) -> Definition | None:
        """Return what an expression of the script names, directly or by another name."""
        origins = [each for each in self._names.origins(called) if isinstance(each, (ast.Name, ast.Attribute))]
        return next((found for each in (called, *origins) if (found := self._find(self._names, each))), None)

    def _find(self, names: Names, named: ast.expr, depth: int = 5) -> Definition | None:
        """Return what a name or attribute means: a definition at the top of its file, or an imported one."""
        if isinstance(named, ast.Name):
            known = names.lookup(named.id, names.scope_of.get(named, names.module))
            for binding in known[0] if known else []:
                if isinstance(binding.at, (*FUNCTIONS, ast.ClassDef)) and known and known[1] is names.module:
                    return Definition(names, binding.at)
        qualified = names.qualified(named)
        place = self._module_of(qualified, Path(names.source.path)) if qualified and depth else None
        return self._find(place[0], ast.Name(place[1], ast.Load()), depth - 1) if place else None

    def _module_of(self, qualified: str, importer: Path) -> tuple[Names, str] | None:
        """Return the file that a qualified name leads to, and the name in it."""
        bare = qualified.lstrip(".")
        level = len(qualified) - len(bare)
        parts = bare.split(".")
        for end in range(len(parts) - 1, -1 if level else 0, -1):
            for path in self._imports.candidates(".".join(parts[:end]), level, importer):
                if names := self._read(path):
                    return names, parts[end]
        return None

    def _read(self, path: Path) -> Names | None:
        if path not in self._files:
            self._files[path] = self._read_file(path) if len(self._files) < MOST_PATHS else None
        return self._files[path]

    def _read_file(self, path: Path) -> Names | None:
        text = read_module(path)
        try:
            return Names(ScriptSource(text, str(path))) if text is not None else None
        except (UserError, RecursionError):
            return None
