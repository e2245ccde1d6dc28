"""The scripts of a project that use a module: what they pass to its functions decides what these do."""

import ast
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ..project_imports import read_module
from .branch_sides import leaves
from .divergence import Divergence
from .divergences import Divergences, divergences
from .evaluated import MOST_STEPS as MOST_STEPS_OF_SCRIPT
from .evaluated import Evaluated
from .function_steps import Branch, Called, Item, Noted, Rounds
from .keys import BY_RANK
from .libraries_in_use import kept_imports, libraries_in_use
from .parsed_modules import PARSED_MODULES, Version, version_of
from .sequences import Event

MOST_USERS = 2  # of one module
MOST_FILES = 80  # of a directory, read for their imports
MOST_STEPS = 40_000  # of the evaluation of one user
MOST_CALLS = 2  # on the way from a function to a condition
IMPORTS = re.compile(r"^[ \t]*(?:from[ \t]+[\w.]+[ \t]+)?import[ \t]+(?:\([^)]*\)|[^\n#]*)", re.MULTILINE)
TOP_CALL = re.compile(r"^(\w+)\(", re.MULTILINE)
TOP_FUNCTION = re.compile(r"^(?:async )?def (\w+)\(", re.MULTILINE)
NAME = re.compile(r"\w+")

_KEPT: list[dict[Path, Evaluated]] = []  # the last evaluations of scripts, one dictionary for each review


@contextmanager
def unchanged_files() -> Iterator[None]:
    """Keep what files import, and the evaluations of scripts for the modules that they use, as long as none changes."""
    _KEPT.append({})
    try:
        with kept_imports():
            yield
    finally:
        for each in _KEPT.pop().values():
            each.forget()


def _kept_evaluations() -> dict[Path, Evaluated]:
    return _KEPT[-1] if _KEPT else {}


def divergences_in_use(evaluated: Evaluated, tree: ast.Module, path: Path, text: str) -> list[Divergence]:
    """Return where the functions of a module part the ranks, as far as only the scripts that call them show it."""
    roots = evaluated.roots if path.is_absolute() else []
    parts = any(root.function and _may_part_ranks(root.items, MOST_CALLS) for root in roots)
    if not (parts or (path.is_absolute() and evaluated.empties_for_some)):
        return []
    as_read = SOURCES.source(path)
    is_changed = not (as_read and as_read.text == text)
    since = as_read.version[0] if as_read else 0
    found = (SOURCES.divergences(user, path, tree, since, is_changed=is_changed) for user in readers(path))
    return [each for every in found for each in every if each.decided.path == str(path)]


def evaluated_in_use(tree: ast.Module, path: Path) -> list[Evaluated]:
    """Return the evaluations of the scripts that come to the functions of a module, with this tree of it."""
    found: list[Evaluated] = []
    libraries = libraries_in_use()
    for user in readers(path) if path.is_absolute() else []:
        evaluated = _evaluated(user, path, tree)
        if evaluated is None:
            continue
        read = libraries.read_by.setdefault(user, evaluated.modules)
        if evaluated.complete and path in read:
            found.append(evaluated)
        else:
            forget_user(evaluated)
    return found


def _evaluated(user: Path, path: Path, tree: ast.Module) -> Evaluated | None:
    """Return the evaluation of a script with this tree of a module, None if the script cannot be read.

    The review keeps it for other modules if the tree is that of the file.
    """
    as_read, kept = PARSED_MODULES.get(path), _kept_evaluations()
    if as_read is None or as_read.tree is not tree:
        return _evaluated_with(user, path, tree)
    evaluated = kept.pop(user, None)
    if evaluated is not None and evaluated.tree_of(path) is not tree:
        evaluated.forget()
        evaluated = None
    evaluated = evaluated or _evaluated_with(user, path, tree)
    if evaluated is not None:
        kept[user] = evaluated
        while len(kept) > MOST_USERS:
            kept.pop(next(iter(kept))).forget()
    return evaluated


def _evaluated_with(user: Path, path: Path, tree: ast.Module) -> Evaluated | None:
    source, module = SOURCES.source(user), PARSED_MODULES.get(user)
    if source is None or module is None:
        return None
    return Evaluated(module.tree, user, source.text, most_steps=MOST_STEPS, changed={path: tree})


def forget_user(evaluated: Evaluated) -> None:
    """Empty an evaluation of ``evaluated_in_use``, unless the review keeps it for the other modules of the script."""
    if evaluated not in _kept_evaluations().values():
        evaluated.forget()


