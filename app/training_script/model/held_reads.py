"""Attributes that functions read before the program made them data of one rank: such functions are evaluated again."""

from typing import NamedTuple


class Held(NamedTuple):
    """An attribute of the objects of a class, by the identity of the class."""

    cls: int
    name: str


class HeldReads:
    """Reads of attributes by the functions under evaluation, while their values were not known."""

    def __init__(self) -> None:
        self._reading: list[set[Held]] = [set()]
        self._local: set[Held] = set()

    def begin(self) -> None:
        """Begin the evaluation of a function."""
        self._reading.append(set())

    def end(self) -> frozenset[Held]:
        """Return what the function, with all that it calls, has read; those around it have read the same."""
        read = self._reading.pop()
        self._reading[-1] |= read
        return frozenset(read)

    def read(self, cls: object, name: str) -> None:
        """Note that an attribute is read of which the value is not known."""
        self._reading[-1].add(Held(id(cls), name))

    def becomes_local(self, cls: object, name: str) -> None:
        """Note that data of one rank decide an attribute from here on."""
        self._local.add(Held(id(cls), name))

    def are_as_read(self, held: frozenset[Held]) -> bool:
        """Return whether what was read before is still all that is known; it is read again then."""
        self._reading[-1] |= held
        return self._local.isdisjoint(held)
