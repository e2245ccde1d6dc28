"""Compare the records of all ranks: find what went wrong first, and which ranks are the culprits.

A pure function of the records; their order does not matter. The wait-for graph is followed to its roots: ranks that
others wait for and that wait for nobody, or that wait for each other.
"""

from collections.abc import Sequence

import msgspec

from ..phrases import ranks_phrase as named
from ..types import RankRecord
from .collectives_by_seq import CollectiveTable
from .findings import OTHERS_FINISHED, OTHERS_FINISHED_PLURAL, FindingBuilder
from .mismatches import find_mismatches
from .types import Finding, FindingKind, RecorderVerdict
from .wait_graph import pending_calls, wait_edges, wait_roots

MOST_FINDINGS = 20
NO_CALL_YET = ": they have made no call yet"
# What ranks that others wait for have not done, by the kind of finding: verb and rest of a sentence.
ABSENT: dict[FindingKind, tuple[str, str]] = {
    "missing": ("have", "not entered it."),
    "first_call": ("have", "not entered it: they have made no call yet."),
    "silent": ("have", "left no record and may never have entered it."),
}
ALONE = (OTHERS_FINISHED, OTHERS_FINISHED_PLURAL)


def analyse_records(records: Sequence[RankRecord], *, world_size: int | None = None) -> RecorderVerdict:
    """Return the culprits and the findings. Ranks that left no record are suspects if others wait for them."""
    table = CollectiveTable(list(records), world_size)
    mismatches = find_mismatches(table)
    pending_by_rank = pending_calls(table)
    waits = wait_edges(table, pending_by_rank, mismatches)
    builder = FindingBuilder(table, pending_by_rank, mismatches, waits)
    first = [finding for root in wait_roots(waits) for finding in builder.findings_of_root(root)]
    first = _merge_findings([*first, *builder.stuck_findings(first)]) or builder.findings_without_edges()
    first = [builder.culprits_of_minority(finding) for finding in first]
    rest = builder.consequences(first)
    culprits = sorted({rank for finding in first for rank in finding.culprits})
    confidence = min((finding.confidence for finding in first), default=0.0)
    return RecorderVerdict(
        culprits=culprits,
        findings=(first + rest)[:MOST_FINDINGS],
        confidence=confidence,
        world_size=table.world_size,
        silent=table.silent,
    )


def _merge_findings(findings: list[Finding]) -> list[Finding]:
    """Merge the findings about the same call, the earliest first."""
    merged: dict[tuple[str, str, str, int | None], Finding] = {}
    for each in sorted(findings, key=lambda each: (each.at_ns, each.culprits)):
        key = (each.kind, each.group, each.group_name, each.seq)
        known = merged.get(key)
        if known is None:
            merged[key] = each
        elif known.culprits != each.culprits:
            culprits = sorted({*known.culprits, *each.culprits})
            waiting = [side for side in known.sides if side.collective]
            absent = [side for side in (*known.sides, *each.sides) if not side.collective]
            entered = sorted({rank for side in waiting for rank in side.ranks})
            words = f"{known.words} {each.words}"
            if known.kind in ABSENT:
                words = f"{named(entered, 'wait')} in {known.collective} (number {known.seq} of {known.group}). "
                words += f"{named(culprits, ABSENT[known.kind][0])} {ABSENT[known.kind][1]}"
                if known.words.endswith(ALONE) and each.words.endswith(ALONE):
                    words += OTHERS_FINISHED_PLURAL
            merged[key] = msgspec.structs.replace(known, culprits=culprits, sides=waiting + absent, words=words)
    return list(merged.values())
