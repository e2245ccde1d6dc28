"""Decide whether the program of a script may be one of several ranks, by the names in all that it reaches.

To follow the names that functions mention takes a fraction of the time of an evaluation. Most files of a project reach
no call by which ranks communicate, although they import modules with some.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from weakref import WeakKeyDictionary

from ...text.python_source import parse_deep
from ..collectives import POINT_TO_POINT
from ..project_imports import read_module
from ..source import BOM
from .libraries_in_use import LibrariesInUse, libraries_in_use
from .library_calls import FUNCTIONS, UNREAD
from .library_collectives import METRICS, role_of_base
from .library_functions import SUBGROUPS
from .module_parts import Dotted, ModuleParts, Part
from .noted_calls import GRAD_SCALERS, OF_GROUP
from .parsed_modules import PARSED_MODULES, ParsedModule, is_about_ranks
from .rank_values import GET_RANK, OF_NODE
from .several_ranks import SET_UP

MOST_MODULES = 100  # of one program; a larger one is taken for one of several ranks
MOST_BINDINGS = 100  # of one name, which else is followed to each from each part that mentions it
CALLED_BY_PYTHON = ("__", "forward")  # the beginning of methods that need not be named to be called
OF_ONE = {"loader", "checkpoint"}  # what one process makes as well
# Functions and classes of libraries that communicate, or that only several ranks call.
OF_SEVERAL = {name for name, effect in FUNCTIONS.items() if effect.event or effect.result - OF_ONE}
OF_SEVERAL |= SET_UP | SUBGROUPS | {*OF_GROUP, *GET_RANK, *OF_NODE}
OF_SEVERAL |= {f"torch.distributed.{name}" for name in POINT_TO_POINT}
OF_SEVERAL |= GRAD_SCALERS.keys()  # their order of calls is also wrong in one process
MODULES = {name[:place] for name in OF_SEVERAL for place, mark in enumerate(name) if mark == "."}


class Reached(NamedTuple):
    """The kinds of things that a program reaches: something for several ranks, and the number of this one."""

    of_several: bool
    reads_rank: bool


class _Links(NamedTuple):
    """The parts that the names in a part refer to, with their modules, and whether a name is for several ranks.

    ``roots``: the directories in which the packages of these names were looked for.
    """

    parts: tuple[tuple[Part, ModuleParts], ...]
    of_several: bool
    roots: dict[str, tuple[Path, ...]]


class _Review:
    """The modules and links that are kept as long as no file changes."""

    def __init__(self) -> None:
        self._modules: dict[Path, tuple[int, ModuleParts] | None] = {}  # with the hashes of their texts
        self.links: dict[Part, _Links] = {}
        self.of_several: dict[Path, bool] = {}
        # The modules that an import may name: by its directory, or by those that have its package; its name; its dots.
        self.imported: dict[tuple[str | tuple[Path, ...], str, int], list[ModuleParts]] = {}

    def module(self, path: Path) -> ModuleParts | None:
        """Return the parts of the module in a file, None if it cannot be read."""
        if path not in self._modules:
            text = read_module(path)
            module = None if text is None else _read(path, text)
            self._modules[path] = (hash(text), module) if module else None
        known = self._modules[path]
        return known and known[1]

    def has_read(self, path: Path, text: str) -> bool:
        """Return whether this text of a file was parsed as that of a module."""
        known = self._modules.get(path)
        return known is not None and known[0] == hash(text)

    def script(self, path: Path, tree: ast.Module, text: str) -> ModuleParts:
        """Return the parts of a script with its tree, which may not be that of its file."""
        known = self._modules.get(path)
        if known and known[0] == hash(text):
            return known[1]
        made = ModuleParts(tree, str(path.parent), is_followed=is_about_ranks(path, text))
        if path not in self._modules and read_module(path) == text:
            self._modules[path] = hash(text), made
        return made


def _read(path: Path, text: str) -> ModuleParts | None:
    known, is_followed = PARSED_MODULES.of_text(path, text), is_about_ranks(path, text)
    try:
        tree = known.tree if known else parse_deep(text.removeprefix(BOM))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if known is None and is_followed:
        PARSED_MODULES.keep(path, text, ParsedModule(tree, text))
    return ModuleParts(tree, str(path.parent), is_followed=is_followed)


_REVIEWS: "WeakKeyDictionary[LibrariesInUse, _Review]" = WeakKeyDictionary()


def is_parsed_module(path: Path, text: str) -> bool:
    """Return whether this text of a file was parsed, as that of a module which the review has read before."""
    review = _REVIEWS.get(libraries_in_use())
    return review is not None and review.has_read(path, text)


def reached_by(path: Path, tree: ast.Module, text: str) -> Reached:
    """Return what the program of a script reaches; ``tree``: that of the script."""
    reach = _Reach(path.absolute())
    return reach.from_module(reach.review.script(path.absolute(), tree, text))


def is_of_several(path: Path) -> bool:
    """Return whether the program of the script in a file reaches something for several ranks."""
    reach = _Reach(path)
    known = reach.review.of_several
    if path not in known:
        module = reach.review.module(path)
        known[path] = module is not None and reach.from_module(module).of_several
    return known[path]


class _Reach:
    """All that one script reaches: parts of its own module and of those that it imports."""

    def __init__(self, script: Path) -> None:
        self._script, self._libraries = script, libraries_in_use()
        self.review = _REVIEWS.setdefault(self._libraries, _Review())
        self._roots: dict[str, tuple[Path, ...]] = {}  # of packages

    def from_module(self, module: ModuleParts) -> Reached:
        """Return what the parts of a module reach; no further than to the first of several ranks."""
        pending, modules, attributes = [(part, module) for part in module.every], set[ModuleParts](), set[str]()
        seen = set(module.every)
        waiting: dict[str, list[tuple[Part, ModuleParts]]] = defaultdict(list)  # methods that nothing names so far
        has_role = uses_role = reads_rank = False

        def reach(found: Iterable[tuple[Part, ModuleParts]]) -> None:
            new = [each for each in found if each[0] not in seen]
            seen.update(part for part, _ in new)
            pending.extend(new)

        for part, its_module in pending:  # which grows meanwhile
            has_role, uses_role = has_role or part.has_role, uses_role or part.uses_role
            links = self._links(part, its_module)
            modules.add(its_module)
            if part.of_several or links.of_several or (has_role and uses_role) or len(modules) > MOST_MODULES:
                return Reached(True, True)
            reads_rank |= part.reads_rank
            for linked in links.parts:  # as ``reach``, without a call for each part
                if linked[0] not in seen:
                    seen.add(linked[0])
                    pending.append(linked)
            for name, each in part.methods.items():
                methods = [(method, its_module) for method in each]
                if name in attributes or name.startswith(CALLED_BY_PYTHON):
                    reach(methods)
                else:
                    waiting[name] += methods
            for name in part.attributes:
                if name not in attributes:
                    attributes.add(name)
                    reach(waiting.pop(name, ()))
        return Reached(False, reads_rank)

    def _links(self, part: Part, module: ModuleParts) -> _Links:
        known = self.review.links.get(part)
        is_kept = known is not None and (
            not known.roots or all(self.roots(package) == roots for package, roots in known.roots.items())
        )
        if known is None or not is_kept:
            found = _Names(self)
            for name in part.names:
                found.follow(module, name)
            known = self.review.links[part] = _Links(tuple(found.parts.items()), found.of_several, found.roots)
        return known

    def roots(self, package: str) -> tuple[Path, ...]:
        """Return the directories in which a package is looked for."""
        if package not in self._roots:
            self._roots[package] = self._libraries.roots(package, self._script)
        return self._roots[package]

    def modules(self, name: str, level: int, importer: ModuleParts) -> list[ModuleParts]:
        """Return the modules that an import may name."""
        key = importer.folder if level else self.roots(name.partition(".")[0]), name, level
        found = self.review.imported.get(key)
        if found is None:
            places = self._libraries.places(name, level, importer.folder, self._script)
            found = [module for each in places if (module := self.review.module(each))]
            self.review.imported[key] = found
        return found


class _Names:
    """The parts that dotted names refer to."""

    def __init__(self, reach: _Reach) -> None:
        self._reach = reach
        self._seen: set[tuple[ModuleParts, Dotted]] = set()
        self.parts: dict[Part, ModuleParts] = {}
        self.of_several = False
        self.roots: dict[str, tuple[Path, ...]] = {}

    def follow(self, module: ModuleParts, name: Dotted) -> None:
        """Follow a name of a module, with its attributes."""
        if (module, name) in self._seen:
            return
        self._seen.add((module, name))
        first, *attributes = name
        bound = module.binding.get(first, ())
        if len(bound) > MOST_BINDINGS:
            self.of_several = True
            return
        for part in bound:
            methods = part.methods.get(attributes[0], ()) if attributes else ()
            self.parts |= dict.fromkeys((part, *methods), module)
        for each in module.imports.get(first, ()):
            self._follow_in(each.module, each.level, [each.name, *attributes] if each.name else attributes, module)
        if first not in module.binding and first not in module.imports:
            for each in module.stars:
                self._follow_in(each.module, each.level, [first, *attributes], module)

    def _follow_in(self, name: str, level: int, names: list[str], importer: ModuleParts) -> None:
        """Follow names in a module that is imported, each of which may be a module in a package."""
        package = name.partition(".")[0]
        if not level:
            self.roots[package] = () if package in UNREAD else self._reach.roots(package)
        modules = self._reach.modules(name, level, importer) if level or self.roots[package] else []
        if not any(each.is_followed for each in modules):
            self.of_several |= is_name_of_several(".".join((name, *names)))
        if not names:
            return
        for each in modules:
            self.follow(each, tuple(names))
        inner = f"{name}.{names[0]}" if name else names[0]
        if (level or self.roots[package]) and self._reach.modules(inner, level, importer):
            self._follow_in(inner, level, names[1:], importer)


def is_name_of_several(name: str) -> bool:
    """Return whether a qualified name of a library is one for several ranks, or that of a module of some."""
    if name in OF_SEVERAL or name in MODULES or name.startswith(f"{METRICS}.") or role_of_base(name):
        return True
    return name.rpartition(".")[0] in OF_SEVERAL
