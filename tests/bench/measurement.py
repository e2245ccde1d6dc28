"""One measured figure, and what makes the planner's honest."""

import sys
from typing import NamedTuple


class Bar(NamedTuple):
    """A figure with its limit; ``peer`` describes what it was measured against."""

    name: str
    figure: float
    limit: float
    unit: str
    peer: str = ""

    @property
    def over(self) -> bool:
        return self.figure > self.limit

    def __str__(self) -> str:
        verdict = "OVER" if self.over else "ok"
        return f"{self.name:<22}{self.figure:>10.3g} {self.unit:<7}limit {self.limit:>7g}   {verdict:<5} {self.peer}"


def forget_plans() -> None:
    """Empty the caches of the planner, so that the next question is computed and not looked up."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("ddpwizard.app.plan", "ddpwizard.app.hardware")):
            for value in vars(module).values():
                if clear := getattr(value, "cache_clear", None):
                    clear()
