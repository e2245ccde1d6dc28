"""The records of all ranks in one table: members of each group, and the calls of each rank by sequence number."""

from bisect import bisect_left
from collections import defaultdict
from functools import cached_property

from ...text.units import rank_ranges
from ..types import Call, RankRecord

GroupKey = tuple[str, tuple[int, ...]]
Signature = tuple[str, tuple[int, ...] | None, str | None]
WORLD_NAMES = ("0", "default_pg")
# Collectives whose outputs must be equal on all ranks; the inputs may differ in size.
EQUAL_OUTPUTS = {"scatter", "broadcast_oop"}
NO_SIZES = {"barrier", "all_reduce_barrier", "all_to_all", "all_to_allv", "coalesced"}


class RankCalls:
    """The collectives of one rank in one group, in order: sequence numbers, signatures and record entries."""

    __slots__ = ("entries", "seqs", "signatures")

    def __init__(self, entries: list[int], seqs: list[int], signatures: list[int]) -> None:
        self.entries, self.seqs, self.signatures = entries, seqs, signatures

    def entry(self, seq: int) -> int | None:
        """Return the record entry with this sequence number, or None."""
        at = self._at(seq)
        return None if at is None else self.entries[at]

    def signature(self, seq: int) -> int | None:
        """Return the signature of the call with this sequence number, or None."""
        at = self._at(seq)
        return None if at is None else self.signatures[at]

    def _at(self, seq: int) -> int | None:
        at = bisect_left(self.seqs, seq)
        return at if at < len(self.seqs) and self.seqs[at] == seq else None


