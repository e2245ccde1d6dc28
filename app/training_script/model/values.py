"""Values of expressions: functions, classes, objects, modules and names of libraries, with their facts."""

import ast
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import msgspec

from .keys import Key
from .library_collectives import role_of_base
from .parsed_modules import ParsedModule
from .sequences import Site

MOST_FOLDERS = 10_000  # that are kept by the paths of modules: each program has the same ones
NO_FACTS: frozenset[str] = frozenset()
TURNS = frozenset({"turns"})  # a context in which ranks wait for each other


class Module:
    """One file. ``env``: its names as far as they have been asked for. ``is_asked``: so may its expressions be."""

    def __init__(self, path: str, parsed: ParsedModule, *, is_asked: bool = True) -> None:
        self.path, self.parsed, self.is_asked = path, parsed, is_asked
        self.is_package = path.endswith("__init__.py")
        self.env: dict[str, Value] = {}
        self.evaluated = False
        self.asked: set[str] = set()
        self.stars: list[str] = []  # libraries of which all names are imported

    @cached_property
    def folder(self) -> str:
        """The directory of the file."""
        return _folder(self.path)


@lru_cache(MOST_FOLDERS)
def _folder(path: str) -> str:
    return str(Path(path).parent)


class FunctionRef(NamedTuple):
    """A function of the program, with the names around it.

    ``wraps``: the function that a decorator has made this one of. ``decorated``: its decorators are followed.
    """

    module: Module
    node: "ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda"
    env: "dict[str, Value]"
    owner: "ClassRef | None" = None
    wraps: "FunctionRef | None" = None
    decorated: bool = False


class ClassRef:
    """A class of the program. ``attributes``: what its methods store in ``self``, over all instances.

    ``made_at``: where functions make an object of it. ``is_made_often``: one function makes several.
    """

    def __init__(self, module: Module, node: ast.ClassDef, bases: "list[Value]", env: "dict[str, Value]") -> None:
        self.module, self.node, self.bases, self.env = module, node, bases, env
        self.attributes: dict[str, Value] = {}
        self.methods = {
            each.name: each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
        }
        self.prepared = False
        self.made_at: dict[ast.AST | None, Site] = {}
        self.is_made_often = False
        self.decorated: dict[str, FunctionRef] = {}  # its methods as their decorators make them

    def forget(self) -> None:
        """Empty what may refer to the class."""
        self.attributes.clear()
        self.decorated.clear()
        self.bases.clear()

    def is_set_later(self, name: str) -> bool:
        """Return whether a method other than the constructor sets an attribute."""
        return self.is_set_by_others(name, "__init__")

    def is_set_by_others(self, name: str, than: str) -> bool:
        """Return whether a method other than those of one name sets an attribute."""
        return self.module.parsed.is_stored_by_others(name, self.node, than)

    @cached_property
    def fields(self) -> list[str]:
        """The names of what its constructor takes, in order, if the class declares them instead of a constructor."""
        bodies = [stmt for each in reversed(self.ancestry()) for stmt in each.node.body]
        names = (stmt.target for stmt in bodies if isinstance(stmt, ast.AnnAssign))
        return list(dict.fromkeys(each.id for each in names if isinstance(each, ast.Name)))

    def factory(self, name: str) -> "tuple[Module, ast.expr] | None":
        """Return the function that makes an attribute of each object: ``field(default_factory=…)``, with its module."""
        for each in self.ancestry():
            if name in each.called_fields:
                given = each.called_fields[name].keywords
                made = next((keyword.value for keyword in given if keyword.arg == "default_factory"), None)
                return (each.module, made) if made else None
        return None

    @cached_property
    def called_fields(self) -> dict[str, ast.Call]:
        """The calls that the class itself declares as the values of annotated names, the first of each name."""
        found: dict[str, ast.Call] = {}
        for stmt in self.node.body:
            match stmt:
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call() as call):
                    found.setdefault(name, call)
                case _:
                    pass
        return found

    def attribute(self, name: str) -> "Value | None":
        """Return what the class or its objects hold under a name."""
        return next((each.attributes[name] for each in self.ancestry() if name in each.attributes), None)

    def ancestry(self) -> "list[ClassRef]":
        """Return the class and the classes of the program that it inherits from."""
        found: list[ClassRef] = [self]
        for each in found if self.bases else ():  # which grows meanwhile
            found += [base.obj for base in each.bases if isinstance(base.obj, ClassRef) and base.obj not in found]
        return found

    def library_bases(self) -> Iterator[str]:
        """Yield the qualified names of the library classes that it inherits from."""
        for each in self.ancestry():
            yield from (base.obj.name for base in each.bases if isinstance(base.obj, Library))

    @cached_property
    def roles(self) -> frozenset[str]:
        """The roles that its objects have by the library classes it inherits from."""
        return frozenset(role for name in self.library_bases() if (role := role_of_base(name)))

    def find_above(self, method: Any, name: str) -> "tuple[ClassRef, ast.FunctionDef | ast.AsyncFunctionDef] | None":
        """Return a method of the classes above the one that defines ``method``."""
        order = self.ancestry()
        place = next((n for n, each in enumerate(order) if method in each.methods.values()), len(order))
        return next(((each, each.methods[name]) for each in order[place + 1 :] if name in each.methods), None)

    def find(self, name: str) -> "tuple[ClassRef, ast.FunctionDef | ast.AsyncFunctionDef] | None":
        if name in self.methods:
            return self, self.methods[name]
        for each in self.ancestry():
            if name in each.methods:
                return each, each.methods[name]
        return None


