"""Numbers that are assumed for what a program does not show, to compare what two ranks compute from them."""

from .keys import DIFFERS, TOUCHED, Key

COUNT_TRIALS = 12
SHORTEST = 24  # a list that the ranks divide has several elements for each
LARGEST = 5  # of other numbers, such as the size of a batch


class AssumedNumbers:
    """One number for each expression that is the same on all ranks and not known, others in each trial.

    ``differs_by``: what makes an expression another one on each rank, so that nothing is assumed of it.
    """

    def __init__(self, trial: int, differs_by: int = DIFFERS | TOUCHED) -> None:
        self._trial, self._differs_by = trial, differs_by
        self._lengths: dict[Key, int] = {}
        self._numbers: dict[Key, int] = {}

    def length(self, key: Key) -> int | None:
        """Return the assumed length of a sequence, None if it may be another one on each rank."""
        if key.is_constant or key.differs_by & self._differs_by:
            return None
        return self._lengths.setdefault(key, SHORTEST + (self._trial * (2 * len(self._lengths) + 1)) % 13)

    def number(self, key: Key) -> int | None:
        """Return the assumed value of a number, None if it may be another one on each rank."""
        if key.is_constant or key.differs_by & self._differs_by:
            return None
        return self._numbers.setdefault(key, 1 + (self._trial + 2 * len(self._numbers)) % LARGEST)

    def truth(self, key: Key) -> bool | None:
        """Return whether a condition is assumed to hold, None if it may on some ranks only."""
        number = self.number(key)
        return None if number is None else number % 2 == 1
