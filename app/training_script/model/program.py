"""A program over several files: modules, and what its names may refer to.

Modules are found from a script: next to it, in the packages above it, and in ``src`` of its project. Files of installed
libraries are not read.
"""

import ast
import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import UserError
from ..source import decode_source
from .keys import Key

PROJECT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
MOST_MODULES = 150
LIMIT_BYTES = 1_000_000  # of an imported module; a larger one is data
MOST_PARSED = 1000  # modules that are kept for further scripts of a review
ABOUT_RANKS = re.compile(
    r"distributed|\bdist\b|accelerat|deepspeed|horovod|mpi4py|fabric|[fF][sS][dD][pP]|DDP|barrier|all_?reduce|all_?gather"
    r"|\b(?:\w+_)?rank\b|\bRANK\b|LOCAL_RANK|is_main|is_master|main_process|rank_zero|world_size"
)
MOST_ABOVE = 6  # directories above a script that may hold its packages

NO_FACTS: frozenset[str] = frozenset()


class Module:
    """One file. ``env``: its names as far as they have been asked for; ``bound_by``: the statement that binds each."""

    def __init__(self, name: str, path: str, tree: ast.Module, is_package: bool) -> None:
        self.name, self.path, self.tree, self.is_package = name, path, tree, is_package
        self.env: dict[str, Value] = {}
        self.evaluated = False
        self.asked: set[str] = set()

    @cached_property
    def bound_by(self) -> dict[str, ast.stmt]:
        """The last statement at the top of the module that binds each name; star imports as ``*1``, ``*2``, …"""
        found: dict[str, ast.stmt] = {}
        pending: list[ast.stmt] = self.tree.body[::-1]
        while pending:
            stmt = pending.pop()
            match stmt:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    found[name] = stmt
                case ast.Import(names=names) | ast.ImportFrom(names=names):
                    for alias in names:
                        star = f"*{len(found)}"
                        found[star if alias.name == "*" else alias.asname or alias.name.partition(".")[0]] = stmt
                case ast.Assign(targets=targets):
                    found |= dict.fromkeys(
                        (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)), stmt
                    )
                case ast.AnnAssign(target=ast.Name(id=name)):
                    found[name] = stmt
                case ast.If(body=body, orelse=orelse):
                    pending += [*body, *orelse][::-1]
                case ast.Try(body=body, handlers=handlers, orelse=orelse):
                    pending += [*(each for handler in handlers for each in handler.body), *body, *orelse][::-1]
                case ast.With(body=body):
                    pending += body[::-1]
                case _:
                    pass
        return found


class FunctionRef(NamedTuple):
    """A function of the program, with the names around it."""

    module: Module
    node: "ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda"
    env: "dict[str, Value]"
    owner: "ClassRef | None" = None


class ClassRef:
    """A class of the program. ``attributes``: what its methods store in ``self``, over all instances."""

    def __init__(self, module: Module, node: ast.ClassDef, bases: "list[Value]", env: "dict[str, Value]") -> None:
        self.module, self.node, self.bases, self.env = module, node, bases, env
        self.attributes: dict[str, Value] = {}
        self.methods = {
            each.name: each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        self.prepared = False

    def ancestry(self) -> "Iterator[ClassRef]":
        """Yield the class and the classes of the program that it inherits from."""
        pending, seen = [self], set[int]()
        while pending:
            each = pending.pop(0)
            if id(each) in seen:
                continue
            seen.add(id(each))
            yield each
            pending += [base.obj for base in each.bases if isinstance(base.obj, ClassRef)]

    def library_bases(self) -> Iterator[str]:
        """Yield the qualified names of the library classes that it inherits from."""
        for each in self.ancestry():
            yield from (base.obj.name for base in each.bases if isinstance(base.obj, Library))

    def find(self, name: str) -> "tuple[ClassRef, ast.FunctionDef | ast.AsyncFunctionDef] | None":
        for each in self.ancestry():
            if name in each.methods:
                return each, each.methods[name]
        return None


class Instance(NamedTuple):
    """An object of a class of the program."""

    cls: ClassRef


class Bound(NamedTuple):
    """A method with its object."""

    function: FunctionRef
    owner: "Value"


class Library(NamedTuple):
    """Something of a library, by its qualified name."""

    name: str


class Method(NamedTuple):
    """A method of an object that the program does not define."""

    owner: "Value"
    name: str


class Value(NamedTuple):
    """What an expression is. ``facts``: its roles: ``ddp``, ``loader``, ``graph`` (computed with a wrapped model), …"""

    key: Key
    facts: frozenset[str] = NO_FACTS
    obj: Any = None  # FunctionRef, ClassRef, Instance, Bound, Library, Method, Module, or the elements


def is_elements(obj: Any) -> bool:
    """Return whether a value is a sequence that is known element by element."""
    return type(obj) is tuple


class Program:
    """The modules of a program, read when they are imported."""

    def __init__(self, script: Path) -> None:
        self.roots = _roots(script)
        self.count = 0
        self._modules: dict[Path, Module | None] = {}

    def imported(self, name: str, level: int, importer: Module) -> Module | None:
        """Return the module that an import in ``importer`` names, or None if it is no file of the program."""
        if level:
            folder = Path(importer.path).parent
            for _ in range(level - 1):
                folder = folder.parent
            return self._at(folder.joinpath(*name.split(".")) if name else folder, name)
        for root in self.roots:
            if found := self._at(root.joinpath(*name.split(".")), name):
                return found
        return None

    def _at(self, place: Path, name: str) -> Module | None:
        for path, is_package in (
            (place.with_suffix(".py") if place.name else place, False),
            (place / "__init__.py", True),
        ):
            if path not in self._modules:
                self._modules[path] = self._read(path, name, is_package)
            if found := self._modules[path]:
                return found
        return None

    def _read(self, path: Path, name: str, is_package: bool) -> Module | None:
        if self.count >= MOST_MODULES:
            return None
        tree = parsed_module(path)
        if tree is None:
            return None
        self.count += 1
        return Module(name, str(path), tree, is_package)


@lru_cache(MOST_PARSED)
def parsed_module(path: Path) -> ast.Module | None:
    """Return the syntax tree of a module, or None if it cannot be read or has nothing to do with ranks."""
    try:
        if not path.is_file() or path.stat().st_size > LIMIT_BYTES:
            return None
        text, _ = decode_source(path.read_bytes(), path)
        return (
            ast.parse(text.removeprefix("\ufeff")) if ABOUT_RANKS.search(text) or path.name == "__init__.py" else None
        )
    except (OSError, UserError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _roots(script: Path) -> list[Path]:
    """Return the directories whose modules a script may import."""
    folder = script.absolute().parent
    roots = [folder]
    for above in [folder, *folder.parents][:MOST_ABOVE]:
        roots += [above, above / "src"]
        if any((above / mark).exists() for mark in PROJECT_MARKS):
            break
    return list(dict.fromkeys(each for each in roots if each.is_dir()))
