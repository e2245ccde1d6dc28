"""What is wrong at each root of the waiting, made findings: who, what, where, in words."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from ..phrases import ranks_phrase as named
from .collectives_by_seq import CollectiveTable, GroupKey, call_signature
from .mismatches import Mismatch
from .types import Finding, MismatchSide
from .wait_graph import PendingCalls, WaitEdge

SURE, LIKELY, GUESS, TIED = 0.85, 0.7, 0.5, 0.45
OTHERS_FINISHED = " It still waits in one that all others have finished: its GPU or its process is at fault."
THEY_ALONE = " They still wait in what all others have finished: their GPUs or their processes are at fault."
NOBODY_FINISHED = " It still waits in an earlier one, which the others have not finished either."


class FindingBuilder:
    """The findings, in the terms of the ranks, their calls and code lines."""

    def __init__(
        self,
        board: CollectiveTable,
        standing: dict[int, PendingCalls],
        different: list[Mismatch],
        found: list[WaitEdge],
    ) -> None:
        self.board, self.standing, self.different, self.waits = board, standing, different, found
        self.toward: dict[int, list[WaitEdge]] = defaultdict(list)
        for wait in found:
            for rank in wait.for_ranks:
                self.toward[rank].append(wait)

    def of_root(self, root: list[int]) -> list[Finding]:
        """What is wrong at one root of the waiting."""
        inside = [wait for wait in self.waits if wait.rank in root]
        if len(root) == 1:
            return self._of_one(root[0])
        if inside and all(wait.why == "differs" for wait in inside):
            return [self.of_difference(each) for each in self.different if {*each.culprits} >= {*root}][:1]
        if all(wait.why in ("p2p",) or self._is_p2p(wait) for wait in inside):
            return [self._of_pairs(root, inside)]
        return [self._of_cycle(root, inside)]

    def _is_p2p(self, wait: WaitEdge) -> bool:
        return self.board.call(wait.rank, wait.entry).p2p

    def _of_one(self, rank: int) -> list[Finding]:
        """A rank that others wait for and that waits for nobody."""
        toward = sorted(
            self.toward[rank],
            key=lambda wait: (wait.why == "behind", self._is_p2p(wait), self._at_ns(wait), wait.rank, wait.group),
        )
        first = toward[0]
        if first.why == "differs":
            return [self.of_difference(each) for each in self.different if each.group == first.group]
        if first.why == "behind":
            return [self._of_stuck(rank)]
        return [self._of_absent(rank, first)]

    def _of_absent(self, rank: int, wait: WaitEdge) -> Finding:
        call = self.board.call(wait.rank, wait.entry)
        silent = rank not in self.board.records
        other = None if silent else self._entered_elsewhere(rank, wait)
        entered = sorted({w.rank for w in self.toward[rank] if (w.group, w.seq) == (wait.group, wait.seq)})
        sides = self._sides(entered, wait.group, wait.seq, call.p2p)
        what = self._what(wait)
        who = named([rank])
        if silent:
            words = f"{named(entered, 'wait')} in {what}. {who} left no record and may never have entered it."
            absent = MismatchSide(ranks=[rank], collective=None)
        elif other is not None:
            elsewhere = self.board.call(rank, other)
            group = self.board.title(self.board.keys[rank][elsewhere.group])
            words = (
                f"{named(entered, 'wait')} in {what}. {who} called {elsewhere.collective} in another group, {group}."
            )
            absent = self._side_of_entry([rank], other)
        else:
            words = f"{named(entered, 'wait')} in {what}. {who} has not entered it."
            absent = self._last_side(rank)
            words += self._own_wait(rank)
        return Finding(
            kind="silent" if silent else "wrong_group" if other is not None else "missing",
            group=self.board.title(wait.group),
            group_name=wait.group[0],
            seq=wait.seq,
            culprits=[rank],
            collective=call.collective,
            sides=[*sides, absent],
            words=words,
            at_ns=self._at_ns(wait),
            confidence=self._confidence(rank),
        )

    def _confidence(self, rank: int) -> float:
        if rank in self.board.records:
            return GUESS if self._own_wait(rank) == NOBODY_FINISHED else SURE
        return LIKELY if 2 * len(self.board.silent) <= self.board.world_size else TIED

    def _own_wait(self, rank: int) -> str:
        """What is to be said of the call that a rank, for which others wait, stands in itself."""
        at = self.standing[rank].first
        call = None if at is None else self.board.call(rank, at)
        if at is None or call is None or call.p2p:
            return ""
        key, seq = self.board.keys[rank][call.group], self.board.records[rank].seq[at]
        finished = len(self.board.finished(key, seq)) == len(self.board.recorded(key)) - 1
        return OTHERS_FINISHED if finished else NOBODY_FINISHED

    def _entered_elsewhere(self, rank: int, wait: WaitEdge) -> int | None:
        """The entry of the same operation that the rank is in, in another group."""
        lane = self.board.lanes[wait.group].get(wait.rank)
        awaited = lane.signature(wait.seq) if lane else None
        for key, (seq, at) in self.standing[rank].in_groups.items():
            theirs = self.board.lanes[key][rank].signature(seq)
            if key != wait.group and awaited is not None and theirs == awaited:
                return at
        return None

    def _of_stuck(self, rank: int) -> Finding:
        """Others wait for what this rank is in; all of its group are in it, or have finished it."""
        at = self.standing[rank].first or 0
        record, call = self.board.records[rank], self.board.call(rank, at)
        key, seq = self.board.keys[rank][call.group], record.seq[at]
        members = [member for member in self.board.members[key] if member in self.board.records]
        ahead = [member for member in members if member != rank and self.board.done(member, key, seq)]
        if not call.p2p and ahead and len(ahead) == len(members) - 1:
            return self.of_unfinished([rank], key, seq)
        return self.of_together(members if not call.p2p else [rank], key, seq, rank, at)

    def of_unfinished(self, ranks: list[int], key: GroupKey, seq: int) -> Finding:
        """All others have finished a collective that these still wait in."""
        entry = self.board.lanes[key][ranks[0]].entry(seq) or 0
        call = self.board.call(ranks[0], entry)
        words = (
            f"{named(ranks, 'wait')} in {call.collective} (number {seq} of {self.board.title(key)}), which all others "
            "have finished: a GPU, or the process itself, is at fault there."
        )
        return Finding(
            kind="unfinished",
            group=self.board.title(key),
            group_name=key[0],
            seq=seq,
            culprits=ranks,
            collective=call.collective,
            sides=self._sides(ranks, key, seq),
            words=words,
            at_ns=self.board.records[ranks[0]].created_ns[entry],
            confidence=GUESS,
        )

    def of_together(self, ranks: list[int], key: GroupKey, seq: int, rank: int, entry: int) -> Finding:
        """Every rank of a group is in the same call, and it does not end. Those whose GPU has not begun it, where the
        others' have, are to blame; else nobody can be told."""
        call = self.board.call(rank, entry)
        entered = {
            r: at for r in ranks if (lane := self.board.lanes[key].get(r)) and (at := lane.entry(seq)) is not None
        }
        late = [r for r, at in entered.items() if self.board.records[r].states[at] == "e"]
        late = late if 0 < len(late) < len(entered) and self.board.records[rank].backend != "gloo" else []
        what = f"{call.collective} (number {seq} of {self.board.title(key)})"
        words = f"{named(ranks, 'are')} all in {what}, and it does not end. "
        if late:
            words += f"The GPUs of {named(late).lower()} have not begun it."
        else:
            words += "The records agree: look at the network and the GPUs between them next."
        return Finding(
            kind="together",
            group=self.board.title(key),
            group_name=key[0],
            seq=seq,
            culprits=late,
            collective=call.collective,
            sides=self._sides(ranks, key, seq, call.p2p) or [self._side_of_entry([rank], entry)],
            words=words,
            at_ns=self.board.records[rank].created_ns[entry],
            confidence=LIKELY if late else GUESS,
        )

    def of_difference(self, each: Mismatch) -> Finding:
        """Ranks called different things under the same number."""
        sides = [side for party in each.parties for side in self._sides(party, each.group, each.seq)]
        title = self.board.title(each.group)
        parts = [self._did(party, each) for party in each.parties]
        words = f"As number {each.seq} of {title}, {'; '.join(parts)}."
        if each.skipped:
            change = "left out one call" if each.skipped > 0 else "made one call more"
            words += f" From there on the calls agree again: {named(each.culprits).lower()} {change}."
        if each.kind == "order":
            words += " Later they call the same, in another order."
        collective = sides[-1].collective if not each.tied else sides[0].collective
        return Finding(
            kind=each.kind,
            group=title,
            group_name=each.group[0],
            seq=each.seq,
            culprits=each.culprits,
            collective=collective,
            sides=sides,
            words=words,
            at_ns=each.at_ns,
            confidence=TIED if each.tied else SURE,
        )

    def _did(self, party: list[int], each: Mismatch) -> str:
        side = self._sides(party, each.group, each.seq)[0]
        text = f"{named(party, 'have').lower()} called {side.collective}"
        if each.kind in ("size", "dtype"):
            text += f" on {side.dtype} {'x'.join(map(str, side.sizes[0])) if side.sizes else ''}".rstrip()
        return f"{text} at {side.where.rpartition('/')[2]}" if side.where else text

    def _of_pairs(self, root: list[int], inside: list[WaitEdge]) -> Finding:
        """Sends and receives that wait for each other."""
        first = min(inside, key=lambda wait: (self._at_ns(wait), wait.rank))
        sides = [self._side_of_entry([wait.rank], wait.entry) for wait in inside]
        pairs = [f"rank {wait.rank} is in {self.board.call(wait.rank, wait.entry).collective}" for wait in inside]
        return Finding(
            kind="p2p",
            group=self.board.title(first.group),
            group_name=first.group[0],
            seq=first.seq,
            culprits=root,
            collective=self.board.call(first.rank, first.entry).collective,
            sides=sides,
            words=f"{named(root, 'wait')} for each other: {', '.join(pairs)}, and no partner does the other half.",
            at_ns=self._at_ns(first),
            confidence=TIED,
        )

    def _of_cycle(self, root: list[int], inside: list[WaitEdge]) -> Finding:
        """Ranks that stand in different groups and wait for each other. Those in a place with fewer ranks than another
        are to blame; a tie is told."""
        at_front = [wait for wait in inside if wait.entry == self.standing[wait.rank].first] or inside
        places = {(wait.group, wait.seq, self._is_p2p(wait)): wait for wait in at_front}
        there = {place: self._there(*place) for place in places}
        most = max(map(len, there.values()))
        minority = sorted(
            {wait.rank for wait in at_front if len(there[wait.group, wait.seq, self._is_p2p(wait)]) < most}
        )
        tied = not minority or len([1 for ranks in there.values() if len(ranks) == most]) > 1
        culprits = root if tied else minority
        ordered = sorted(there, key=lambda place: (-len(there[place]), place))
        same = (
            not tied and len({call_signature(self.board.call(wait.rank, wait.entry)) for wait in places.values()}) == 1
        )
        sides = [side for place in ordered for side in self._sides(there[place], *place)]
        parts = [
            f"{named(there[place], 'wait').lower()} in {side.collective} of {self.board.title(place[0])}"
            for place in ordered
            for side in self._sides(there[place], *place)[:1]
        ]
        why = (
            f"{named(culprits)} called it in another group than the others."
            if same
            else "They go through these groups in different orders."
        )
        first = min(inside, key=lambda wait: (self._at_ns(wait), wait.rank))
        return Finding(
            kind="wrong_group" if same else "group_cycle",
            group=self.board.title(ordered[0][0]),
            group_name=ordered[0][0][0],
            seq=ordered[0][1],
            culprits=culprits,
            collective=sides[0].collective,
            sides=sides,
            words=f"{_sentence('; '.join(parts))} {why}",
            at_ns=self._at_ns(first),
            confidence=TIED if tied else LIKELY,
        )

    def _there(self, key: GroupKey, seq: int, p2p: bool) -> list[int]:
        """The ranks that stand in a call."""
        waiting = {wait.rank for wait in self.waits if (wait.group, wait.seq, self._is_p2p(wait)) == (key, seq, p2p)}
        if not p2p:
            waiting |= {rank for rank, stand in self.standing.items() if stand.in_groups.get(key, (None,))[0] == seq}
        return sorted(waiting)

    def turned(self, finding: Finding) -> Finding:
        """Where a few entered what most of the group never did, the few are to blame: the call stands under a
        condition that only they met."""
        entered = sorted({rank for side in finding.sides if side.collective for rank in side.ranks})
        idle = all(self.standing[rank].first is None for rank in finding.culprits if rank in self.board.records)
        if (
            finding.kind != "missing"
            or finding.collective in ("send", "recv")
            or not idle
            or not 0 < len(entered) < len(finding.culprits)
        ):
            return finding
        what = f"{finding.collective} (number {finding.seq} of {finding.group})"
        words = f"{named(entered, 'wait')} in {what}, which most ranks never entered."
        return msgspec.structs.replace(finding, kind="extra", culprits=entered, words=words, confidence=GUESS)

    def without_waiting(self) -> list[Finding]:
        """The finding where nobody is known to wait for anybody in particular."""
        if self.different:
            return [self.of_difference(self.different[0])]
        stood: dict[tuple[GroupKey, int], list[int]] = defaultdict(list)
        for rank, stand in self.standing.items():
            for key, (seq, _) in stand.in_groups.items():
                stood[key, seq].append(rank)
        for (key, seq), ranks in sorted(stood.items(), key=lambda item: (-len(item[1]), item[0])):
            members = [member for member in self.board.members[key] if member in self.board.records]
            if len(ranks) < len(members):
                return [self.of_unfinished(ranks, key, seq)]
            entry = self.board.lanes[key][ranks[0]].entry(seq) or 0
            return [self.of_together(ranks, key, seq, ranks[0], entry)]
        if self.board.silent and self.board.records:
            silent = self.board.silent
            words = f"{named(silent)} left no record; the ranks that did wait for nobody."
            return [
                Finding(
                    kind="silent",
                    group="",
                    seq=None,
                    culprits=silent,
                    collective=None,
                    sides=[MismatchSide(ranks=silent, collective=None)],
                    words=words,
                    confidence=0.4,
                )
            ]
        return []

    def consequences(self, first: Iterable[Finding]) -> list[Finding]:
        """What the other waits are: ranks that wait only because of what came first."""
        told = {(finding.group_name, finding.seq) for finding in first}
        found: list[Finding] = []
        for each in self.different:
            if (each.group[0], each.seq) not in told:
                found.append(msgspec.structs.replace(self.of_difference(each), follows=True))
        told |= {(finding.group_name, finding.seq) for finding in found}
        places: dict[tuple[GroupKey, int], list[WaitEdge]] = defaultdict(list)
        for wait in self.waits:
            if (wait.group[0], wait.seq) not in told and wait.why in ("missing", "p2p"):
                places[wait.group, wait.seq].append(wait)
        for (key, seq), waiting in sorted(places.items(), key=lambda item: (self._at_ns(item[1][0]), item[0])):
            ranks = sorted({wait.rank for wait in waiting})
            absent = sorted({rank for wait in waiting for rank in wait.for_ranks})
            found.append(
                Finding(
                    kind="missing",
                    group=self.board.title(key),
                    group_name=key[0],
                    seq=seq,
                    culprits=absent,
                    collective=self.board.call(waiting[0].rank, waiting[0].entry).collective,
                    sides=self._sides(ranks, key, seq, self._is_p2p(waiting[0])),
                    words=f"{named(ranks, 'wait')} in {self._what(waiting[0])} for {named(absent).lower()}.",
                    at_ns=self._at_ns(waiting[0]),
                    follows=True,
                )
            )
        return found

    def _what(self, wait: WaitEdge) -> str:
        call = self.board.call(wait.rank, wait.entry)
        return f"{call.collective} (number {wait.seq} of {self.board.title(wait.group)})"

    def _at_ns(self, wait: WaitEdge) -> int:
        return self.board.records[wait.rank].created_ns[wait.entry]

    def _sides(self, ranks: Sequence[int], key: GroupKey, seq: int, p2p: bool = False) -> list[MismatchSide]:
        """What these ranks called under a number, ranks at the same line together."""
        same: dict[tuple[str, str, str], list[tuple[int, int]]] = defaultdict(list)
        for rank in ranks:
            lane = self.board.lanes[key].get(rank)
            at = lane.entry(seq) if lane and not p2p else None
            if p2p:
                at = next((w.entry for w in self.waits if (w.rank, w.group, w.seq) == (rank, key, seq)), None)
            if at is not None:
                call = self.board.call(rank, at)
                same[call.collective, call.where, repr(call.inputs)].append((rank, at))
        return [self._side_of_entry([rank for rank, _ in found], found[0][1]) for found in same.values()]

    def _side_of_entry(self, ranks: list[int], entry: int) -> MismatchSide:
        call = self.board.call(ranks[0], entry)
        sizes, types = (call.inputs, call.input_types) if call.inputs else (call.outputs, call.output_types)
        return MismatchSide(
            ranks=ranks,
            collective=call.collective,
            sizes=sizes[:4],
            dtype=types[0] if types else "",
            where=call.where,
            function=call.function,
        )

    def _last_side(self, rank: int) -> MismatchSide:
        record = self.board.records[rank]
        if not record.call:
            return MismatchSide(ranks=[rank], collective=None)
        last = record.calls[record.call[-1]]
        return MismatchSide(ranks=[rank], collective=None, where=last.where, function=last.function)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
