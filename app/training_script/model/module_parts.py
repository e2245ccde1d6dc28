"""The parts of a module, and the names that each mentions: functions, methods, classes and statements at the top."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...launchers.rank_variables import RANK_SCOPES
from ..nodes import walk
from ..syntax import FUNCTIONS
from .libraries_in_use import METHODS_OF_ROLES, ROLES, TRAINER
from .library_calls import FIRST_ATTRIBUTES, RANK_ATTRIBUTES

OF_ROLES = {
    *RANK_ATTRIBUTES,
    *FIRST_ATTRIBUTES,
    *METHODS_OF_ROLES,
}  # attributes of objects that are known by their names
OF_RANKS = {"full_tensor", "init_device_mesh"}  # by which ranks communicate or are numbered, whatever they belong to
GLOBAL_RANKS = {name for name, scope in RANK_SCOPES.items() if scope == "global"}  # variables of the environment
OBJECTS = frozenset(ROLES)
ASKS = {"getattr", "hasattr"}
MENTIONING = {ast.Name, ast.Attribute, ast.Constant, ast.arg, ast.Call, ast.Import, ast.ImportFrom}

Dotted = tuple[str, ...]  # a name with its attributes


class Import(NamedTuple):
    """The module that an import binds a name to, or ``name`` in it. ``level``: the number of dots before the module."""

    module: str
    level: int
    name: str = ""


class Part:
    """A function, a method, a class without its methods, or a statement.

    ``names``: those in it that begin with a name of the module. ``methods``: of a class. ``of_several``: a name is for
    several ranks. ``reads_rank``: from a variable of the environment.
    ``has_role``: a parameter or an attribute is an object of a library by its name, which it uses as such or hands on.
    ``uses_role``: it may use such an object.
    """

    __slots__ = ("attributes", "has_role", "methods", "names", "of_several", "reads_rank", "uses_role")

    def __init__(self) -> None:
        self.names: tuple[Dotted, ...] = ()
        self.attributes: tuple[str, ...] = ()
        self.methods: dict[str, list[Part]] = {}
        self.of_several = self.reads_rank = self.has_role = self.uses_role = False


class ModuleParts:
    """The parts of a module by the names that they bind, and its imports, those inside of functions included.

    ``folder``: its directory. ``is_followed``: an evaluation of a program that imports it reads it.
    """

    def __init__(self, tree: ast.Module, folder: str, *, is_followed: bool) -> None:
        self.folder, self.is_followed = folder, is_followed
        self.binding: dict[str, list[Part]] = defaultdict(list)
        self.imports: dict[str, list[Import]] = defaultdict(list)
        self.stars: list[Import] = []
        self.every: list[Part] = []
        self._mentions: list[_Mentions] = []
        self._read(tree.body)
        for part, mentions in zip(self.every, self._mentions, strict=True):
            mentions.complete(part, self)
        del self._mentions

    def _read(self, body: Iterable[ast.stmt]) -> None:
        pending = [*body]
        for stmt in pending:  # which grows meanwhile
            match stmt:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    self.binding[name].append(self._part([stmt]))
                case ast.ClassDef(name=name):
                    rest = (each for each in stmt.body if not isinstance(each, FUNCTIONS))
                    part = self._part([*stmt.decorator_list, *stmt.bases, *stmt.keywords, *rest])
                    for each in stmt.body:
                        if isinstance(each, FUNCTIONS):
                            part.methods.setdefault(each.name, []).append(self._part([each]))
                    self.binding[name].append(part)
                case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
                    self._part([each for field in ("test", "iter", "items") for each in _held(stmt, field)])
                    pending += _blocks(stmt)
                case _:
                    part = self._part([stmt])
                    targets = [node for field in ("targets", "target") for node in _held(stmt, field)]
                    for name in {node.id for each in targets for node in walk(each) if isinstance(node, ast.Name)}:
                        self.binding[name].append(part)

    def _part(self, nodes: Iterable[ast.AST]) -> Part:
        self.every.append(part := Part())
        self._mentions.append(mentions := _Mentions())
        for node in nodes:
            mentions.read(walk(node), self)
        return part


class _Mentions:
    """The names that one part mentions, as it is read."""

    def __init__(self) -> None:
        self.names, self.attributes = set[Dotted](), set[str]()
        self.owners = set[str]()  # the first names of what has an attribute that objects of libraries have
        self.parameters = set[str]()  # that are such objects
        self.has_role = self.reads_rank = False

    def read(self, nodes: list[ast.AST], module: ModuleParts) -> None:
        """Read nodes, outer ones first."""
        inside = set[ast.AST]()  # of dotted names
        for node in nodes:
            if type(node) not in MENTIONING:
                continue
            match node:
                case ast.Name(id=name):
                    if node not in inside:
                        self.names.add((name,))
                case ast.Attribute():
                    if node not in inside:
                        self._read_dotted(node, inside)
                case ast.Constant(value=value):
                    self.reads_rank |= type(value) is str and value in GLOBAL_RANKS
                case ast.arg(arg=name):
                    self.parameters |= OBJECTS.intersection((name,))
                case ast.Call(func=ast.Name(id=asks), args=[owner, ast.Constant(value=str() as name), *_]):
                    if asks in ASKS:
                        self._read_dotted(ast.Attribute(owner, name), inside)
                case ast.Import(names=names):
                    for each in names:
                        first = each.name.partition(".")[0]
                        module.imports[each.asname or first].append(Import(each.name if each.asname else first, 0))
                case ast.ImportFrom(module=name, names=names, level=level):
                    for each in names:
                        found = Import(name or "", level, each.name)
                        (module.stars if each.name == "*" else module.imports[each.asname or each.name]).append(found)
                case _:
                    pass

    def _read_dotted(self, node: ast.Attribute, inside: set[ast.AST]) -> None:
        attributes, value = [node.attr], node.value
        while isinstance(value, ast.Attribute):
            inside.add(value)
            attributes.append(value.attr)
            value = value.value
        first = value.id if isinstance(value, ast.Name) else ""
        if first:
            inside.add(value)
            self.names.add((first, *attributes[::-1]))
        self.attributes.update(attributes)
        if not OF_ROLES.isdisjoint(attributes):
            self.owners.add(first)
        if not OBJECTS.isdisjoint(attributes):
            used = zip(attributes[::-1], [*attributes[-2::-1], None], strict=True)  # each with the one behind it
            self.has_role |= any(name in ROLES and (use is None or use in OF_ROLES) for name, use in used)

    def complete(self, part: Part, module: ModuleParts) -> None:
        """Fill a part, once all names of its module are known."""
        words = self.attributes.union(*self.names)
        part.of_several = not OF_RANKS.isdisjoint(words) or any(word.endswith(TRAINER) for word in words)
        part.reads_rank = self.reads_rank
        parameters = (each for each in self.names if each[0] in self.parameters)
        part.has_role = self.has_role or any(len(each) == 1 or each[1] in OF_ROLES for each in parameters)
        part.uses_role = not self.owners <= module.imports.keys()
        known = (each for each in self.names if module.stars or each[0] in module.imports or each[0] in module.binding)
        part.names, part.attributes = tuple(known), tuple(self.attributes)


def _held(stmt: ast.stmt, field: str) -> list[ast.AST]:
    """Return the nodes in a field of a statement."""
    value = getattr(stmt, field, None)
    return value if isinstance(value, list) else [value] if isinstance(value, ast.AST) else []


def _blocks(stmt: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the statements in the blocks of a statement, those of its handlers included."""
    for name in ("body", "orelse", "finalbody"):
        yield from getattr(stmt, name, ())
    for handler in getattr(stmt, "handlers", ()):
        yield from handler.body
