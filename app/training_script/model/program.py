"""A program over several files, and which module an import of it names.

Modules are found from a script: next to it, and in the directories of its project, which ends at a mark of a project or
at the current directory. Files of installed libraries are not read.
"""

import ast
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from ...errors import UserError
from ...system.files import read_regular_file
from ..source import decode_source
from .library_calls import LIBRARIES
from .values import Module

PROJECT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
MOST_MODULES = 150
LARGEST_BYTES = 1_000_000  # of an imported module; a larger one is data
MOST_PARSED_BYTES = 1_000_000  # of source whose trees are kept for further scripts: they take 20 times as much memory
MOST_ABOVE = 8  # directories above a script that may be its project
ABOUT_RANKS = (
    "Distributed",
    *("distributed", "dist.", "accelerat", "deepspeed", "horovod", "mpi4py", "fabric", "fsdp", "FSDP", "DDP"),
    *("barrier", "reduce", "gather", "broadcast", "rank", "RANK", "is_main", "is_master", "main_process"),
    *("world_size", "map_location"),
)


EFFECTS = ("torch.save", "wandb.", "makedirs", "mkdir(", "rmtree")  # of helpers that a script of several ranks calls


def concerns_ranks(text: str) -> bool:
    """Return whether a module mentions anything of distributed training."""
    return any(word in text for word in ABOUT_RANKS)


class Program:
    """The modules of a program, read when they are imported."""

    def __init__(self, script: Path, known: "Callable[[Path], ast.Module | None] | None" = None) -> None:
        """``known`` gives the trees of modules that are not read from their files."""
        self._known = known
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
            tree = tree or (TREES.tree(path) if self._left else None)
            self._left -= tree is not None
            self._modules[path] = Module(str(path), tree) if tree else None
        return self._modules[path]


class Trees:
    """The syntax trees of modules that were imported last, as long as their files do not change."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, tuple[tuple[int, int], ast.Module | None]] = OrderedDict()
        self._bytes = 0

    def tree(self, path: Path) -> ast.Module | None:
        """Return the syntax tree of a module, or None if it cannot be read or has nothing to do with ranks."""
        try:
            status = path.stat()
        except (OSError, ValueError):
            return None
        version = status.st_mtime_ns, status.st_size
        known = self._kept.get(path)
        if known and known[0] == version:
            self._kept.move_to_end(path)
            return known[1]
        if known:
            self._drop(path)
        tree = _parsed(path) if status.st_size <= LARGEST_BYTES else None
        self._kept[path] = version, tree
        self._bytes += status.st_size if tree else 0
        while self._bytes > MOST_PARSED_BYTES:
            self._drop(next(iter(self._kept)))
        return tree

    def _drop(self, path: Path) -> None:
        (_, size), tree = self._kept.pop(path)
        self._bytes -= size if tree else 0


TREES = Trees()


def _parsed(path: Path) -> ast.Module | None:
    try:
        text, _ = decode_source(read_regular_file(path, LARGEST_BYTES, ""), path)
        needed = concerns_ranks(text) or path.name == "__init__.py" or any(word in text for word in EFFECTS)
        return ast.parse(text.removeprefix("\ufeff")) if needed else None
    except (OSError, UserError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def project_roots(folder: Path) -> list[Path]:
    """Return the directories whose modules a script in ``folder`` may import: its own, and those of its project."""
    above = [folder, *folder.parents][:MOST_ABOVE]
    here = Path.cwd()
    for number, each in enumerate(above, 1):
        if each == here or any((each / mark).exists() for mark in PROJECT_MARKS):
            return list(dict.fromkeys(root for up in above[:number] for root in (up, up / "src") if root.is_dir()))
    package = next((each for each in above if not (each / "__init__.py").is_file()), folder)
    return list(dict.fromkeys([folder, package]))
