"""Where ranks of a group called different things under the same sequence number: the first such place."""

from bisect import bisect_left
from collections import Counter, defaultdict

import msgspec

from .collectives_by_seq import CollectiveTable, GroupKey, RankCalls
from .types import FindingKind

LOOK_AHEAD = 32  # calls within which another order or a skipped call is recognised


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """``parties``: ranks that did the same, the largest first. ``skipped``: the culprits left out a call (1) or made
    one more (-1), and go on like the others after it."""

    group: GroupKey
    seq: int
    kind: FindingKind
    parties: list[list[int]]
    culprits: list[int]
    tied: bool
    at_ns: int
    skipped: int = 0


def find_mismatches(board: CollectiveTable) -> list[Mismatch]:
    """The first difference of each group, the earliest first."""
    found = [each for key, lanes in board.lanes.items() if (each := _first(board, key, lanes))]
    return sorted(found, key=lambda each: (each.at_ns, each.group, each.seq))


def _first(board: CollectiveTable, key: GroupKey, lanes: dict[int, RankCalls]) -> Mismatch | None:
    ranks = sorted(lanes, key=lambda rank: (-len(lanes[rank].seqs), rank))
    seq: int | None = None
    classes: list[RankCalls] = []
    for rank in ranks:
        lane = lanes[rank]
        for known in classes:
            differs = _differ(known, lane)
            if differs is not None:
                seq = differs if seq is None else min(seq, differs)
            elif known.seqs[0] <= lane.seqs[0] and known.seqs[-1] >= lane.seqs[-1]:
                break
        else:
            classes.append(lane)
    if seq is None:
        return None
    parties: dict[int, list[int]] = defaultdict(list)
    for rank in sorted(lanes):
        called = lanes[rank].signature(seq)
        if called is not None:
            parties[called].append(rank)
    if len(parties) < 2:
        return None
    ordered = sorted(parties.items(), key=lambda item: (-len(item[1]), item[1]))
    most = len(ordered[0][1])
    tied = len(ordered[1][1]) == most
    culprits = sorted(rank for at, (_, party) in enumerate(ordered) for rank in party if tied or at)
    one, other = lanes[ordered[0][1][0]], lanes[ordered[1][1][0]]
    kind, skipped = _kind(board, one, other, seq)
    at_ns = [board.records[rank].created_ns[at] for rank in lanes if (at := lanes[rank].entry(seq)) is not None]
    return Mismatch(
        group=key,
        seq=seq,
        kind=kind,
        parties=[party for _, party in ordered],
        culprits=culprits,
        tied=tied,
        at_ns=min(at_ns),
        skipped=skipped,
    )


def _differ(one: RankCalls, other: RankCalls) -> int | None:
    """The first sequence number both have and under which they called different things."""
    first, last = max(one.seqs[0], other.seqs[0]), min(one.seqs[-1], other.seqs[-1])
    a, b = bisect_left(one.seqs, first), bisect_left(other.seqs, first)
    length = min(last - first + 1, len(one.seqs) - a, len(other.seqs) - b)
    if length <= 0:
        return None
    left, right = one.signatures[a : a + length], other.signatures[b : b + length]
    if left == right and one.seqs[a : a + length] == other.seqs[b : b + length]:
        return None
    theirs, mine = _by_number(other), _by_number(one)
    return min((seq for seq, called in mine.items() if theirs.get(seq, called) != called), default=None)


def _by_number(lane: RankCalls) -> dict[int, int]:
    """The first of several under one number, as parts of a coalesced call are."""
    return dict(zip(reversed(lane.seqs), reversed(lane.signatures), strict=True))


def _kind(board: CollectiveTable, one: RankCalls, other: RankCalls, seq: int) -> tuple[FindingKind, int]:
    names = list(board.signatures)
    usual, odd = _from(one, seq), _from(other, seq)
    (op, sizes, _), (odd_op, odd_sizes, _) = names[usual[0]], names[odd[0]]
    for length in range(2, min(len(usual), len(odd), LOOK_AHEAD) + 1):
        if Counter(usual[:length]) == Counter(odd[:length]):
            return "order", 0
    if op == odd_op:
        return ("size" if sizes != odd_sizes else "dtype"), 0
    for skipped, left, right in ((1, usual[1:], odd), (-1, usual, odd[1:])):
        length = min(len(left), len(right))
        if length > 1 and left[:length] == right[:length]:
            return "op", skipped
    return "op", 0


def _from(lane: RankCalls, seq: int) -> list[int]:
    at = bisect_left(lane.seqs, seq)
    return lane.signatures[at : at + LOOK_AHEAD]
