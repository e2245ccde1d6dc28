"""What the records of all ranks say together: what went wrong first, and which ranks are to blame.

A pure function of the records, whatever their order. Who waits for whom is followed to its roots: ranks that others
wait for and that wait for nobody, or that wait for each other.
"""

from collections.abc import Sequence

import msgspec

from ..phrases import ranks_phrase as named
from ..types import RankRecord
from .collectives_by_seq import CollectiveTable
from .findings import OTHERS_FINISHED, THEY_ALONE, FindingBuilder
from .mismatches import find_mismatches
from .types import Finding, RecorderVerdict
from .wait_graph import pending_calls, wait_edges, wait_roots

MOST_FINDINGS = 20


def analyse_records(records: Sequence[RankRecord], *, world_size: int | None = None) -> RecorderVerdict:
    """Who is to blame and why. Ranks that left no record are suspects where others wait for them."""
    board = CollectiveTable(list(records), world_size)
    different = find_mismatches(board)
    standing = pending_calls(board)
    found_waits = wait_edges(board, standing, different)
    told = FindingBuilder(board, standing, different, found_waits)
    first = [finding for root in wait_roots(found_waits) for finding in told.of_root(root)]
    first = _merged(first) or told.without_waiting()
    first = [told.turned(finding) for finding in first]
    rest = told.consequences(first)
    culprits = sorted({rank for finding in first for rank in finding.culprits})
    confidence = min((finding.confidence for finding in first), default=0.0)
    return RecorderVerdict(
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
