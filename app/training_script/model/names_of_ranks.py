"""Names that only some ranks bind: the others that read them end with a ``NameError``."""

import ast
from typing import NamedTuple

from .function_steps import Noted
from .keys import RANKS, Key, Keys
from .noted_calls import OF_SOME_RANKS
from .sequences import Site
from .values import Value


class OfSome(NamedTuple):
    """A value that a name has only where a condition on the rank holds. ``site``: of the condition."""

    name: str
    value: Value
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
