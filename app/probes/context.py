"""Context of a probe: the target interpreter, the job, and the permitted level of intrusiveness."""

import os
from collections.abc import Callable, Mapping

import msgspec

from ...knowledge.schema import Intrusiveness

LEVELS: tuple[Intrusiveness, ...] = ("reads", "connects", "allocates", "perturbs")

Progress = Callable[[str], None]  # receives one short line of progress


class ProbeContext(msgspec.Struct, kw_only=True):
    """Context passed to every probe. With ``pids`` the probes inspect that job instead of the shell."""

    python: str
    environ: Mapping[str, str] = msgspec.field(default_factory=lambda: dict(os.environ))
    pids: list[int] = []
    ranks: int | None = None  # processes for the live test; None: one per GPU, or 2
    progress: Progress = lambda _line: None


def level_permitted(wanted: Intrusiveness, granted: Intrusiveness) -> bool:
    """Return whether a probe that needs ``wanted`` may run if ``granted`` is permitted."""
    return LEVELS.index(wanted) <= LEVELS.index(granted)
