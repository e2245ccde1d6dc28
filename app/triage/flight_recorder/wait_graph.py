"""Who waits for whom: for every call that is not done, the ranks it cannot go on without, and the cycles in that."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

import msgspec

from .collectives_by_seq import CollectiveTable, GroupKey
from .mismatches import Mismatch

Why = Literal["missing", "silent", "differs", "behind", "p2p"]
SEND = re.compile(r"^send (\d{1,7})->(\d{1,7})$")
RECV = re.compile(r"^recv (\d{1,7})<-(\d{1,7})$")


class WaitEdge(msgspec.Struct, frozen=True):
    """``rank`` stands in ``entry`` of its record and cannot go on without ``missing``."""

    rank: int
    group: GroupKey
    seq: int
    entry: int
    for_ranks: tuple[int, ...]
    why: Why


class PendingCalls(msgspec.Struct, frozen=True):
    """What a rank stands in: its first call that is not done, and the first in each group (group, sequence, entry)."""

    first: int | None
    in_groups: dict[GroupKey, tuple[int, int]]


def pending_calls(board: CollectiveTable) -> dict[int, PendingCalls]:
    """Of every rank. Gloo tells a call done that failed with a time-out, so there a call counts as open while a rank
    that must take part has not entered it."""
    found: dict[int, PendingCalls] = {}
    for rank, record in board.records.items():
        in_groups: dict[GroupKey, tuple[int, int]] = {}
        for at in record.pending:
            call = record.calls[record.call[at]]
            if not call.p2p:
                in_groups.setdefault(board.keys[rank][call.group], (record.seq[at], at))
        if record.backend == "gloo":
            for key in board.keys[rank]:
                if (alone := _entered_alone(board, rank, key)) and alone < in_groups.get(key, (alone[0] + 1, 0)):
                    in_groups[key] = alone
        first = min([at for _, at in in_groups.values()] + [*record.pending][:1], default=None)
        found[rank] = PendingCalls(first, in_groups)
    return found


def _entered_alone(board: CollectiveTable, rank: int, key: GroupKey) -> tuple[int, int] | None:
    """The first call (sequence, entry) a rank has entered and some other of the group that left a record has not."""
    lane = board.lanes[key].get(rank)
    if not lane:
        return None
    at = bisect_right(lane.seqs, board.least(key))
    return (lane.seqs[at], lane.entries[at]) if at < len(lane.seqs) else None


def wait_edges(
    board: CollectiveTable, standing: dict[int, PendingCalls], different: Iterable[Mismatch]
) -> list[WaitEdge]:
    """Every wait for ranks that are known to be elsewhere."""
    differs = {each.group: each for each in different}
    found: list[WaitEdge] = []
    busy: dict[tuple[GroupKey, int], tuple[int, ...]] = {}
    for rank, stand in standing.items():
        for key, (seq, at) in stand.in_groups.items():
            difference = differs.get(key)
            if difference and seq >= difference.seq:
                found += _for_others(rank, key, seq, at, difference)
            else:
                if at == stand.first and (key, seq) not in busy:
                    busy[key, seq] = _stand_before(board, standing, key, seq)
                found += _for_members(board, busy, stand.first, (rank, key, seq, at))
        found += _for_partners(board, standing, rank)
    return found


def _for_others(rank: int, key: GroupKey, seq: int, at: int, difference: Mismatch) -> list[WaitEdge]:
    """Those that did what most did wait for the others; tied ranks each for the next, which ties them together."""
    culprits = difference.culprits
    if rank not in culprits:
        return [WaitEdge(rank, key, seq, at, tuple(culprits), "differs")]
    if difference.tied:
        return [WaitEdge(rank, key, seq, at, (culprits[(culprits.index(rank) + 1) % len(culprits)],), "differs")]
    return []


def _for_members(
    board: CollectiveTable,
    busy: dict[tuple[GroupKey, int], tuple[int, ...]],
    first: int | None,
    wait: tuple[int, GroupKey, int, int],
) -> list[WaitEdge]:
    """``busy`` keeps, per call, the ranks that have entered it but stand in an earlier one that must end first."""
    rank, key, seq, at = wait
    if absent := board.absent(key, seq):
        return [WaitEdge(rank, key, seq, at, absent, "missing")]
    silent = tuple(member for member in board.members[key] if member not in board.records) if board.silent else ()
    if silent and not board.finished(key, seq):  # what one has finished, all have entered
        return [WaitEdge(rank, key, seq, at, silent, "silent")]
    found = _for_laggards(board, rank, key)
    if at == first and (before := tuple(member for member in busy[key, seq] if member != rank)):
        found.append(WaitEdge(rank, key, seq, at, before, "behind"))
    return found


def _for_laggards(board: CollectiveTable, rank: int, key: GroupKey) -> list[WaitEdge]:
    """All have entered the first open call, but not all those that came after it: who stopped first is suspect."""
    lane = board.lanes[key][rank]
    at = bisect_right(lane.seqs, board.least(key))
    if at == len(lane.seqs):
        return []
    return [WaitEdge(rank, key, lane.seqs[at], lane.entries[at], board.absent(key, lane.seqs[at]), "missing")]


def _stand_before(
    board: CollectiveTable, standing: dict[int, PendingCalls], key: GroupKey, seq: int
) -> tuple[int, ...]:
    found: list[int] = []
    for member in board.recorded(key):
        lane, first = board.lanes[key].get(member), standing[member].first
        at = lane.entry(seq) if lane else None
        if at is not None and first is not None and first < at and not board.done(member, key, seq):
            found.append(member)
    return tuple(found)


def _for_partners(board: CollectiveTable, standing: dict[int, PendingCalls], rank: int) -> list[WaitEdge]:
    """Point-to-point calls that are not done, the first with each partner in each direction."""
    found: list[WaitEdge] = []
    for (key, partner, sends), entries in _open_pairs(board, rank).items():
        at, seq = entries[0], board.records[rank].seq[entries[0]]
        if partner not in board.records:
            found.append(WaitEdge(rank, key, seq, at, (partner,), "silent"))
            continue
        theirs = _open_pairs(board, partner).get((key, rank, not sends), [])
        if len(board.members[key]) == 2:
            absent = not _answers(board, partner, key, seq, not sends)
        else:
            absent = len(theirs) < len(entries)
        first = standing[partner].first
        if absent:
            found.append(WaitEdge(rank, key, seq, at, (partner,), "p2p"))
        elif at == standing[rank].first and theirs and first is not None and first < theirs[0]:
            found.append(WaitEdge(rank, key, seq, at, (partner,), "behind"))
    return found


def _open_pairs(board: CollectiveTable, rank: int) -> dict[tuple[GroupKey, int, bool], list[int]]:
    """Entries that are not done by group, partner (as a rank of the job) and whether they send."""
    record = board.records[rank]
    found: dict[tuple[GroupKey, int, bool], list[int]] = defaultdict(list)
    for at in board.p2p[rank]:
        if record.states[at] == "d":
            continue
        call = record.calls[record.call[at]]
        key, sends = board.keys[rank][call.group], call.op.startswith("send")
        match = SEND.match(call.op) or RECV.match(call.op)
        members = board.members[key]
        if match and (number := int(match[2])) < len(members):
            found[key, members[number], sends].append(at)
    return found


def _answers(board: CollectiveTable, rank: int, key: GroupKey, seq: int, sends: bool) -> bool:
    """Whether a rank of a group of two has entered its half of the other's point-to-point call."""
    record = board.records[rank]
    mine = [at for at in board.p2p[rank] if board.keys[rank][board.call(rank, at).group] == key]
    if same := [at for at in mine if record.seq[at] == seq]:
        return any(board.call(rank, at).op.startswith("send") == sends for at in same)
    enqueued = record.groups[board.keys[rank].index(key)].enqueued if key in board.keys[rank] else None
    last = record.seq[mine[-1]] if mine else enqueued
    return last is not None and last >= seq


def wait_roots(waits: list[WaitEdge]) -> list[list[int]]:
    """Return the root causes of all waiting: single ranks, or ranks that wait for each other, that others wait for and
    that wait for nobody outside.

    These are the attracting components of the wait-for graph. A node for each distinct set of awaited ranks keeps the
    graph linear in the number of ranks where half a group waits for the other half.
    """
    awaited = {rank for wait in waits for rank in wait.for_ranks}
    if awaited.isdisjoint(wait.rank for wait in waits):
        return [[rank] for rank in sorted(awaited)]
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_edges_from((wait.rank, wait.for_ranks) for wait in waits if wait.for_ranks)
    graph.add_edges_from((ranks, rank) for ranks in {wait.for_ranks for wait in waits} for rank in ranks)
    return sorted(sorted(awaited & component) for component in nx.attracting_components(graph))
