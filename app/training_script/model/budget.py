"""Steps that the evaluation of one script may take: counted, so that the same script always ends the same way."""


class OverBudget(Exception):
    """The script needs more steps than are allowed."""


class Budget:
    """The steps that are left."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self) -> None:
        """Count one step.

        Raises:
            OverBudget: No step is left.
        """
        self.left -= 1
        if self.left < 0:
            raise OverBudget
