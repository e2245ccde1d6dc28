"""The places where ranks of a program do different things: all functions of a script, each pair of ranks."""

from collections.abc import Iterator
from typing import NamedTuple

from .budget import Budget, OverBudget
from .comparison import Comparison
from .divergence import Divergence
from .evaluated import Evaluated
from .function_steps import sequence
from .keys import LOCAL, RANKS, Key, Keys
from .sequences import End, Node, Site, tests_of_ranks

PAIRS = ((0, 1), (0, 2), (0, 3), (1, 2))
MOST_COMPARED = 20_000  # nodes of one function, for one pair of ranks
MOST_STEPS = 100_000  # nodes of a script


class Divergences(NamedTuple):
    """The divergences of a script. ``complete``: it could be followed to its end within the steps that are allowed."""

    found: list[Divergence]
    complete: bool


def divergences(evaluated: Evaluated) -> Divergences:
    """Return where ranks part in a script and in the functions of it that it does not call itself."""
    found: list[Divergence] = []
    sites = set[Site]()
    if not evaluated.complete or evaluated.is_single:
        return Divergences(found, evaluated.complete)
    complete, steps = not evaluated.is_cut, Budget(MOST_STEPS)
    try:
        for root in [sequence(root.items, End("return", None)) for root in evaluated.roots]:
            for first, second in _pairs(root, evaluated.keys) if root.kinds else ():
                with steps.part(MOST_COMPARED) as budget:
                    comparison = Comparison(evaluated.keys, RANKS[first], RANKS[second], budget)
                    complete &= comparison.run(root)
                found += [each for each in comparison.found if each.first.site not in sites]
                sites.update(each.first.site for each in comparison.found)
    except (OverBudget, RecursionError):
        complete = False
    return Divergences(found, complete)


def _pairs(root: Node, keys: Keys) -> Iterator[tuple[int, int]]:
    """Yield the pairs of ranks to compare: one of those that see the same conditions, and may part there."""
    tests = tests_of_ranks(root)
    seen = [tuple([keys.view(rank).key(test) for test in tests]) for rank in RANKS]
    compared: set[tuple[tuple[Key, ...], tuple[Key, ...]]] = set()
    for first, second in PAIRS:
        pair = seen[first], seen[second]
        if pair not in compared and (seen[first] != seen[second] or root.differs_by & LOCAL):
            compared.add(pair)
            yield first, second
