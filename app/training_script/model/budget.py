"""Steps that the evaluation of one script may take: counted, so that the same script always ends the same way."""

from collections.abc import Iterator
from contextlib import contextmanager

SHARE = 2  # a call into another file may take half of the steps that are left for such calls


class OverBudget(Exception):
    """The script needs more steps than are allowed."""


class Budget:
    """The steps that are left. ``abroad``: of these, the ones for calls into other files, half if it is not given."""

    __slots__ = ("abroad", "left")

    def __init__(self, left: int, abroad: int | None = None) -> None:
        self.left = left
        self.abroad = left // 2 if abroad is None else abroad

    @contextmanager
    def part(self, most: int) -> "Iterator[Budget]":
        """Give a budget of at most ``most`` of the steps, which this one pays in the end."""
        part = Budget(min(most, self.left))
        before = part.left
        try:
            yield part
        finally:
            self.left -= before - part.left

    @contextmanager
    def part_abroad(self) -> "Iterator[Budget]":
        """Give the budget of a call into another file: what follows the call counts as well."""
        with self.part(min(self.left, self.abroad) // SHARE) as part:
            before = part.left
            try:
                yield part
            finally:
                self.abroad -= before - part.left

    def spend(self) -> None:
        """Count one step.

        Raises:
            OverBudget: No step is left.
        """
        self.left -= 1
        if self.left < 0:
            raise OverBudget
