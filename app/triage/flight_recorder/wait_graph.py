"""The wait-for graph between ranks: for each call that is not done, the ranks it waits for, and its roots."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

import msgspec

from .collectives_by_seq import CollectiveTable, GroupKey
from .mismatches import Mismatch

Reason = Literal["missing", "silent", "differs", "behind", "p2p"]
SEND = re.compile(r"^send (\d{1,7})->(\d{1,7})$")
RECV = re.compile(r"^recv (\d{1,7})<-(\d{1,7})$")


class WaitEdge(msgspec.Struct, frozen=True):
    """``rank`` is in ``entry`` of its record and cannot continue without ``for_ranks``."""

    rank: int
    group: GroupKey
    seq: int
    entry: int
    for_ranks: tuple[int, ...]
    reason: Reason


class PendingCalls(msgspec.Struct, frozen=True):
    """The first call of a rank that is not done, and the first one of each group: (sequence number, entry)."""

    first: int | None
    in_groups: dict[GroupKey, tuple[int, int]]


def pending_calls(table: CollectiveTable) -> dict[int, PendingCalls]:
    """Return the pending calls of each rank.

    Gloo records a call that timed out as completed. A gloo call therefore counts as pending while a participating rank
    has not entered it.
    """
    found: dict[int, PendingCalls] = {}
    for rank, record in table.records.items():
        in_groups: dict[GroupKey, tuple[int, int]] = {}
        for at in record.pending:
            call = record.calls[record.call[at]]
            if not call.p2p:
                in_groups.setdefault(table.keys[rank][call.group], (record.seq[at], at))
        if record.backend == "gloo":
            for key in table.keys[rank]:
                if (alone := _first_not_common(table, rank, key)) and alone < in_groups.get(key, (alone[0] + 1, 0)):
                    in_groups[key] = alone
        first = min([at for _, at in in_groups.values()] + [*record.pending][:1], default=None)
        found[rank] = PendingCalls(first, in_groups)
    return found


def _first_not_common(table: CollectiveTable, rank: int, key: GroupKey) -> tuple[int, int] | None:
    """Return the first call (sequence number, entry) of a rank that another rank with a record has not entered."""
    rank_calls = table.calls_by_rank[key].get(rank)
    if not rank_calls:
        return None
    at = bisect_right(rank_calls.seqs, table.last_common_seq(key))
    return (rank_calls.seqs[at], rank_calls.entries[at]) if at < len(rank_calls.seqs) else None


def wait_edges(
    table: CollectiveTable, pending_by_rank: dict[int, PendingCalls], mismatches: Iterable[Mismatch]
) -> list[WaitEdge]:
    """Return every wait for ranks that are known to be elsewhere."""
    differs = {each.group: each for each in mismatches}
    found: list[WaitEdge] = []
    busy: dict[tuple[GroupKey, int], tuple[int, ...]] = {}
    for rank, pending in pending_by_rank.items():
        if stuck_call(table, pending, rank):
            continue  # its later calls are queued behind that one
        for key, (seq, at) in pending.in_groups.items():
            mismatch = differs.get(key)
            if mismatch and seq >= mismatch.seq:
                found += _edges_of_mismatch(rank, key, seq, at, mismatch)
            else:
                if at == pending.first and (key, seq) not in busy:
                    busy[key, seq] = _ranks_in_earlier_call(table, pending_by_rank, key, seq)
                found += _collective_edges(table, busy, pending.first, (rank, key, seq, at))
        found += _p2p_edges(table, pending_by_rank, rank)
    return found


def stuck_call(table: CollectiveTable, pending: PendingCalls, rank: int) -> tuple[GroupKey, int] | None:
    """Return the call (group, sequence number) in which a rank waits for nobody: all of the group have entered it, and
    most have finished it.

    Gloo records no calls that are done on the device.
    """
    record = table.records[rank]
    if pending.first is None or record.backend == "gloo" or table.call(rank, pending.first).p2p:
        return None
    key, seq = table.keys[rank][table.call(rank, pending.first).group], record.seq[pending.first]
    members = table.members[key]
    if any(member not in table.records for member in members) or table.ranks_not_entered(key, seq):
        return None
    return (key, seq) if 2 * len(table.finished(key, seq)) > len(members) else None


def _edges_of_mismatch(rank: int, key: GroupKey, seq: int, at: int, mismatch: Mismatch) -> list[WaitEdge]:
    """The majority waits for the culprits. On a tie each rank waits for the next one, which makes them a cycle."""
    culprits = mismatch.culprits
    if rank not in culprits:
        return [WaitEdge(rank, key, seq, at, tuple(culprits), "differs")]
    if mismatch.tied:
        return [WaitEdge(rank, key, seq, at, (culprits[(culprits.index(rank) + 1) % len(culprits)],), "differs")]
    return []


def _collective_edges(
    table: CollectiveTable,
    busy: dict[tuple[GroupKey, int], tuple[int, ...]],
    first: int | None,
    wait: tuple[int, GroupKey, int, int],
) -> list[WaitEdge]:
    """Return the waits of a rank in a collective. ``busy``: by call, the ranks that are in an earlier one."""
    rank, key, seq, at = wait
    if absent := table.ranks_not_entered(key, seq):
        return [WaitEdge(rank, key, seq, at, absent, "missing")]
    silent = tuple(member for member in table.members[key] if member not in table.records) if table.silent else ()
    if silent and not table.finished(key, seq):  # a call that one rank has finished was entered by all
        return [WaitEdge(rank, key, seq, at, silent, "silent")]
    found = _edges_to_laggards(table, rank, key)
    if at == first and (before := tuple(member for member in busy[key, seq] if member != rank)):
        found.append(WaitEdge(rank, key, seq, at, before, "behind"))
    return found


def _edges_to_laggards(table: CollectiveTable, rank: int, key: GroupKey) -> list[WaitEdge]:
    """All ranks have entered the first pending call but not all later ones: the rank that stopped first is suspect."""
    rank_calls = table.calls_by_rank[key][rank]
    at = bisect_right(rank_calls.seqs, table.last_common_seq(key))
    if at == len(rank_calls.seqs):
        return []
    return [
        WaitEdge(
            rank,
            key,
            rank_calls.seqs[at],
            rank_calls.entries[at],
            table.ranks_not_entered(key, rank_calls.seqs[at]),
            "missing",
        )
    ]


def _ranks_in_earlier_call(
    table: CollectiveTable, pending_by_rank: dict[int, PendingCalls], key: GroupKey, seq: int
) -> tuple[int, ...]:
    found: list[int] = []
    for member in table.ranks_with_record(key):
        rank_calls, first = table.calls_by_rank[key].get(member), pending_by_rank[member].first
        at = rank_calls.entry(seq) if rank_calls else None
        if at is not None and first is not None and first < at and not table.done(member, key, seq):
            found.append(member)
    return tuple(found)


def _p2p_edges(table: CollectiveTable, pending_by_rank: dict[int, PendingCalls], rank: int) -> list[WaitEdge]:
    """Waits of point-to-point calls that are not done: the first call with each partner in each direction."""
    found: list[WaitEdge] = []
    for (key, partner, sends), entries in _open_p2p(table, rank).items():
        at, seq = entries[0], table.records[rank].seq[entries[0]]
        if partner not in table.records:
            found.append(WaitEdge(rank, key, seq, at, (partner,), "silent"))
            continue
        partner_entries = _open_p2p(table, partner).get((key, rank, not sends), [])
        if len(table.members[key]) == 2:
            absent = not _entered_its_half(table, partner, key, seq, not sends)
        else:
            absent = len(partner_entries) < len(entries)
        first = pending_by_rank[partner].first
        if absent:
            found.append(WaitEdge(rank, key, seq, at, (partner,), "p2p"))
        elif at == pending_by_rank[rank].first and partner_entries and first is not None and first < partner_entries[0]:
            found.append(WaitEdge(rank, key, seq, at, (partner,), "behind"))
    return found


def _open_p2p(table: CollectiveTable, rank: int) -> dict[tuple[GroupKey, int, bool], list[int]]:
    """Return the entries that are not done by group, partner (global rank), and True for sends."""
    record = table.records[rank]
    found: dict[tuple[GroupKey, int, bool], list[int]] = defaultdict(list)
    for at in table.p2p[rank]:
        if record.states[at] == "d":
            continue
        call = record.calls[record.call[at]]
        key, sends = table.keys[rank][call.group], call.op.startswith("send")
        match = SEND.match(call.op) or RECV.match(call.op)
        members = table.members[key]
        if match and (number := int(match[2])) < len(members):
            found[key, members[number], sends].append(at)
    return found


def _entered_its_half(table: CollectiveTable, rank: int, key: GroupKey, seq: int, sends: bool) -> bool:
    """Return whether a rank of a two-rank group has entered its half of the other's point-to-point call."""
    record = table.records[rank]
    in_group = [at for at in table.p2p[rank] if table.keys[rank][table.call(rank, at).group] == key]
    if same := [at for at in in_group if record.seq[at] == seq]:
        return any(table.call(rank, at).op.startswith("send") == sends for at in same)
    enqueued = record.groups[table.keys[rank].index(key)].enqueued if key in table.keys[rank] else None
    last = record.seq[in_group[-1]] if in_group else enqueued
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
