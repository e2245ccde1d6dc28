"""Whether the program of a script is one of several ranks anywhere, by the names in all that it reaches.

To follow the names that functions mention takes a fraction of the time of an evaluation. Most files of a project come to
no rank and to no call by which ranks communicate, although they import modules that do.
"""

import ast
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from weakref import WeakKeyDictionary

from ..collectives import POINT_TO_POINT
from ..project_imports import read_module
from ..source import BOM, parse_deep
from .libraries_in_use import LibrariesInUse, libraries_in_use
from .library_calls import FUNCTIONS, METHODS, UNREAD
from .library_collectives import METRICS
from .library_functions import SUBGROUPS
from .module_parts import Dotted, Import, ModuleParts, Part
from .noted_calls import OF_GROUP
from .parsed_modules import PARSED_MODULES, ParsedModule, is_about_ranks
from .rank_values import GET_RANK, OF_NODE
from .several_ranks import SET_UP

MOST_MODULES = 100  # of one program; a larger one is taken for one of several ranks
MOST_FOLDERS = 4  # whose links are kept
CALLED_BY_PYTHON = ("__", "forward")  # the beginning of methods that need not be named to be called
# Functions and classes of libraries that communicate, or that only several ranks call.
OF_SEVERAL = {name for name, effect in FUNCTIONS.items() if effect.event or effect.result & METHODS.keys()}
OF_SEVERAL |= SET_UP | SUBGROUPS | {*OF_GROUP, *GET_RANK, *OF_NODE}
OF_SEVERAL |= {f"torch.distributed.{name}" for name in POINT_TO_POINT}
MODULES = {name[:place] for name in OF_SEVERAL for place, mark in enumerate(name) if mark == "."}


class _File(NamedTuple):
    """A module with its directory. ``is_followed``: an evaluation reads it."""

    folder: str
    parts: ModuleParts
    text_hash: int
    is_followed: bool


class _Links(NamedTuple):
    """What the names in a part refer to: parts with their modules, and whether something for several ranks."""

    parts: dict[Part, _File]
    of_several: bool


class _Review:
    """What is kept as long as no file changes."""

    def __init__(self) -> None:
        self._files: dict[Path, _File | None] = {}
        self._links: OrderedDict[Path, dict[Part, _Links]] = OrderedDict()
        self.of_several: dict[Path, bool] = {}

    def file(self, path: Path) -> _File | None:
        """Return the module in a file, None if it cannot be read."""
        if path not in self._files:
            text = read_module(path)
            self._files[path] = None if text is None else _read(path, text)
        return self._files[path]

    def script(self, path: Path, tree: ast.Module, text: str) -> _File:
        """Return a script with its tree, which may not be that of its file."""
        known = self._files.get(path)
        if known and known.text_hash == hash(text):
            return known
        made = _File(str(path.parent), ModuleParts(tree), hash(text), is_about_ranks(path, text))
        if path not in self._files and read_module(path) == text:
            self._files[path] = made
        return made

    def links(self, folder: Path) -> dict[Part, _Links]:
        """Return the links of parts in the programs of the scripts of a directory, as far as they are known."""
        found = self._links.setdefault(folder, {})
        self._links.move_to_end(folder)
        if len(self._links) > MOST_FOLDERS:
            self._links.popitem(last=False)
        return found


def _read(path: Path, text: str) -> _File | None:
    known = PARSED_MODULES.of_text(path, text)
    try:
        tree = known.tree if known else parse_deep(text.removeprefix(BOM))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if known is None and is_about_ranks(path, text):
        PARSED_MODULES.keep(path, text, ParsedModule(tree, text))
    return _File(str(path.parent), ModuleParts(tree), hash(text), is_about_ranks(path, text))


_REVIEWS: "WeakKeyDictionary[LibrariesInUse, _Review]" = WeakKeyDictionary()


def is_of_several(path: Path, tree: ast.Module, text: str) -> bool:
    """Return whether the program of a script may be for several ranks; ``tree``: that of the script."""
    reach = _Reach(path.absolute())
    return reach.from_file(reach.review.script(path.absolute(), tree, text))


