"""A rank of a small job, for which numbers and lengths are computed."""

from typing import NamedTuple

from .assumed_numbers import AssumedNumbers


class Member(NamedTuple):
    """A rank of a small job. ``side``: the side that conditions take which are not known, None for neither.

    ``counter``: the number of the round, in the loops that count. ``counters``: those of several loops, by the file
    and the line of each. ``worker``: which of the ``workers`` of a loader reads. ``assumed``: numbers for what is not
    known, None to leave it so.
    """

    rank: int
    world_size: int = 2
    side: bool | None = None
    counter: int | None = None
    counters: "tuple[tuple[str, int, int], ...] | None" = None
    worker: int = 0
    workers: int = 1
    assumed: AssumedNumbers | None = None


PAIR = Member(0), Member(1)
