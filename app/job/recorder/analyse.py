"""What the records of all ranks say together: what went wrong first, and which ranks are to blame.

A pure function of the records, whatever their order. Who waits for whom is followed to its roots: ranks that others
wait for and that wait for nobody, or that wait for each other.
"""

from collections.abc import Sequence

import msgspec

from ..words import ranks as named
from .board import Board
from .differ import differences
from .told import OTHERS_FINISHED, THEY_ALONE, Told
from .types import Finding, RankRecord, Recorded
from .waits import knots, pending, waits

MOST_FINDINGS = 20


def analyse(records: Sequence[RankRecord], *, world_size: int | None = None) -> Recorded:
    """Who is to blame and why. Ranks that left no record are suspects where others wait for them."""
    board = Board(list(records), world_size)
    different = differences(board)
    standing = pending(board)
    found_waits = waits(board, standing, different)
    told = Told(board, standing, different, found_waits)
    first = [finding for root in knots(found_waits) for finding in told.of_root(root)]
    first = _merged(first) or told.without_waiting()
    first = [told.turned(finding) for finding in first]
    rest = told.consequences(first)
    culprits = sorted({rank for finding in first for rank in finding.culprits})
    confidence = min((finding.confidence for finding in first), default=0.0)
    return Recorded(
        culprits=culprits,
        findings=(first + rest)[:MOST_FINDINGS],
        confidence=confidence,
        world_size=board.world_size,
        silent=board.silent,
    )


def _merged(findings: list[Finding]) -> list[Finding]:
    """Findings about the same call together, the earliest first."""
    together: dict[tuple[str, str, str, int | None], Finding] = {}
    for each in sorted(findings, key=lambda each: (each.at_ns, each.culprits)):
        key = (each.kind, each.group, each.group_name, each.seq)
        known = together.get(key)
        if known is None:
            together[key] = each
        elif known.culprits != each.culprits:
            culprits = sorted({*known.culprits, *each.culprits})
            waiting = [side for side in known.sides if side.collective]
            absent = [side for side in (*known.sides, *each.sides) if not side.collective]
            who = sorted({rank for side in waiting for rank in side.ranks})
            words = (
                f"{named(who, 'wait')} in {known.collective} (number {known.seq} of {known.group}). "
                f"{named(culprits, 'have')} not entered it."
                + (THEY_ALONE if {known.words[-20:], each.words[-20:]} == {OTHERS_FINISHED[-20:]} else "")
                if known.kind == "missing"
                else f"{known.words} {each.words}"
            )
            together[key] = msgspec.structs.replace(known, culprits=culprits, sides=waiting + absent, words=words)
    return list(together.values())
