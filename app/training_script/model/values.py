"""Values of expressions: functions, classes, objects, modules and names of libraries, with their facts."""

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from ..nodes import nodes_below
from .keys import Key
from .written_files import written_names

NO_FACTS: frozenset[str] = frozenset()


class Module:
    """One file. ``env``: its names as far as they have been asked for; ``bound_by``: the statement that binds each."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.path, self.tree = path, tree
        self.is_package = path.endswith("__init__.py")
        self.env: dict[str, Value] = {}
        self.evaluated = False
        self.asked: set[str] = set()

    @cached_property
    def rebound(self) -> frozenset[str]:
        """The names that functions of the module assign."""
        return frozenset(name for each in nodes_below(self.tree) if isinstance(each, ast.Global) for name in each.names)

    @cached_property
    def written(self) -> frozenset[str]:
        """The names of files that the module writes."""
        return written_names(self.tree)

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

    def find_above(self, method: Any, name: str) -> "tuple[ClassRef, ast.FunctionDef | ast.AsyncFunctionDef] | None":
        """Return a method of the classes above the one that defines ``method``."""
        order = list(self.ancestry())
        place = next((n for n, each in enumerate(order) if method in each.methods.values()), len(order))
        return next(((each, each.methods[name]) for each in order[place + 1 :] if name in each.methods), None)

    def find(self, name: str) -> "tuple[ClassRef, ast.FunctionDef | ast.AsyncFunctionDef] | None":
        for each in self.ancestry():
            if name in each.methods:
                return each, each.methods[name]
        return None


class Instance(NamedTuple):
    """An object of a class of the program."""

    cls: ClassRef


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


class Value(NamedTuple):
    """The value of an expression. ``facts``: its roles: ``ddp``, ``loader``, ``graph`` (of a wrapped model), …"""

    key: Key
    facts: frozenset[str] = NO_FACTS
    obj: Any = None  # FunctionRef, ClassRef, Instance, Bound, Library, Method, Module, or the elements


class Super(NamedTuple):
    """The classes above a method of an object (``super()``)."""

    cls: "ClassRef"
    owner: "Value"
    method: Any


class Record:
    """An object with the attributes that it is made with."""

    def __init__(self, fields: "dict[str, Value]") -> None:
        self.fields = fields


def is_elements(obj: Any) -> bool:
    """Return whether a value is a sequence that is known element by element."""
    return type(obj) is tuple