class CollectiveTable:
    """The calls of all ranks by group and sequence number. ``silent``: the ranks of the job that left no record."""

    def __init__(self, records: list[RankRecord], world_size: int | None = None) -> None:
        self.records = {record.rank: record for record in sorted(records, key=lambda record: record.rank)}
        self._configured: dict[str, set[tuple[int, ...]]] = defaultdict(set)
        for record in self.records.values():
            for group in record.groups:
                if group.ranks:
                    self._configured[group.name].add(tuple(group.ranks))
        named = [members[-1] for ranks in self._configured.values() for members in ranks]
        self.world_size = max([world_size or 0, *(rank + 1 for rank in [*self.records, *named])])
        self.keys = {rank: [self._key(rank, g) for g in range(len(r.groups))] for rank, r in self.records.items()}
        self.titles: dict[GroupKey, str] = {}
        self.calls_by_rank: dict[GroupKey, dict[int, RankCalls]] = defaultdict(dict)
        self.signatures: dict[Signature, int] = {}
        self._with_record: dict[GroupKey, list[int]] = {}
        self._last_common_seq: dict[GroupKey, int] = {}
        self._not_entered: dict[tuple[GroupKey, int], tuple[int, ...]] = {}
        self._finished: dict[tuple[GroupKey, int], list[int]] = {}
        self.p2p: dict[int, list[int]] = {}  # rank -> its entries that are point-to-point
        users: dict[GroupKey, set[int]] = defaultdict(set)
        for rank, record in self.records.items():
            for key, group in zip(self.keys[rank], record.groups, strict=True):
                self.titles.setdefault(key, group.title)
                users[key].add(rank)
            self._add_calls(rank, record)
        self.members = {key: self._members(key, used) for key, used in users.items()}
        self.silent = sorted(set(range(self.world_size)) - set(self.records))

    def _key(self, rank: int, group: int) -> GroupKey:
        """Return the key of a rank's group. It holds the members too: ranks may use one name for different groups."""
        this = self.records[rank].groups[group]
        if this.ranks:
            return this.name, tuple(this.ranks)
        configured = [members for members in self._configured.get(this.name, ()) if rank in members]
        return this.name, min(configured) if configured else ()

    def _members(self, key: GroupKey, used: set[int]) -> list[int]:
        name, ranks = key
        if ranks:
            return list(ranks)
        if name in WORLD_NAMES or self.titles.get(key) in WORLD_NAMES:
            return list(range(self.world_size))
        return sorted(used)

    def _add_calls(self, rank: int, record: RankRecord) -> None:
        entries: list[list[int]] = [[] for _ in record.groups]
        p2p: list[int] = []
        into = [p2p if call.p2p else entries[call.group] for call in record.calls]
        for at, call in enumerate(record.call):
            into[call].append(at)
        signed = [self.signatures.setdefault(call_signature(call), len(self.signatures)) for call in record.calls]
        self.p2p[rank] = p2p
        for key, these in zip(self.keys[rank], entries, strict=True):
            if these:
                seqs = [record.seq[at] for at in these]
                self.calls_by_rank[key][rank] = RankCalls(these, seqs, [signed[record.call[at]] for at in these])

    @cached_property
    def p2p_groups(self) -> set[GroupKey]:
        """Groups with point-to-point calls: their enqueued count mixes two sequences of numbers."""
        return {
            self.keys[rank][call.group] for rank, record in self.records.items() for call in record.calls if call.p2p
        }

    def call(self, rank: int, entry: int) -> Call:
        """Return the call of an entry."""
        record = self.records[rank]
        return record.calls[record.call[entry]]

    def call_at(self, rank: int, key: GroupKey, seq: int) -> Call | None:
        """Return the collective of a rank with this sequence number, or None."""
        rank_calls = self.calls_by_rank[key].get(rank)
        at = rank_calls.entry(seq) if rank_calls else None
        return None if at is None else self.call(rank, at)

    def shapes_before(self, rank: int, key: GroupKey, seq: int, where: str) -> set[tuple[tuple[int, ...], ...]]:
        """Return the shapes of the tensors of a rank's earlier calls at a line."""
        rank_calls = self.calls_by_rank[key][rank]
        calls = (self.call(rank, at) for at in rank_calls.entries[: bisect_left(rank_calls.seqs, seq)])
        return {tuple(map(tuple, call.inputs or call.outputs)) for call in calls if call.where == where}

    def last_entered_seq(self, rank: int, key: GroupKey) -> int:
        """Return the last collective of the group that the rank is known to have entered, or -1."""
        rank_calls = self.calls_by_rank[key].get(rank)
        if rank_calls:
            return rank_calls.seqs[-1]
        record = self.records[rank]
        if key in self.keys[rank] and key not in self.p2p_groups:
            enqueued = record.groups[self.keys[rank].index(key)].enqueued
            return -1 if enqueued is None else enqueued
        return -1

    def ranks_with_record(self, key: GroupKey) -> list[int]:
        """Return the members of a group that left a record."""
        if key not in self._with_record:
            self._with_record[key] = [rank for rank in self.members[key] if rank in self.records]
        return self._with_record[key]

    def last_common_seq(self, key: GroupKey) -> int:
        """Return the last collective that all members with a record have entered."""
        if key not in self._last_common_seq:
            self._last_common_seq[key] = min(
                (self.last_entered_seq(rank, key) for rank in self.ranks_with_record(key)), default=-1
            )
        return self._last_common_seq[key]

    def ranks_not_entered(self, key: GroupKey, seq: int) -> tuple[int, ...]:
        """Return the members with a record that have not entered a collective."""
        if self.last_common_seq(key) >= seq:
            return ()
        if (key, seq) not in self._not_entered:
            self._not_entered[key, seq] = tuple(
                rank for rank in self.ranks_with_record(key) if self.last_entered_seq(rank, key) < seq
            )
        return self._not_entered[key, seq]

    def finished(self, key: GroupKey, seq: int) -> list[int]:
        """Return the members with a record that have finished a collective."""
        if (key, seq) not in self._finished:
            self._finished[key, seq] = [rank for rank in self.ranks_with_record(key) if self.done(rank, key, seq)]
        return self._finished[key, seq]

    def done(self, rank: int, key: GroupKey, seq: int) -> bool:
        """Return whether the rank is known to have finished a collective."""
        rank_calls = self.calls_by_rank[key].get(rank)
        at = rank_calls.entry(seq) if rank_calls else None
        if at is not None:
            return self.records[rank].states[at] == "d"
        return self.last_entered_seq(rank, key) >= seq

    def title(self, key: GroupKey) -> str:
        """Return the readable name of a group."""
        title, (name, ranks) = self.titles.get(key, ""), key
        if title not in ("", "undefined"):
            return title
        return f"the group of ranks {rank_ranges(ranks)}" if name.isdecimal() and ranks else name


def call_signature(call: Call) -> Signature:
    """Return what must be equal on all ranks: the operation, the numbers of elements, and the data type.

    Shapes may differ if the numbers of elements are equal. Operations with uneven sizes are compared by name only.
    """
    op = call.op
    if op in NO_SIZES:
        return op, None, call.input_types[0] if call.input_types and op.startswith("all_to_all") else None
    outputs = op in EQUAL_OUTPUTS or not call.inputs
    sizes, types = (call.outputs, call.output_types) if outputs else (call.inputs, call.input_types)
    if op == "all_gather" and len({tuple(size[1:]) for size in call.outputs}) > 1:
        return op, None, types[0] if types else None
    return op, tuple(map(_elements, sizes)), types[0] if types else None


def _elements(size: list[int]) -> int:
    count = 1
    for extent in size:
        count *= extent
    return count
