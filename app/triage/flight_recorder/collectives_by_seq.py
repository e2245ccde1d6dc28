"""All records of a job side by side: who belongs to which group, and what each rank did in it, by sequence number."""

from bisect import bisect_left
from collections import defaultdict
from functools import cached_property

from ...text.units import rank_ranges
from ..types import Call, RankRecord

GroupKey = tuple[str, tuple[int, ...]]
Signature = tuple[str, tuple[int, ...] | None, str | None]
WORLD_NAMES = ("0", "default_pg")
# Which of its tensors must be equal on all ranks; of the others the sizes may differ.
EQUAL_OUTPUTS = {"scatter", "broadcast_oop"}
NO_SIZES = {"barrier", "all_reduce_barrier", "all_to_all", "all_to_allv", "coalesced"}


class RankCalls:
    """The collectives of one rank in one group, in order: sequence numbers, signatures, and where they stand."""

    __slots__ = ("entries", "seqs", "signatures")

    def __init__(self, entries: list[int], seqs: list[int], signatures: list[int]) -> None:
        self.entries, self.seqs, self.signatures = entries, seqs, signatures

    def entry(self, seq: int) -> int | None:
        """The record's entry of that sequence number."""
        at = self._at(seq)
        return None if at is None else self.entries[at]

    def signature(self, seq: int) -> int | None:
        """What was called under that sequence number."""
        at = self._at(seq)
        return None if at is None else self.signatures[at]

    def _at(self, seq: int) -> int | None:
        at = bisect_left(self.seqs, seq)
        return at if at < len(self.seqs) and self.seqs[at] == seq else None


class CollectiveTable:
    """What the analysis reads. ``silent`` are the ranks of the job that left no record."""

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
        self.lanes: dict[GroupKey, dict[int, RankCalls]] = defaultdict(dict)
        self.signatures: dict[Signature, int] = {}
        self._recorded: dict[GroupKey, list[int]] = {}
        self._least: dict[GroupKey, int] = {}
        self._absent: dict[tuple[GroupKey, int], tuple[int, ...]] = {}
        self._finished: dict[tuple[GroupKey, int], list[int]] = {}
        self.p2p: dict[int, list[int]] = {}  # rank -> its entries that are point-to-point
        users: dict[GroupKey, set[int]] = defaultdict(set)
        for rank, record in self.records.items():
            for key, group in zip(self.keys[rank], record.groups, strict=True):
                self.titles.setdefault(key, group.title)
                users[key].add(rank)
            self._lay_out(rank, record)
        self.members = {key: self._members(key, used) for key, used in users.items()}
        self.silent = sorted(set(range(self.world_size)) - set(self.records))

    def _key(self, rank: int, group: int) -> GroupKey:
        """A name may stand for different groups on different ranks; then the members tell them apart."""
        this = self.records[rank].groups[group]
        if this.ranks:
            return this.name, tuple(this.ranks)
        sound = [members for members in self._configured.get(this.name, ()) if rank in members]
        return this.name, min(sound) if sound else ()

    def _members(self, key: GroupKey, used: set[int]) -> list[int]:
        name, ranks = key
        if ranks:
            return list(ranks)
        if name in WORLD_NAMES or self.titles.get(key) in WORLD_NAMES:
            return list(range(self.world_size))
        return sorted(used)

    def _lay_out(self, rank: int, record: RankRecord) -> None:
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
                self.lanes[key][rank] = RankCalls(these, seqs, [signed[record.call[at]] for at in these])

    @cached_property
    def p2p_groups(self) -> set[GroupKey]:
        """Groups with point-to-point calls: their counts of what was enqueued mix two numberings."""
        return {
            self.keys[rank][call.group] for rank, record in self.records.items() for call in record.calls if call.p2p
        }

    def call(self, rank: int, entry: int) -> Call:
        """What an entry called."""
        record = self.records[rank]
        return record.calls[record.call[entry]]

    def position(self, rank: int, key: GroupKey) -> int:
        """The last collective of the group the rank has entered; -1 where it has entered none that is known."""
        lane = self.lanes[key].get(rank)
        if lane:
            return lane.seqs[-1]
        record = self.records[rank]
        if key in self.keys[rank] and key not in self.p2p_groups:
            enqueued = record.groups[self.keys[rank].index(key)].enqueued
            return -1 if enqueued is None else enqueued
        return -1

    def recorded(self, key: GroupKey) -> list[int]:
        """The members of a group that left a record."""
        if key not in self._recorded:
            self._recorded[key] = [rank for rank in self.members[key] if rank in self.records]
        return self._recorded[key]

    def least(self, key: GroupKey) -> int:
        """The last collective of the group that all its members with a record have entered."""
        if key not in self._least:
            self._least[key] = min((self.position(rank, key) for rank in self.recorded(key)), default=-1)
        return self._least[key]

    def absent(self, key: GroupKey, seq: int) -> tuple[int, ...]:
        """The members with a record that have not entered a collective."""
        if self.least(key) >= seq:
            return ()
        if (key, seq) not in self._absent:
            self._absent[key, seq] = tuple(rank for rank in self.recorded(key) if self.position(rank, key) < seq)
        return self._absent[key, seq]

    def finished(self, key: GroupKey, seq: int) -> list[int]:
        """The members with a record that have finished a collective."""
        if (key, seq) not in self._finished:
            self._finished[key, seq] = [rank for rank in self.recorded(key) if self.done(rank, key, seq)]
        return self._finished[key, seq]

    def done(self, rank: int, key: GroupKey, seq: int) -> bool:
        """Whether the rank has finished it, as far as is known."""
        lane = self.lanes[key].get(rank)
        at = lane.entry(seq) if lane else None
        if at is not None:
            return self.records[rank].states[at] == "d"
        return self.position(rank, key) >= seq

    def title(self, key: GroupKey) -> str:
        """How people know the group."""
        title, (name, ranks) = self.titles.get(key, ""), key
        if title not in ("", "undefined"):
            return title
        return f"the group of ranks {rank_ranges(ranks)}" if name.isdecimal() and ranks else name


def call_signature(call: Call) -> Signature:
    """What must be equal on all ranks: the operation, how many elements, and the data type.

    Shapes may differ where the number of elements does not; of uneven operations only the kind is compared.
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
