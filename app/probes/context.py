"""What a probe may know and do: which interpreter, which job, and how far it may go."""

import os
from collections.abc import Callable, Mapping

import msgspec

from ...knowledge.schema import Intrusiveness

LEVELS: tuple[Intrusiveness, ...] = ("reads", "connects", "allocates", "perturbs")

Progress = Callable[[str], None]  # one short line of what is going on


class ProbeContext(msgspec.Struct, kw_only=True):
    """The circumstances of a look. ``environ`` is the shell's unless a running job's pids are given."""

    python: str
    environ: Mapping[str, str] = msgspec.field(default_factory=lambda: dict(os.environ))
    pids: list[int] = []
    ranks: int | None = None  # processes for the live test; None: one per GPU, or 2
    limit_s: float | None = None  # overrides a probe's own limit
    progress: Progress = lambda _line: None


def level_permitted(wanted: Intrusiveness, granted: Intrusiveness) -> bool:
    """Whether a probe of one level may run where another was granted."""
    return LEVELS.index(wanted) <= LEVELS.index(granted)
