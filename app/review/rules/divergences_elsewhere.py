"""Divergences that a condition of another file decides, where a script calls the function with it."""

from itertools import takewhile

from ...training_script.model.divergence import Divergence
from ...training_script.model.keys import BY_RANK
from ...training_script.model.sequences import Site
from ..deciding_branch import DecidingBranch
from ..related_places import related_places
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import THERE

CONFIDENCE = 0.7


def violation_elsewhere(script: Script, found: Divergence, deciding: DecidingBranch) -> Violation | None:
    """Return the violation at the call of the script that leads to a condition on the rank in another file.

    None where more than the rank decides, or where the call may not wait for other ranks. The review of the other file
    reports it at its place if it knows the script; the finding here is then left out.
    """
    event = found.first
    if found.by != BY_RANK or found.rounds or found.second or found.decided.path == script.source.path:
        return None
    if not (event.sure and event.wrapped) or event.on_demand or event.kind.startswith("the constructor"):
        return None
    own = [*takewhile(lambda site: site.path == script.source.path, found.calls)]
    if not own or event.site.path == script.source.path:
        return None
    leave = deciding.side == "after"
    if leave and not found.sure:
        return None  # a condition behind it may let all of them pass by
    return Violation(
        line=own[-1].line,
        column_bytes=own[-1].column,
        end_line=own[-1].end_line,
        message=_message(found, deciding),
        confidence=CONFIDENCE,
        severity=None if found.sure and not leave else "warning",
        related=[
            RelatedPlace(path=found.decided.path, line=found.decided.line, message=THERE),
            *related_places(found),
        ],
    )


def _message(found: Divergence, deciding: DecidingBranch) -> str:
    event = f"{found.first.kind} ({_place(found.first.site)})"
    decided = _place(found.decided)
    if deciding.side == "after":
        return f"this leads to {event}, which not all ranks reach: {decided} lets some of them leave before it"
    who, others = deciding.who
    return f"this leads to {event}, which {who} alone reaches: {decided} keeps {others} out"


def _place(site: Site) -> str:
    return f"{site.path.rpartition('/')[2]}:{site.line}"
