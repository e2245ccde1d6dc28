"""Steps that the evaluation of one script may take: counted, so that the same script always ends the same way."""


class OverBudget(Exception):
    """The script needs more steps than are allowed."""


class Budget:
    """The steps that are left."""

    __slots__ = ("_whole", "left")

    def __init__(self, left: int, whole: "Budget | None" = None) -> None:
        self.left, self._whole = left, whole

    def part(self, most: int) -> "Budget":
        """Return a budget of at most ``most`` steps, which this one has to pay as well."""
        return Budget(most, self)

    def spend(self) -> None:
        """Count one step.

        Raises:
            OverBudget: No step is left.
        """
        self.left -= 1
        if self.left < 0:
            raise OverBudget
        if self._whole:
            self._whole.spend()
