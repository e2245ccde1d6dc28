"""The places where ranks of a program do different things: all functions of a script, each pair of ranks."""

from typing import NamedTuple

from .budget import OverBudget
from .comparison import Comparison, Divergence
from .evaluated import Evaluated
from .items import sequence
from .keys import BY_RANK, RANKS
from .sequences import End

PAIRS = ((0, 1), (0, 2), (0, 3), (1, 2))
MOST_COMPARED = 10_000  # nodes of one function, for one pair of ranks


class Divergences(NamedTuple):
    """The divergences of a script. ``complete``: it could be followed to its end within the steps that are allowed."""

    found: list[Divergence]
    complete: bool


def divergences(evaluated: Evaluated) -> Divergences:
    """Return where ranks part in a script and in the functions of it that it does not call itself."""
    found: list[Divergence] = []
    complete = evaluated.complete
    if not complete or evaluated.is_single:
        return Divergences(found, complete)
    try:
        for root in [sequence(root.items, End("return", None)) for root in evaluated.roots]:
            pairs = PAIRS if root.spread & BY_RANK else PAIRS[:1]  # nothing there tells the ranks apart
            for first, second in pairs if root.kinds else ():
                budget = evaluated.budget.part(MOST_COMPARED)
                comparison = Comparison(evaluated.keys, RANKS[first], RANKS[second], budget)
                complete &= comparison.run(root)
                found += [
                    each for each in comparison.found if not any(each.first.site == known.first.site for known in found)
                ]
    except (OverBudget, RecursionError):
        complete = False
    return Divergences(found, complete)
