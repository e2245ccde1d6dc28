"""A script with everything the rules ask of it, and the shape of what a rule finds."""

from collections.abc import Callable

import msgspec

from ...knowledge.schema import Safety, Severity
from ..training_script.edits import Edit
from ..training_script.names import Names
from ..training_script.rank_conditions import RankConditions
from ..training_script.rank_values import RankValues
from ..training_script.source import ScriptSource


class Script:
    """One parsed file."""

    def __init__(self, text: str, path: str) -> None:
        """Read ``text``.

        Raises:
            UserError: It is no Python.
        """
        self.source = ScriptSource(text, path)
        self.names = Names(self.source)
        self.ranks = RankValues(self.names)
        self.tests = RankConditions(self.ranks)


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """How a rule would mend what it found. Without edits ``why_unsafe`` says why no patch is offered."""

    id: str
    safety: Safety
    why_unsafe: str = ""
    edits: list[Edit] = []


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule found. ``severity`` only where it differs from the rule's own."""

    line: int
    column: int
    end_line: int
    message: str
    confidence: float
    branch: int | None = None
    severity: Severity | None = None
    patch: Patch | None = None


Check = Callable[[Script], list[Violation]]


def no_patch(id_: str, why: str) -> Patch:
    """A fix that a person has to make, and why no patch is offered."""
    return Patch(id=id_, safety="display", why_unsafe=why)
