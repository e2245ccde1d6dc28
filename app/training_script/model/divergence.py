"""A place where two ranks part."""

from typing import Literal, NamedTuple

from .sequences import Event, Site


class Divergence(NamedTuple):
    """Two ranks that do different things. ``first`` is the event of one of them, ``second`` that of the other or None.

    ``ranks``: the rank with ``first``, and the other.

    ``decided``: the condition or loop at which they part; ``by``: BY_RANK, LOCAL or both. ``calls``: where functions
    were called on the way, outermost first. ``rounds``: they run a loop a different number of times, by its count or
    because one leaves it. ``leaves``: the rank without the event leaves the function or the program there.
    ``sure``: the event is reached whatever further conditions decide.
    """

    first: Event
    second: Event | None
    decided: Site
    by: int
    calls: tuple[Site, ...]
    ranks: tuple[int, int]
    rounds: Literal["", "count", "left"] = ""
    leaves: Site | None = None
    sure: bool = True
