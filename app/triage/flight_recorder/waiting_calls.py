"""The calls in which ranks wait: who is in them, where, and since when."""

from collections import defaultdict
from collections.abc import Sequence

from .collectives_by_seq import CollectiveTable, GroupKey
from .types import MismatchSide
from .wait_graph import PendingCalls, WaitEdge


class WaitingCalls:
    """The pending calls of a job, and the edges of its wait-for graph."""

    def __init__(
        self, table: CollectiveTable, pending_by_rank: dict[int, PendingCalls], waits: Sequence[WaitEdge]
    ) -> None:
        self.table, self.pending_by_rank, self.waits = table, pending_by_rank, waits

    def is_p2p(self, wait: WaitEdge) -> bool:
        """Return whether a rank waits in a send or a receive."""
        return self.table.call(wait.rank, wait.entry).p2p

    def ranks_in(self, key: GroupKey, seq: int, p2p: bool) -> list[int]:
        """Return the ranks that wait in a call."""
        waiting = {wait.rank for wait in self.waits if (wait.group, wait.seq, self.is_p2p(wait)) == (key, seq, p2p)}
        if not p2p:
            waiting |= {
                rank for rank, pending in self.pending_by_rank.items() if pending.in_groups.get(key, (None,))[0] == seq
            }
        return sorted(waiting)

    def phrase(self, wait: WaitEdge) -> str:
        """Return the call in which a rank waits, in words."""
        call = self.table.call(wait.rank, wait.entry)
        return f"{call.collective} (number {wait.seq} of {self.table.title(wait.group)})"

    def at_ns(self, wait: WaitEdge) -> int:
        """Return the time at which a rank entered the call in which it waits."""
        return self.table.records[wait.rank].created_ns[wait.entry]

    def sides(self, ranks: Sequence[int], key: GroupKey, seq: int, p2p: bool = False) -> list[MismatchSide]:
        """Return the calls of these ranks under a sequence number, ranks at the same line together."""
        same: dict[tuple[str, str, str], list[tuple[int, int]]] = defaultdict(list)
        for rank in ranks:
            rank_calls = self.table.calls_by_rank[key].get(rank)
            at = rank_calls.entry(seq) if rank_calls and not p2p else None
            if p2p:
                at = next((w.entry for w in self.waits if (w.rank, w.group, w.seq) == (rank, key, seq)), None)
            if at is not None:
                call = self.table.call(rank, at)
                same[call.collective, call.where, repr(call.inputs)].append((rank, at))
        return [self.side_of_entry([rank for rank, _ in found], found[0][1]) for found in same.values()]

    def side_of_entry(self, ranks: list[int], entry: int) -> MismatchSide:
        """Return the call under an entry of the first of these ranks."""
        call = self.table.call(ranks[0], entry)
        sizes, types = (call.inputs, call.input_types) if call.inputs else (call.outputs, call.output_types)
        return MismatchSide(
            ranks=ranks,
            collective=call.collective,
            sizes=sizes[:4],
            dtype=types[0] if types else "",
            where=call.where,
            function=call.function,
        )

    def last_side(self, rank: int) -> MismatchSide:
        """Return the line of the last call of a rank that is in none."""
        record = self.table.records[rank]
        if not record.call:
            return MismatchSide(ranks=[rank], collective=None)
        last = record.calls[record.call[-1]]
        return MismatchSide(ranks=[rank], collective=None, where=last.where, function=last.function)
