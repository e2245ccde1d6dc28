"""Names that only some ranks bind: the others that read them end with a ``NameError``."""

import ast
from typing import NamedTuple

from .function_steps import Noted
from .keys import RANKS, Key, Keys
from .noted_calls import OF_SOME_RANKS
from .sequences import Site
from .values import Value


class OfSome(NamedTuple):
    """A value that a name has only where a condition on the rank holds. ``site``: of the condition.

    ``value`` is an object of its own, by which it is known again; ``assigned`` is what it was made of.
    """

    name: str
    value: Value
    assigned: Value
    test: Key
    site: Site

    def read_at(self, node: ast.Name, site: Site, path: Key, keys: Keys) -> Noted | None:
        """Return a note of a read under the conditions of ``path``, None if no rank without the name comes there."""
        without = keys.make("and", path, keys.make("not", self.test))
        if all(seen.is_constant and not seen.value for seen in (keys.specialise(without, rank) for rank in RANKS)):
            return None
        call = ast.copy_location(ast.Call(node, [], []), node)
        bound = [Value(self.test), Value(keys.constant(self.site.path)), Value(keys.constant(self.site.line))]
        return Noted(OF_SOME_RANKS, site, call, None, bound, {}, self.value)


class NamesOfRanks:
    """The names of a program that only some ranks bind."""

    def __init__(self) -> None:
        self._by_value: dict[int, OfSome] = {}
        self._made: dict[tuple[str, int, Key], OfSome] = {}

    def bound(self, name: str, value: Value, test: Key, site: Site) -> Value:
        """Return the value of a name that is bound only where a test holds, the same one in each round of a loop."""
        if (known := self.of(name, value)) and known.test is test:
            return value
        made = self._made.get((name, id(value), test))
        if made is None:
            made = OfSome(name, value._replace(), value, test, site)
            self._made[name, id(value), test] = self._by_value[id(made.value)] = made
        return made.value

    def of(self, name: str, value: Value) -> OfSome | None:
        """Return what is known of a value if it is that of a name which only some ranks bind."""
        known = self._by_value.get(id(value))
        return known if known and known.name == name else None
