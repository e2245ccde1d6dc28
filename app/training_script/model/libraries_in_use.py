"""Search for libraries by which ranks communicate: a program without one has nothing that they can part at.

Imports are read from the text of a module and of all that it imports, which is much faster than to evaluate them.
"""

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ...text.python_source import parse_deep
from ..nodes import nodes_below
from ..project_imports import Directories, ProjectImports, read_module
from ..source import BOM, NEWLINE, ScriptSource
from .library_calls import LIBRARIES, METHODS
from .parsed_modules import PARSED_MODULES, Version, version_of

_LINE = r"(?:[^\n\\#]|\\\n)*"
IMPORT = re.compile(
    r"(?:^|[;:])[ \t]*(?:from[ \t]+(?P<module>[.\w]+)[ \t]+import[ \t]+(?P<names>\([^)]*\)|" + _LINE + r")"
    r"|import[ \t]+(?P<modules>" + _LINE + r"))",
    re.MULTILINE,
)
WORD, SEPARATOR = "import", re.compile("[;:]")
NAME = re.compile(r"[\w.]+(?:[ \t]+as[ \t]+\w+)?")
# Objects that are known by their names, and the end of the name of a class that makes some.
ROLES = ("accelerator", "fabric")
METHODS_OF_ROLES = frozenset(name for role in ROLES for name in METHODS[role])
TRAINER = "Trainer"


class _Import(NamedTuple):
    """An import of a module, or of names in it. ``level``: the number of dots before the module."""

    module: str
    level: int
    names: tuple[str, ...]


class _Imports(NamedTuple):
    """The imports of a module. ``uses``: it uses such a library itself."""

    uses: bool
    found: list[_Import]


class _Project(NamedTuple):
    """The imports of the scripts of one directory.

    ``reaching``: whether such a library is reached from a module. ``files``: of absolute imports.
    """

    imports: ProjectImports
    reaching: dict[Path, bool]
    files: dict[tuple[Path | None, _Import], list[Path]]


class LibrariesInUse:
    """The modules that were asked for in one review, in which files do not change."""

    def __init__(self) -> None:
        self._imports: dict[Path, _Imports] = {}
        self._projects: dict[Path, _Project] = {}  # by their directories, and by scripts in them
        # Of relative imports, which are the same in every project.
        self._files: dict[tuple[Path | None, _Import], list[Path]] = {}
        # The files that may be a module, by the directory that dots before its name refer to, or those that have its
        # package; its name; and the number of dots.
        self._places: dict[tuple[str | tuple[Path, ...], str, int], list[Path]] = {}
        self.users: dict[Path, list[Path]] = {}  # scripts that use a module, by its path
        self.read_by: dict[Path, frozenset[Path]] = {}  # the modules that the evaluation of such a script reads
        self.on_one_node: dict[Path, bool] = {}  # packages by their directories: all their ranks run on one node
        self.words: dict[Path, frozenset[str] | None] = {}  # in the files of projects, by their directories
        self._scripts: dict[Path, list[Path]] = {}  # by directories
        self._versions: dict[Path, Version | None] = {}
        self._directories = Directories()

    def folders(self, module: Path) -> list[Path]:
        """Return the directories whose scripts may use a module: its own, and those of its project."""
        return list(dict.fromkeys((module.parent, *self._project(module).imports.roots)))

    def version(self, path: Path) -> Version | None:
        """Return the version of a file, None if there is none."""
        if path not in self._versions:
            self._versions[path] = version_of(path)
        return self._versions[path]

    def scripts(self, folder: Path, most: int) -> list[Path]:
        """Return the first Python files of a directory, by name."""
        if folder not in self._scripts:
            self._scripts[folder] = sorted(folder.glob("*.py"))[:most]
        return self._scripts[folder]

    def uses_library(self, script: Path, source: ScriptSource | None = None) -> bool:
        """Return whether a script (with this source), or a file of its project that it imports, uses such a library."""
        script = script.absolute()
        own = _imports_in(source.text, source.tree) if source else self._of_file(script)
        if own.uses:
            return True
        project = self._project(script)
        pending, importers = [(script, own)], {script: script}
        while pending:
            importer, imports = pending.pop()
            for path in (path for each in imports.found for path in self._files_of(project, importer, each)):
                if path in importers:
                    continue
                importers[path] = importer
                if path not in project.reaching:
                    found = self._of_file(path)
                    pending.append((path, found))
                    if not found.uses:
                        continue
                elif not project.reaching[path]:
                    continue
                while path != script:
                    project.reaching[path] = True
                    path = importers[path]
                return True
        project.reaching.update(dict.fromkeys(importers, False))
        return False

    def leads_to_library(self, module: Path, script: Path) -> bool:
        """Return whether a module of the program of a script imports a file that uses such a library itself."""
        project = self._project(script)
        files = (path for each in self._of_file(module).found for path in self._files_of(project, module, each))
        return any(self._of_file(path).uses for path in files)

    def places(self, name: str, level: int, folder: str, script: Path) -> list[Path]:
        """Return the files that may be the module of an import in the program of a script, the first choice first.

        ``folder``: the directory of the module that imports it; ``level``: the number of dots before the name.
        """
        project = self._project(script)
        of_package = () if level else self.roots(name.partition(".")[0], script)
        key = folder if level else of_package, name, level
        known = self._places
        if key not in known:
            known[key] = [*project.imports.existing(name, level, Path(folder, "__init__.py"))]
        return known[key]

    def roots(self, package: str, script: Path) -> tuple[Path, ...]:
        """Return the directories that have a package which the program of a script may import."""
        return self._project(script).imports.roots_with(package)

    def _project(self, script: Path) -> _Project:
        project = self._projects.get(script)
        if project is None:
            folder = script.parent
            if folder not in self._projects:
                self._projects[folder] = _Project(ProjectImports(script, self._directories), {}, {})
            project = self._projects[script] = self._projects[folder]
        return project

    def _files_of(self, project: _Project, importer: Path, wanted: _Import) -> list[Path]:
        """Return the files that an import may read."""
        known = self._files if wanted.level else project.files
        key = importer.parent if wanted.level else None, wanted
        if key not in known:
            found = [project.imports.find(wanted.module, wanted.level, importer)]
            if found[0] is None or found[0].name == "__init__.py":
                dot = "." if wanted.module else ""
                found += [
                    project.imports.find(f"{wanted.module}{dot}{name}", wanted.level, importer) for name in wanted.names
                ]
            known[key] = [path for path in found if path]
        return known[key]

    def _of_file(self, path: Path) -> _Imports:
        if path not in self._imports:
            text = read_module(path) or ""
            known = PARSED_MODULES.of_text(path, text)
            self._imports[path] = _imports_in(text, known and known.tree)
        return self._imports[path]


