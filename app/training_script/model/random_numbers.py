"""Random numbers: whether all ranks draw the same, by the seeds that the program has set, and orders made of them."""

import ast

from .amounts import SHUFFLED, SPLIT
from .evaluator_state import Named, Values
from .iterables import IterableEvaluator
from .keys import BY_RANK, DIFFERS, LOCAL, ORDERS, TOUCHED, Key
from .library_calls import GENERATORS, LOCAL_RESULTS, RANDOM, RANDOM_TENSORS, SEEDS, SHUFFLES
from .names import ALIKE, CARRIED
from .values import NO_FACTS, Value

SPLITS = ("torch.utils.data.random_split", "torch.utils.data.dataset.random_split")


class RandomEvaluator(IterableEvaluator):
    """Calls of the functions that draw random numbers."""

    def drawn(self, name: str, node: ast.Call, values: Values, named: Named) -> Value | None:
        """Return what a call draws, or the generator that it makes or seeds; None if it is another call or no key."""
        if LOCAL_RESULTS.get(name) == RANDOM:
            return self.unknown(node) if self._is_drawn_alike(name) else self._own(node)
        if name in GENERATORS and (not values or values[0].key.differs_by & DIFFERS):
            return self._own(node)
        if name in GENERATORS and values[0].key is not self.keys.none:
            return self.unknown(node, *values, facts=ALIKE)
        if name in SEEDS and values:
            by_rank = values[0].key.differs_by & BY_RANK
            change = set.add if by_rank else set.discard
            change(self.shared.seeded_by_rank, SEEDS[name])
            self.shared.seeded_alike |= set() if by_rank else {SEEDS[name]}
        if name in SHUFFLES and node.args and not self._is_drawn_alike(name):
            order = self.keys.make("at", *self.place(node), differs_by=TOUCHED)  # a seed may be set elsewhere
            self.rebind(node.args[0], values[0], [Value(order)], SHUFFLED)
            return self.constant(None)
        if name in SPLITS and len(values) > 1:
            return self._split(node, values, named)
        if name in RANDOM_TENSORS or name in ORDERS:
            return self._tensor(name, node, values, named)
        return None

    def permuted(self, generator: Value, node: ast.Call, values: Values) -> Value:
        """Return a sequence in the order that a generator draws: the same on all ranks if the generator is."""
        place = self.keys.make("at", *self.place(node), differs_by=generator.key.differs_by & LOCAL)
        return Value(self.keys.make("call", "numpy.random.permutation", values[0].key, place), generator.facts & ALIKE)

    def _own(self, node: ast.AST, *shape: Key) -> Value:
        return Value(self.keys.local(RANDOM, *self.site(node)[:3], *shape))

    def _tensor(self, name: str, node: ast.Call, values: Values, named: Named) -> Value | None:
        """Return a tensor of random numbers of this rank; None if it is the same on all."""
        if not self._is_own(name, named.get("generator")):
            return None
        if name in ORDERS and values:
            return Value(self.keys.make("call", name, *(each.key for each in values), differs_by=LOCAL))
        place = 2 if name == "torch.randint" and len(values) > 2 else 0
        shape = (values[place].key,) if values else ()
        return self._own(node, *map(_first, shape))

    def _is_own(self, name: str, generator: Value | None) -> bool:
        """Return whether each rank draws other numbers: of an order also where nothing seeds it."""
        if generator is not None and generator.key is not self.keys.none:
            return bool(generator.key.differs_by & LOCAL)
        if name.partition(".")[0] in self.shared.seeded_by_rank:
            return True
        return (name in ORDERS or name in SPLITS) and not self._is_drawn_alike(name)

    def _split(self, node: ast.Call, values: Values, named: Named) -> Value | None:
        """Return the parts of a split, each with its length: the same on all ranks if they draw it alike."""
        lengths = values[1].key
        if lengths.op != "sequence":
            return None
        generator = named.get("generator") or (values[2] if len(values) > 2 else None)
        own = LOCAL if self._is_own(SPLITS[0], generator) else 0
        made = [
            Value(
                self.keys.make(SPLIT, *self.place(node), number, values[0].key, length, differs_by=own),
                values[0].facts & CARRIED,
            )
            for number, length in enumerate(lengths.args)
        ]
        return Value(self.keys.make("sequence", *(each.key for each in made)), NO_FACTS, tuple(made))

    def _is_drawn_alike(self, name: str) -> bool:
        """Return whether all ranks have the same random numbers in the module of a function."""
        module, shared = name.partition(".")[0], self.shared
        if not shared.seeded or module in shared.seeded_by_rank:
            return False
        return module in shared.seeded_alike or not shared.seeded_alike or shared.seeds_several


def _first(shape: Key) -> Key:
    """Return the first number of the shape of a tensor."""
    return shape.args[0] if shape.op == "sequence" and shape.args else shape
