"""Steps that the evaluation of one script may take: counted, so that the same script always ends the same way."""

from collections.abc import Iterator
from contextlib import contextmanager

SHARE = 2  # a call into another file may take half of the steps that are left: what follows it counts as well


class OverBudget(Exception):
    """The script needs more steps than are allowed."""


class Budget:
    """The steps that are left."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    @contextmanager
    def part(self, most: int) -> "Iterator[Budget]":
        """Give a budget of at most ``most`` of the steps, which this one pays in the end."""
        part = Budget(min(most, self.left))
        before = part.left
        try:
            yield part
        finally:
            self.left -= before - part.left

    def spend(self) -> None:
        """Count one step.

        Raises:
            OverBudget: No step is left.
        """
        self.left -= 1
        if self.left < 0:
            raise OverBudget
