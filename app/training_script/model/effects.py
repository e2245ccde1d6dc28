"""The effect of a call of a library on what concerns other ranks."""

from typing import NamedTuple


class Effect(NamedTuple):
    """The effect of a call. ``event``: what all ranks have to call together. ``result``: facts of what it returns.

    ``same``: the result is the same on every rank. ``fills``: place of the argument that is the same afterwards.
    ``implied``: the call does not look like a collective. ``sure``: it always communicates.
    """

    event: str = ""
    result: frozenset[str] = frozenset()
    same: bool = False
    fills: int | None = None
    group: int | None = None
    implied: bool = False
    sure: bool = True
    drops: bool = False  # the result has none of the facts of the object
    of_sharded: bool = False  # it communicates only for a sharded model
    only_with: str = ""  # the argument that has to be True for the event


def facts(*names: str) -> frozenset[str]:
    """Return what is known of a value, as a set."""
    return frozenset(names)
