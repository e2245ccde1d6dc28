"""A number that the job of a lab has printed."""

import msgspec


class Point(msgspec.Struct, frozen=True, array_like=True):
    """A number that a job has printed: of which line of the plot, at which place, and its value."""

    series: str
    place: str
    value: float
