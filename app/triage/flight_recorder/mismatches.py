"""Find the first sequence number of each group under which its ranks made different calls."""

from bisect import bisect_left
from collections import Counter, defaultdict

import msgspec

from .collectives_by_seq import CollectiveTable, GroupKey, RankCalls
from .types import FindingKind

LOOK_AHEAD = 32  # calls after the mismatch that are compared to recognise another order or a skipped call


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """Different calls of one group under the same sequence number.

    ``calling_ranks``: sets of ranks that made the same call, the largest first. ``skipped``: the culprits left out one
    call (1) or made an extra one (-1), and agree with the others after it.
    """

    group: GroupKey
    seq: int
    kind: FindingKind
    calling_ranks: list[list[int]]
    culprits: list[int]
    tied: bool
    at_ns: int
    skipped: int = 0


def find_mismatches(table: CollectiveTable) -> list[Mismatch]:
    """Return the first mismatch of each group, the earliest first."""
    found = [
        each
        for key, calls_by_rank in table.calls_by_rank.items()
        if (each := _first_mismatch(table, key, calls_by_rank))
    ]
    return sorted(found, key=lambda each: (each.at_ns, each.group, each.seq))


def _first_mismatch(table: CollectiveTable, key: GroupKey, calls_by_rank: dict[int, RankCalls]) -> Mismatch | None:
    ranks = sorted(calls_by_rank, key=lambda rank: (-len(calls_by_rank[rank].seqs), rank))
    seq: int | None = None
    classes: list[RankCalls] = []
    for rank in ranks:
        rank_calls = calls_by_rank[rank]
        for known in classes:
            seq_of_pair = _first_difference(known, rank_calls)
            if seq_of_pair is not None:
                seq = seq_of_pair if seq is None else min(seq, seq_of_pair)
            elif known.seqs[0] <= rank_calls.seqs[0] and known.seqs[-1] >= rank_calls.seqs[-1]:
                break
        else:
            classes.append(rank_calls)
    if seq is None:
        return None
    calling_ranks: dict[int, list[int]] = defaultdict(list)
    for rank in sorted(calls_by_rank):
        called = calls_by_rank[rank].signature(seq)
        if called is not None:
            calling_ranks[called].append(rank)
    if len(calling_ranks) < 2:
        return None
    ordered = sorted(calling_ranks.items(), key=lambda item: (-len(item[1]), item[1]))
    most = len(ordered[0][1])
    tied = len(ordered[1][1]) == most
    culprits = sorted(rank for at, (_, callers) in enumerate(ordered) for rank in callers if tied or at)
    one, other = ordered[0][1][0], ordered[1][1][0]
    kind, skipped = _classify(table, key, (one, other), seq)
    at_ns = [
        table.records[rank].created_ns[at]
        for rank in calls_by_rank
        if (at := calls_by_rank[rank].entry(seq)) is not None
    ]
    return Mismatch(
        group=key,
        seq=seq,
        kind=kind,
        calling_ranks=[callers for _, callers in ordered],
        culprits=culprits,
        tied=tied,
        at_ns=min(at_ns),
        skipped=skipped,
    )


def _first_difference(one: RankCalls, other: RankCalls) -> int | None:
    """Return the first common sequence number with different calls, or None."""
    first, last = max(one.seqs[0], other.seqs[0]), min(one.seqs[-1], other.seqs[-1])
    a, b = bisect_left(one.seqs, first), bisect_left(other.seqs, first)
    length = min(last - first + 1, len(one.seqs) - a, len(other.seqs) - b)
    if length <= 0:
        return None
    left, right = one.signatures[a : a + length], other.signatures[b : b + length]
    if left == right and one.seqs[a : a + length] == other.seqs[b : b + length]:
        return None
    calls, other_calls = _by_number(one), _by_number(other)
    return min((seq for seq, called in calls.items() if other_calls.get(seq, called) != called), default=None)


def _by_number(rank_calls: RankCalls) -> dict[int, int]:
    """Return the first signature of each sequence number: parts of a coalesced call share one."""
    return dict(zip(reversed(rank_calls.seqs), reversed(rank_calls.signatures), strict=True))


def _classify(table: CollectiveTable, key: GroupKey, pair: tuple[int, int], seq: int) -> tuple[FindingKind, int]:
    """Return the kind of a mismatch between two ranks, and ``skipped``.

    Calls of one operation at two lines of the script are different calls, whatever their sizes are.
    """
    names = list(table.signatures)
    one, other = (table.calls_by_rank[key][rank] for rank in pair)
    usual, odd = _signatures_from(one, seq), _signatures_from(other, seq)
    (op, sizes, _), (odd_op, odd_sizes, _) = names[usual[0]], names[odd[0]]
    lines = {call.where for rank in pair if (call := table.call_at(rank, key, seq))}
    for length in range(2, min(len(usual), len(odd), LOOK_AHEAD) + 1):
        if Counter(usual[:length]) == Counter(odd[:length]):
            return "order", 0
    if op == odd_op and len(lines) < 2:
        if sizes == odd_sizes:
            return "dtype", 0
        return ("batch" if _is_smaller_batch(table, key, pair, seq) else "size"), 0
    for skipped, left, right in ((1, usual[1:], odd), (-1, usual, odd[1:])):
        length = min(len(left), len(right))
        if length > 1 and left[:length] == right[:length]:
            return "op", skipped
    return "op", 0


def _is_smaller_batch(table: CollectiveTable, key: GroupKey, pair: tuple[int, int], seq: int) -> bool:
    """Return whether one rank's rows are fewer or more than at this line before, where all calls had one shape."""
    calls = [call for rank in pair if (call := table.call_at(rank, key, seq))]
    shapes = [tuple(map(tuple, call.inputs or call.outputs)) for call in calls]
    if len(calls) < 2 or not all(len(shape) == 1 and len(shape[0]) > 1 for shape in shapes):
        return False
    (one,), (other,) = shapes
    before = [table.shapes_before(rank, key, seq, calls[0].where) for rank in pair]
    return one[1:] == other[1:] and before[0] == before[1] and len(before[0]) == 1 and before[0] <= {*shapes}


def _signatures_from(rank_calls: RankCalls, seq: int) -> list[int]:
    at = bisect_left(rank_calls.seqs, seq)
    return rank_calls.signatures[at : at + LOOK_AHEAD]