class Instance(NamedTuple):
    """An object of a class of the program."""

    cls: ClassRef


class Attribute(NamedTuple):
    """An attribute that a function sets. ``before``: what all objects of the class have held before."""

    instance: Instance
    name: str
    before: "Value | None"


class Bound(NamedTuple):
    """A method with its object. ``held``: the value that the call names, which may be a wrapper of the object."""

    function: FunctionRef
    owner: "Value"
    held: "Value | None" = None


class Library(NamedTuple):
    """Something of a library, by its qualified name."""

    name: str


class Method(NamedTuple):
    """A method of an object that the program does not define."""

    owner: "Value"
    name: str


class Value(msgspec.Struct, frozen=True):
    """The value of an expression. ``facts``: its roles: ``ddp``, ``loader``, ``graph`` (of a wrapped model), …

    An evaluation makes a million of them: a ``NamedTuple`` takes three times as long to make.
    """

    key: Key
    facts: frozenset[str] = NO_FACTS
    obj: Any = None  # FunctionRef, ClassRef, Instance, Bound, Library, Method, Module, or the elements


class Either(NamedTuple):
    """Objects of which a condition chooses one. ``site``: the place of the condition, if it is known."""

    test: Key
    then: Value
    other: Value
    site: Site | None = None


class Partial(NamedTuple):
    """A function with arguments that ``node`` has given to it already."""

    function: Value
    node: ast.Call
    values: tuple[Value, ...]
    named: "dict[str, Value]"


class Context(NamedTuple):
    """The result of a function that is the body of a context manager. ``summary``: its steps.

    ``given``: what it yields, if that is known.
    """

    summary: Any
    given: "Value | None" = None


class Generated(NamedTuple):
    """The elements that a generator yields."""

    element: Value


class Mapped(NamedTuple):
    """A mapping whose names are not known. ``element``: what it holds under each."""

    element: Value


class Super(NamedTuple):
    """The classes above a method of an object (``super()``)."""

    cls: "ClassRef"
    owner: "Value"
    method: Any


class Table(NamedTuple):
    """A mapping whose names are functions or objects of the program. ``names`` and ``held`` are in its order."""

    names: tuple[Value, ...]
    held: tuple[Value, ...]


class Record:
    """An object with the attributes that it is made with."""

    def __init__(self, fields: "dict[str, Value]") -> None:
        self.fields = fields


def is_elements(obj: object) -> "TypeGuard[tuple[Value, ...]]":
    """Return whether a value is a sequence that is known element by element."""
    return type(obj) is tuple


def reduces_by(operation: Value | None, *names: str) -> bool:
    """Return whether a reduction uses one of these operations of ``ReduceOp``; without one it takes the sum."""
    if operation is None:
        return "SUM" in names
    return isinstance(operation.obj, Library) and operation.obj.name.endswith(
        tuple(f"ReduceOp.{each}" for each in names)
    )