def _imports_in(text: str, tree: ast.Module | None = None) -> _Imports:
    found = [*_found(text)]
    perhaps = any(not each.level and each.module.partition(".")[0] in LIBRARIES for each in found)
    perhaps = perhaps or any(word in text for word in (*ROLES, TRAINER))
    return _Imports(perhaps and _uses_library(tree or _parsed(text)), found)


def _parsed(text: str) -> ast.Module:
    try:
        return parse_deep(text.removeprefix(BOM))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _uses_library(tree: ast.Module) -> bool:
    """Return whether a module uses such a library, rather than only its text mentions one."""
    roles = methods = False
    for node in nodes_below(tree):
        match node:
            case ast.Import(names=names):
                if any(each.name.partition(".")[0] in LIBRARIES for each in names):
                    return True
            case ast.ImportFrom(module=str(name), level=0):
                if name.partition(".")[0] in LIBRARIES:
                    return True
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                if name.endswith(TRAINER):
                    return True
                roles |= name in ROLES
                methods |= name in METHODS_OF_ROLES
            case _:
                pass
    return roles and methods


def import_statements(text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of IMPORT in a text: a search for the word is much faster than one for the pattern."""
    place = 0
    while (word := text.find(WORD, place)) >= 0:
        line = max(place, text.rfind("\n", 0, word) + 1)
        starts = line, *(each.start() for each in SEPARATOR.finditer(text, line, word))
        found = next((match for start in starts if (match := IMPORT.match(text, start))), None)
        place = word + len(WORD)
        if found:
            yield found
            place = max(place, found.end())


def _found(text: str) -> Iterator[_Import]:
    for each in import_statements(NEWLINE.sub("\n", text.removeprefix(BOM))):
        module, names, modules = each.group("module", "names", "modules")
        if modules:
            yield from (_Import(name.split()[0], 0, ()) for name in NAME.findall(modules))
        else:
            name = module.lstrip(".")
            yield _Import(name, len(module) - len(name), tuple(inner.split()[0] for inner in NAME.findall(names)))


_REVIEWS: list[LibrariesInUse] = []


@contextmanager
def kept_imports() -> Iterator[None]:
    """Keep what files import, as long as none of them changes."""
    _REVIEWS.append(LibrariesInUse())
    try:
        yield
    finally:
        _REVIEWS.pop()


def libraries_in_use() -> LibrariesInUse:
    """Return what is kept of the files that the review has read."""
    return _REVIEWS[-1] if _REVIEWS else LibrariesInUse()
