"""Orders: sequences that a program sorts, of which each rank may have one of its own."""

import ast
from collections.abc import Sequence

from msgspec.structs import replace

from .amounts import DISTINCT, SHUFFLED
from .calls import CallEvaluator
from .distinct_names import in_order
from .evaluator_state import Named
from .followed import known_functions
from .keys import DIFFERS, LOCAL, Key
from .names import MOST_NESTED
from .values import Either, Value, is_elements

ORDER = "the order of this rank"


class OrderEvaluator(CallEvaluator):
    """Evaluation of sorted sequences in one function."""

    def ordered(self, held: Value, node: ast.Call, named: Named) -> Value:
        """Return a sequence in the order of ``key``, which may be another one on each rank."""
        key = named.get("key")
        if key is None or not node.args:
            return held if named else self._in_order_of_constants(held)
        if key.key.op == "name" and key.key.args[-1] == "id":  # places in the memory of this process
            order = self.keys.make(ORDER, *self.place(node), differs_by=LOCAL)
            return replace(held, key=self.keys.make(SHUFFLED, held.key, order), obj=None)
        outside, self.items = self.items, []  # a key that communicates is called as often on all ranks
        each = ast.copy_location(ast.Call(func=node.func, args=node.args[:1], keywords=[]), node)
        known = known_functions(held)
        if is_elements(known) and 1 < len(known) <= MOST_NESTED:
            found = [self._invoked(key, each, [element], {}).key for element in known]
            ordered = self._in_places(held, node, known, found, named.get("reverse"))
        else:
            made = self._invoked(key, each, [self.element(held, node.args[0])], {}).key
            order = self.keys.make(ORDER, *self.place(node), differs_by=made.differs_by)
            differs = made.differs_by & DIFFERS
            ordered = replace(held, key=self.keys.make(SHUFFLED, held.key, order)) if differs else held
        self.items = outside
        return ordered

    def _in_order_of_constants(self, held: Value) -> Value:
        """Return texts or numbers that are written out, or the names of such a mapping, in their order."""
        if held.key.op == DISTINCT:
            return replace(held, key=in_order(self.keys, held.key))
        known = held.key.args[:: 2 if held.key.op == "mapping" else 1]
        if held.key.op not in ("mapping", "sequence") or not all(each.is_constant for each in known):
            return held
        if len({type(each.value) for each in known}) != 1 or not isinstance(known[0].value, str | int | float):
            return held
        elements = sorted(known, key=lambda each: each.value)
        return Value(self.keys.make("sequence", *elements), held.facts, tuple(Value(each) for each in elements))

    def _in_places(
        self, held: Value, node: ast.Call, elements: Sequence[Value], by: Sequence[Key], reverse: Value | None
    ) -> Value:
        """Return the elements of a sequence in the places that the keys of a rank give them."""
        falls = reverse is not None and reverse.key is self.keys.true
        if not any(each.differs_by & DIFFERS for each in by) or (reverse and not reverse.key.is_constant):
            return held
        at = [self.keys.make("place", number, falls, *by) for number in range(len(elements))]

        def element(place: int, first: int) -> Value:
            if first == len(elements) - 1:
                return elements[first]
            test = self.keys.make("compare", "Eq", at[first], self.keys.constant(place))
            other = element(place, first + 1)
            key = self.keys.make("if", test, elements[first].key, other.key)
            return Value(key, obj=Either(test, elements[first], other, self.site(node)))

        placed = tuple([element(place, 0) for place in range(len(elements))])
        return Value(self.keys.make("sequence", *(each.key for each in placed)), obj=placed)