def is_file_of_several(path: Path) -> bool:
    """Return whether the program of the script in a file may be for several ranks."""
    reach = _Reach(path)
    known = reach.review.of_several
    if path not in known:
        file = reach.review.file(path)
        known[path] = file is not None and reach.from_file(file)
    return known[path]


class _Reach:
    """All that one script reaches: parts of its own module and of those that it imports."""

    def __init__(self, script: Path) -> None:
        self._script, self._libraries = script, libraries_in_use()
        self.review = _REVIEWS.setdefault(self._libraries, _Review())
        self._links = self.review.links(script.parent)

    def from_file(self, file: _File) -> bool:
        """Return whether anything that the parts of a module reach is for several ranks."""
        pending = [(part, file) for part in file.parts.every]
        seen = set(file.parts.every)
        attributes, folders = set[str](), set[int]()
        waiting: dict[str, list[tuple[Part, _File]]] = defaultdict(list)  # methods that nothing names so far
        has_role = uses_role = False

        def reach(found: Iterable[tuple[Part, _File]]) -> None:
            new = [each for each in found if each[0] not in seen]
            seen.update(part for part, _ in new)
            pending.extend(new)

        for part, its_file in pending:  # which grows meanwhile
            has_role, uses_role = has_role or part.has_role, uses_role or part.uses_role
            links = self._links.get(part) or self._links.setdefault(part, self._linked(part, its_file))
            folders.add(id(its_file))
            if part.shows_ranks or links.of_several or (has_role and uses_role) or len(folders) > MOST_MODULES:
                return True
            reach(links.parts.items())
            for name, methods in part.methods.items():
                made = [(method, its_file) for method in methods]
                if name in attributes or name.startswith(CALLED_BY_PYTHON):
                    reach(made)
                else:
                    waiting[name] += made
            for name in part.attributes:
                if name not in attributes:
                    attributes.add(name)
                    reach(waiting.pop(name, ()))
        return False

    def _linked(self, part: Part, file: _File) -> _Links:
        found = _Names(self)
        for name in part.names:
            found.follow(file, name)
        return _Links(found.parts, found.of_several)

    def files(self, name: str, level: int, importer: _File) -> list[_File]:
        """Return the modules that an import may name."""
        if not level and name.partition(".")[0] in UNREAD:
            return []
        places = self._libraries.places(name, level, importer.folder, self._script)
        return [file for each in places if (file := self.review.file(each))]


class _Names:
    """What dotted names refer to."""

    def __init__(self, reach: _Reach) -> None:
        self._reach = reach
        self._seen: set[tuple[int, Dotted]] = set()
        self.parts: dict[Part, _File] = {}
        self.of_several = False

    def follow(self, file: _File, name: Dotted) -> None:
        """Follow a name of a module, with its attributes."""
        if (id(file), name) in self._seen:
            return
        self._seen.add((id(file), name))
        first, *attributes = name
        for part in file.parts.binding.get(first, ()):
            self.parts[part] = file
            self.parts |= dict.fromkeys(part.methods.get(attributes[0], ()) if attributes else (), file)
        for each in file.parts.imports.get(first, ()):
            self._follow_import(file, each, attributes)
        if first not in file.parts.binding and first not in file.parts.imports:
            for each in file.parts.stars:
                self._follow_import(file, each._replace(name=first), attributes)

    def _follow_import(self, file: _File, found: Import, attributes: list[str]) -> None:
        names = [*([found.name] if found.name else []), *attributes]
        self._follow_in_module(file, found.module, found.level, names)

    def _follow_in_module(self, file: _File, module: str, level: int, names: list[str]) -> None:
        """Follow names in a module, each of which may be a module in a package."""
        modules = self._reach.files(module, level, file)
        if not any(each.is_followed for each in modules) and not level:
            self.of_several |= shows_ranks(".".join((module, *names)))
        if not names:
            return
        for each in modules:
            self.follow(each, tuple(names))
        inner = f"{module}.{names[0]}" if module else names[0]
        if self._reach.files(inner, level, file):
            self._follow_in_module(file, inner, level, names[1:])


def shows_ranks(name: str) -> bool:
    """Return whether a qualified name of a library is one for several ranks, or that of a module of some."""
    if name in OF_SEVERAL or name in MODULES or name.startswith(f"{METRICS}."):
        return True
    return name.rpartition(".")[0] in OF_SEVERAL
