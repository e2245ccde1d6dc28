"""Names and attributes that only some ranks set: the others that read them end with an error."""

import ast
from collections import Counter
from functools import reduce
from typing import NamedTuple

from msgspec.structs import replace

from ..nodes import child_nodes, walk
from ..syntax import FUNCTIONS, last_name
from .function_steps import Noted
from .keys import BY_RANK, RANKS, Key, Keys
from .noted_calls import OF_SOME_RANKS
from .sequences import Site
from .values import ClassRef, Value

PLAIN_BASES = {"object", "ABC", "Module", "Dataset"}  # of which a class inherits no attributes that programs read


class OfSome(NamedTuple):
    """A value that a name has only where a condition on the rank holds. ``site``: of the condition.

    ``value`` is an object of its own, by which it is known again; ``assigned`` is what it was made of.
    """

    name: str
    value: Value
    assigned: Value
    test: Key
    site: Site

    def read_at(self, node: ast.expr, site: Site, path: Key, keys: Keys) -> Noted | None:
        """Return a note of a read under the conditions of ``path``, None if no rank without the name comes there."""
        without = keys.make("and", path, keys.make("not", self.test))
        if all(seen.is_constant and not seen.value for seen in (keys.specialise(without, rank) for rank in RANKS)):
            return None
        call = ast.copy_location(ast.Call(node, [], []), node)
        bound = [Value(self.test), Value(keys.constant(self.site.path)), Value(keys.constant(self.site.line))]
        return Noted(OF_SOME_RANKS, site, call, None, bound, {}, self.value)


class NamesOfRanks:
    """The names of a program that only some ranks bind. ``by_value``: those of variables, by their values."""

    def __init__(self) -> None:
        self.by_value: dict[int, OfSome] = {}
        self._made: dict[tuple[str, int, Key], OfSome] = {}
        self._attributes: dict[ast.ClassDef, dict[str, int]] = {}
        self._stored: dict[tuple[ast.ClassDef, str], dict[Site, Key]] = {}

    def bound(self, name: str, value: Value, test: Key, site: Site) -> Value:
        """Return the value of a name that is bound only where a test holds, the same one in each round of a loop."""
        if (known := self.of(name, value)) and known.test is test:
            return value
        made = self._made.get((name, id(value), test))
        if made is None:
            made = OfSome(name, replace(value), value, test, site)
            self._made[name, id(value), test] = self.by_value[id(made.value)] = made
        return made.value

    def of(self, name: str, value: Value) -> OfSome | None:
        """Return what is known of a value if it is that of a name which only some ranks bind."""
        known = self.by_value.get(id(value))
        return known if known and known.name == name else None

    def store(self, cls: ClassRef, name: str, path: Key, site: Site) -> None:
        """Keep under which conditions a method stores an attribute, if no method stores it in any case."""
        if cls.module.is_asked and name in self._under_conditions(cls):
            self._stored.setdefault((cls.node, name), {})[site] = path

    def attribute(self, cls: ClassRef, name: str, value: Value, keys: Keys) -> OfSome | None:
        """Return what is known of an attribute that only some ranks store, once all its stores are evaluated."""
        stored = self._stored.get((cls.node, name), {})
        if not stored or len(stored) < self._under_conditions(cls)[name]:
            return None
        test = reduce(lambda either, other: keys.make("or", either, other), stored.values())
        return OfSome(name, value, value, test, next(iter(stored))) if test.differs_by & BY_RANK else None

    def _under_conditions(self, cls: ClassRef) -> dict[str, int]:
        if cls.node not in self._attributes:
            self._attributes[cls.node] = stores_under_conditions(cls)
        return self._attributes[cls.node]


def stores_under_conditions(cls: ClassRef) -> dict[str, int]:
    """Return the attributes that methods of a class store only in branches, with the number of these statements.

    None that something else may set: a class above, another object, ``setattr``, or a test whether it is there.
    """
    if any(last_name(base) not in PLAIN_BASES for base in cls.node.bases):
        return {}
    declared = (stmt for stmt in cls.node.body if not isinstance(stmt, FUNCTIONS))
    own = {*cls.methods, *(each.id for stmt in declared for each in walk(stmt) if isinstance(each, ast.Name))}
    counts = _in_branches(cls.node)
    module = cls.module.parsed
    return {
        name: count
        for name, count in counts.items()
        if count == module.stores[name] and name not in own and name not in module.texts
    }


def _in_branches(cls: ast.ClassDef) -> Counter[str]:
    """Return the attributes that methods of a class set on ``self`` in branches, with how many statements do so."""
    counts = Counter[str]()
    pending: list[tuple[ast.AST, bool]] = [(each, False) for each in child_nodes(cls)]
    while pending:
        node, in_branch = pending.pop()
        if isinstance(node, ast.Attribute) and in_branch:
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    counts[name] += 1
                case _:
                    pass
        if not isinstance(node, ast.ClassDef):
            in_branch = in_branch or isinstance(node, ast.If)
            pending += [(each, in_branch) for each in child_nodes(node)]
    return counts
