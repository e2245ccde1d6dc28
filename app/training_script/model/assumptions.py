"""Conditions that are assumed to be the same on both ranks of a comparison, and what follows from them."""

from .keys import LOCAL, Key, Keys, View

COMPOUND = {"not", "and", "or", "if"}  # operations whose truth follows from that of their parts
MOST_ASSUMED = 64  # conditions at once, so that a chain of branches takes time in proportion to its length


class Assumptions:
    """Conditions that are the same on both ranks, with the truth that was taken since the ranks diverged.

    Equal ones are one object. ``settled``: conditions as they follow from these.
    """

    __slots__ = ("more", "settled", "truths")

    def __init__(self, truths: dict[Key, bool]) -> None:
        self.truths = truths
        self.settled: dict[Key, Key] = {}
        self.more: dict[tuple[Key, bool], Assumptions] = {}


class AssumptionSets:
    """All sets of assumptions of one comparison."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.nothing = Assumptions({})
        self._known = {frozenset[tuple[Key, bool]](): self.nothing}

    def seen(self, test: Key, view: View, assumed: Assumptions) -> Key:
        """Return a condition as one rank sees it, with what has been assumed."""
        seen = view.key(test)
        return self._settled(seen, assumed) if assumed.truths else seen

    def assume(self, assumed: Assumptions, key: Key, truth: bool) -> Assumptions:
        """Return the assumptions with one more condition, if ranks may agree on it, and at most so many."""
        if key.differs_by & LOCAL or key.is_constant:
            return assumed
        if key.op == "not":
            return self.assume(assumed, key.args[0], not truth)
        if (key.op == "and" and truth) or (key.op == "or" and not truth):
            for arg in key.args:
                assumed = self.assume(assumed, arg, truth)
            return assumed
        more = assumed.more.get((key, truth))
        if more is None:
            truths = {**assumed.truths, key: truth}
            if len(truths) > MOST_ASSUMED:
                del truths[next(iter(truths))]
            same = frozenset(truths.items())
            more = assumed.more[key, truth] = self._known.setdefault(same, Assumptions(truths))
        return more

    def _settled(self, key: Key, assumed: Assumptions) -> Key:
        truth = assumed.truths.get(key)
        if truth is not None:
            return self.keys.true if truth else self.keys.false
        if key.op not in COMPOUND:
            return key
        settled = assumed.settled.get(key)
        if settled is None:
            parts = [self._settled(arg, assumed) for arg in key.args]
            settled = assumed.settled[key] = self.keys.make(key.op, *parts)
        return settled