def _may_part_ranks(items: list[Item], calls: int) -> bool:
    """Return whether steps depend on the rank, or something decides whether or how often all ranks are waited for."""
    pending = [(items, calls, False, False)]
    while pending:
        inside, calls, is_decided, may_leave = pending.pop()
        for item in inside:
            match item:
                case Event() if is_decided:
                    return True
                case Noted(name=".backward") if may_leave:
                    return True  # the script that uses it may pass a model in DDP
                case Branch(test=test, then=first, other=second):
                    if test.differs_by & BY_RANK:
                        return True
                    pending += [(first, calls, True, may_leave), (second, calls, True, may_leave)]
                case Rounds(amount=amount, body=body):
                    if amount.differs_by & BY_RANK:
                        return True
                    pending.append((body, calls, True, may_leave or leaves(body)))
                case Called(summary=summary) if calls:
                    pending.append((summary.items, calls - 1, is_decided, may_leave))
                case _:
                    pass
    return False


def users(path: Path) -> list[Path]:
    """Return the scripts next to a module and at the top of its project that import it."""
    libraries = libraries_in_use()
    if path not in libraries.users:
        names = _imported_as(path)
        found: list[Path] = []
        for folder in libraries.folders(path):
            for file in libraries.scripts(folder, MOST_FILES):
                if (
                    len(found) < MOST_USERS
                    and file != path
                    and file not in found
                    and names & SOURCES.imports(file, libraries.version(file))
                ):
                    found.append(file)
        libraries.users[path] = found
    return libraries.users[path]


def readers(path: Path) -> list[Path]:
    """Return the scripts that use a module, without those whose evaluation is known not to come to it."""
    read_by = libraries_in_use().read_by
    return [user for user in users(path) if path in read_by.get(user, (path,))]


def runs_as_script(text: str) -> bool:
    """Return whether a file asks if it is the main program, or calls a function of its own where it is run."""
    if "__main__" in text:
        return True
    called = TOP_CALL.findall(text)
    return bool(called) and not set(called).isdisjoint(TOP_FUNCTION.findall(text))


def _imported_as(path: Path) -> set[str]:
    """Return the names by which a script may import a module: its own, and that of a package that hands it on."""
    if path.name == "__init__.py":
        return {path.parent.name}
    package = SOURCES.source(path.parent / "__init__.py")
    imported = NAME.findall(" ".join(IMPORTS.findall(package.text))) if package else []
    return {path.stem, *([path.parent.name] if path.stem in imported else [])}


class _Source(NamedTuple):
    version: Version
    text: str


class _Known(NamedTuple):
    """The divergences of a version of a script, and when they were found, in nanoseconds since the epoch."""

    version: Version
    found_ns: int
    found: list[Divergence]


class _Sources:
    """Imports and divergences of files, as long as these do not change."""

    def __init__(self) -> None:
        self._imports: dict[Path, tuple[Version, frozenset[str]]] = {}
        self._divergences: dict[Path, _Known] = {}

    def source(self, path: Path) -> _Source | None:
        version = version_of(path)
        text = read_module(path) if version else None
        return None if version is None or text is None else _Source(version, text)

    def imports(self, path: Path, version: Version | None) -> frozenset[str]:
        """Return the names in the imports of a script that runs on several ranks; none of another module."""
        if version is None:
            return frozenset()
        known = self._imports.get(path)
        if known is None or known[0] != version:
            source = self.source(path)
            is_script = source and runs_as_script(source.text)
            names = (
                frozenset(NAME.findall(" ".join(IMPORTS.findall(source.text))))
                if source and is_script
                else frozenset[str]()
            )
            known = self._imports[path] = version, names
        return known[1]

    def keep(self, evaluated: Evaluated, path: Path, text: str, found: Divergences) -> None:
        """Keep what the fewer steps of a user give of a script, for the modules that it imports."""
        few_steps = found.complete and evaluated.budget.left >= MOST_STEPS_OF_SCRIPT - MOST_STEPS
        too_many = evaluated.count_steps > MOST_STEPS
        if (few_steps or too_many) and path.is_absolute() and runs_as_script(text):
            source = self.source(path)
            if source and source.text == text:
                self._divergences[path] = _Known(source.version, time.time_ns(), [] if too_many else found.found)

    def divergences(
        self, user: Path, path: Path, tree: ast.Module, since_ns: int, *, is_changed: bool
    ) -> list[Divergence]:
        """Return where ranks part in a script and all that it calls, with this tree of a module.

        ``since_ns``: when the file of the module was changed. ``is_changed``: the tree is not that of the file.
        """
        source = self.source(user)
        if source is None:
            return []
        known = self._divergences.get(user)
        if known and known.version == source.version and known.found_ns > since_ns and not is_changed:
            return known.found
        evaluated = _evaluated(user, path, tree)
        if evaluated is None:
            return []
        found = divergences(evaluated).found
        modules = evaluated.modules
        forget_user(evaluated)
        if not is_changed:
            libraries_in_use().read_by.setdefault(user, modules)
            self._divergences[user] = _Known(source.version, time.time_ns(), found)
        return found


SOURCES = _Sources()
