"""Turn the roots of the wait-for graph into findings: the ranks, their calls and code lines, in one sentence."""

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from ..phrases import ranks_phrase as named
from .collectives_by_seq import CollectiveTable, GroupKey, call_signature
from .mismatches import Mismatch
from .types import Finding, FindingKind, MismatchSide
from .wait_graph import PendingCalls, WaitEdge, stuck_call
from .waiting_calls import WaitingCalls

SURE, LIKELY, GUESS, TIED = 0.85, 0.7, 0.5, 0.45
OTHERS_FINISHED = " It still waits in a collective that all others have finished: its GPU or process is at fault."
OTHERS_FINISHED_PLURAL = (
    " They still wait in collectives that all others have finished: their GPUs or processes are at fault."
)
NOBODY_FINISHED = " It still waits in an earlier collective, which the others have not finished either."


class FindingBuilder:
    """Builds the findings of a job."""

    def __init__(
        self,
        table: CollectiveTable,
        pending_by_rank: dict[int, PendingCalls],
        mismatches: list[Mismatch],
        waits: list[WaitEdge],
    ) -> None:
        self.table, self.pending_by_rank, self.mismatches, self.waits = table, pending_by_rank, mismatches, waits
        self.calls = WaitingCalls(table, pending_by_rank, waits)
        self.edges_to: dict[int, list[WaitEdge]] = defaultdict(list)
        for wait in waits:
            for rank in wait.for_ranks:
                self.edges_to[rank].append(wait)

    def findings_of_root(self, root: list[int]) -> list[Finding]:
        """Return the findings about one root of the wait-for graph."""
        inside = [wait for wait in self.waits if wait.rank in root]
        if len(root) == 1:
            return self._single_rank_findings(root[0])
        if inside and all(wait.reason == "differs" for wait in inside):
            return [self.mismatch_finding(each) for each in self.mismatches if {*each.culprits} >= {*root}][:1]
        if all(wait.reason in ("p2p",) or self.calls.is_p2p(wait) for wait in inside):
            return [self._pair_finding(root, inside)]
        return [self._cycle_finding(root, inside)]

    def _single_rank_findings(self, rank: int) -> list[Finding]:
        """Return the findings about a rank that others wait for and that waits for nobody."""
        edges_to = sorted(
            self.edges_to[rank],
            key=lambda wait: (
                wait.reason == "behind",
                self.calls.is_p2p(wait),
                self.calls.at_ns(wait),
                wait.rank,
                wait.group,
            ),
        )
        first = edges_to[0]
        if first.reason == "differs":
            return [self.mismatch_finding(each) for each in self.mismatches if each.group == first.group]
        if first.reason == "behind":
            return [self._stuck_finding(rank)]
        return [self._missing_finding(rank, first)]

    def _missing_finding(self, rank: int, wait: WaitEdge) -> Finding:
        call = self.table.call(wait.rank, wait.entry)
        silent = rank not in self.table.records
        other = None if silent else self._entered_elsewhere(rank, wait)
        entered = sorted({w.rank for w in self.edges_to[rank] if (w.group, w.seq) == (wait.group, wait.seq)})
        sides = self.calls.sides(entered, wait.group, wait.seq, call.p2p)
        collective = self.calls.phrase(wait)
        who = named([rank])
        if silent:
            words = f"{named(entered, 'wait')} in {collective}. {who} left no record and may never have entered it."
            absent = MismatchSide(ranks=[rank], collective=None)
        elif other is not None:
            elsewhere = self.table.call(rank, other)
            group = self.table.title(self.table.keys[rank][elsewhere.group])
            words = f"{named(entered, 'wait')} in {collective}. "
            words += f"{who} called {elsewhere.collective} in another group, {group}."
            absent = self.calls.side_of_entry([rank], other)
        else:
            words = f"{named(entered, 'wait')} in {collective}. {who} has not entered it"
            words += "." if self.table.records[rank].call else ": it has made no call yet."
            absent = self.calls.last_side(rank)
            words += self._own_wait_sentence(rank)
        kind: FindingKind = "missing"
        if silent or other is not None:
            kind = "silent" if silent else "wrong_group"
        elif not self.table.records[rank].call:
            kind = "first_call"
        return Finding(
            kind=kind,
            group=self.table.title(wait.group),
            group_name=wait.group[0],
            seq=wait.seq,
            culprits=[rank],
            collective=call.collective,
            sides=[*sides, absent],
            words=words,
            at_ns=self.calls.at_ns(wait),
            confidence=self._confidence(rank),
        )

    def _confidence(self, rank: int) -> float:
        if rank in self.table.records:
            return GUESS if self._own_wait_sentence(rank) == NOBODY_FINISHED else SURE
        return LIKELY if 2 * len(self.table.silent) <= self.table.world_size else TIED

    def _own_wait_sentence(self, rank: int) -> str:
        """Return a sentence about the pending call of a rank that others wait for, or ""."""
        at = self.pending_by_rank[rank].first
        call = None if at is None else self.table.call(rank, at)
        if at is None or call is None or call.p2p:
            return ""
        key, seq = self.table.keys[rank][call.group], self.table.records[rank].seq[at]
        finished = len(self.table.finished(key, seq)) == len(self.table.ranks_with_record(key)) - 1
        return OTHERS_FINISHED if finished else NOBODY_FINISHED

    def _entered_elsewhere(self, rank: int, wait: WaitEdge) -> int | None:
        """Return the entry of the same operation that the rank has entered in another group, or None."""
        rank_calls = self.table.calls_by_rank[wait.group].get(wait.rank)
        awaited = rank_calls.signature(wait.seq) if rank_calls else None
        for key, (seq, at) in self.pending_by_rank[rank].in_groups.items():
            theirs = self.table.calls_by_rank[key][rank].signature(seq)
            if key != wait.group and awaited is not None and theirs == awaited:
                return at
        return None

    def _stuck_finding(self, rank: int) -> Finding:
        """Return the finding about a rank whose pending call all of its group have entered or finished."""
        at = self.pending_by_rank[rank].first or 0
        record, call = self.table.records[rank], self.table.call(rank, at)
        key, seq = self.table.keys[rank][call.group], record.seq[at]
        members = [member for member in self.table.members[key] if member in self.table.records]
        ahead = [member for member in members if member != rank and self.table.done(member, key, seq)]
        if not call.p2p and ahead and len(ahead) == len(members) - 1:
            return self.unfinished_finding([rank], key, seq)
        return self.together_finding(members if not call.p2p else [rank], key, seq, rank, at)

    def stuck_findings(self, first: Iterable[Finding]) -> list[Finding]:
        """Return the findings about ranks that are stuck in a call which most others have finished, if nobody waits for
        them yet."""
        named_already = {rank for finding in first for rank in finding.culprits}
        stuck: dict[tuple[GroupKey, int], list[int]] = defaultdict(list)
        for rank, pending in self.pending_by_rank.items():
            call = stuck_call(self.table, pending, rank)
            if call and rank not in named_already:
                stuck[call].append(rank)
        return [self.unfinished_finding(ranks, key, seq) for (key, seq), ranks in sorted(stuck.items())]

    def unfinished_finding(self, ranks: list[int], key: GroupKey, seq: int) -> Finding:
        """Return the finding about ranks that still wait in a collective that all others have finished."""
        entry = self.table.calls_by_rank[key][ranks[0]].entry(seq) or 0
        call = self.table.call(ranks[0], entry)
        others = len(self.table.ranks_with_record(key)) - len(ranks)
        share = "all" if len(self.table.finished(key, seq)) == others else "most"
        words = (
            f"{named(ranks, 'wait')} in {call.collective} (number {seq} of {self.table.title(key)}), which {share} "
            "others have finished: a GPU or the process itself is at fault there."
        )
        return Finding(
            kind="unfinished",
            group=self.table.title(key),
            group_name=key[0],
            seq=seq,
            culprits=ranks,
            collective=call.collective,
            sides=self.calls.sides(ranks, key, seq),
            words=words,
            at_ns=self.table.records[ranks[0]].created_ns[entry],
            confidence=GUESS,
        )

    def together_finding(self, ranks: list[int], key: GroupKey, seq: int, rank: int, entry: int) -> Finding:
        """Return the finding about a call that every rank of a group has entered and that does not end.

        The culprits are the ranks whose GPU has not started it, if the GPUs of others have; otherwise nobody.
        """
        call = self.table.call(rank, entry)
        entered = {
            r: at
            for r in ranks
            if (rank_calls := self.table.calls_by_rank[key].get(r)) and (at := rank_calls.entry(seq)) is not None
        }
        late = [r for r, at in entered.items() if self.table.records[r].states[at] == "e"]
        late = late if 0 < len(late) < len(entered) and self.table.records[rank].backend != "gloo" else []
        what = f"{call.collective} (number {seq} of {self.table.title(key)})"
        words = f"{named(ranks, 'are')} all in {what}, and it does not end. "
        if late:
            words += f"The GPUs of {named(late).lower()} have not started it."
        else:
            words += "The records agree: look at the network and the GPUs between them next."
        return Finding(
            kind="together",
            group=self.table.title(key),
            group_name=key[0],
            seq=seq,
            culprits=late,
            collective=call.collective,
            sides=self.calls.sides(ranks, key, seq, call.p2p) or [self.calls.side_of_entry([rank], entry)],
            words=words,
            at_ns=self.table.records[rank].created_ns[entry],
            confidence=LIKELY if late else GUESS,
        )

    def mismatch_finding(self, each: Mismatch) -> Finding:
        """Return the finding about different calls under the same sequence number."""
        sides = [side for callers in each.calling_ranks for side in self.calls.sides(callers, each.group, each.seq)]
        title = self.table.title(each.group)
        parts = [self._call_phrase(callers, each) for callers in each.calling_ranks]
        words = f"Collective {each.seq} of {title}: {'; '.join(parts)}."
        if each.kind == "batch":
            words += " All earlier calls there had one size."
        if each.skipped:
            change = "left out one call" if each.skipped > 0 else "made one call more"
            words += f" From there on the calls agree again: {named(each.culprits).lower()} {change}."
        if each.kind == "order":
            words += " Later they make the same calls in a different order."
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

    def _call_phrase(self, callers: list[int], each: Mismatch) -> str:
        side = self.calls.sides(callers, each.group, each.seq)[0]
        text = f"{named(callers, 'have').lower()} called {side.collective}"
        if each.kind in ("size", "batch", "dtype"):
            text += f" on {side.dtype} {'x'.join(map(str, side.sizes[0])) if side.sizes else ''}".rstrip()
        return f"{text} at {side.where.rpartition('/')[2]}" if side.where else text

    def _pair_finding(self, root: list[int], inside: list[WaitEdge]) -> Finding:
        """Return the finding about sends and receives that wait for each other."""
        first = min(inside, key=lambda wait: (self.calls.at_ns(wait), wait.rank))
        sides = [self.calls.side_of_entry([wait.rank], wait.entry) for wait in inside]
        pairs = [f"rank {wait.rank} is in {self.table.call(wait.rank, wait.entry).collective}" for wait in inside]
        return Finding(
            kind="p2p",
            group=self.table.title(first.group),
            group_name=first.group[0],
            seq=first.seq,
            culprits=root,
            collective=self.table.call(first.rank, first.entry).collective,
            sides=sides,
            words=f"{named(root, 'wait')} for each other: {', '.join(pairs)}, and no partner makes the matching call.",
            at_ns=self.calls.at_ns(first),
            confidence=TIED,
        )

    def _cycle_finding(self, root: list[int], inside: list[WaitEdge]) -> Finding:
        """Return the finding about ranks that are in different groups and wait for each other.

        The culprits are the ranks in calls with fewer ranks than another; on a tie, all of them.
        """
        at_front = [wait for wait in inside if wait.entry == self.pending_by_rank[wait.rank].first] or inside
        places = {(wait.group, wait.seq, self.calls.is_p2p(wait)): wait for wait in at_front}
        ranks_at = {place: self.calls.ranks_in(*place) for place in places}
        most = max(map(len, ranks_at.values()))
        minority = sorted(
            {wait.rank for wait in at_front if len(ranks_at[wait.group, wait.seq, self.calls.is_p2p(wait)]) < most}
        )
        tied = not minority or len([1 for ranks in ranks_at.values() if len(ranks) == most]) > 1
        culprits = root if tied else minority
        ordered = sorted(ranks_at, key=lambda place: (-len(ranks_at[place]), place))
        same = (
            not tied and len({call_signature(self.table.call(wait.rank, wait.entry)) for wait in places.values()}) == 1
        )
        sides = [side for place in ordered for side in self.calls.sides(ranks_at[place], *place)]
        parts = [
            f"{named(ranks_at[place], 'wait').lower()} in {side.collective} of {self.table.title(place[0])}"
            for place in ordered
            for side in self.calls.sides(ranks_at[place], *place)[:1]
        ]
        why = (
            f"{named(culprits)} called it in another group than the others."
            if same
            else "They go through these groups in different orders."
        )
        first = min(inside, key=lambda wait: (self.calls.at_ns(wait), wait.rank))
        return Finding(
            kind="wrong_group" if same else "group_cycle",
            group=self.table.title(ordered[0][0]),
            group_name=ordered[0][0][0],
            seq=ordered[0][1],
            culprits=culprits,
            collective=sides[0].collective,
            sides=sides,
            words=f"{_sentence('; '.join(parts))} {why}",
            at_ns=self.calls.at_ns(first),
            confidence=TIED if tied else LIKELY,
        )

    def culprits_of_minority(self, finding: Finding) -> Finding:
        """Blame the few ranks that entered a call which most of the group never did: the call probably depends on a
        condition that only they met."""
        entered = sorted({rank for side in finding.sides if side.collective for rank in side.ranks})
        idle = all(self.pending_by_rank[rank].first is None for rank in finding.culprits if rank in self.table.records)
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

    def findings_without_edges(self) -> list[Finding]:
        """Return the finding for a job without any edge in the wait-for graph."""
        if self.mismatches:
            return [self.mismatch_finding(self.mismatches[0])]
        waiting: dict[tuple[GroupKey, int], list[int]] = defaultdict(list)
        for rank, pending in self.pending_by_rank.items():
            for key, (seq, _) in pending.in_groups.items():
                waiting[key, seq].append(rank)
        for (key, seq), ranks in sorted(waiting.items(), key=lambda item: (-len(item[1]), item[0])):
            members = [member for member in self.table.members[key] if member in self.table.records]
            if len(ranks) < len(members):
                return [self.unfinished_finding(ranks, key, seq)]
            entry = self.table.calls_by_rank[key][ranks[0]].entry(seq) or 0
            return [self.together_finding(ranks, key, seq, ranks[0], entry)]
        if self.table.silent and self.table.records:
            silent = self.table.silent
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
        """Return the findings about ranks that wait only because of the first findings."""
        reported = {(finding.group_name, finding.seq) for finding in first}
        found: list[Finding] = []
        for each in self.mismatches:
            if (each.group[0], each.seq) not in reported:
                found.append(msgspec.structs.replace(self.mismatch_finding(each), follows=True))
        reported |= {(finding.group_name, finding.seq) for finding in found}
        places: dict[tuple[GroupKey, int], list[WaitEdge]] = defaultdict(list)
        for wait in self.waits:
            if (wait.group[0], wait.seq) not in reported and wait.reason in ("missing", "p2p"):
                places[wait.group, wait.seq].append(wait)
        for (key, seq), waiting in sorted(places.items(), key=lambda item: (self.calls.at_ns(item[1][0]), item[0])):
            ranks = sorted({wait.rank for wait in waiting})
            absent = sorted({rank for wait in waiting for rank in wait.for_ranks})
            collective = self.calls.phrase(waiting[0])
            found.append(
                Finding(
                    kind="missing",
                    group=self.table.title(key),
                    group_name=key[0],
                    seq=seq,
                    culprits=absent,
                    collective=self.table.call(waiting[0].rank, waiting[0].entry).collective,
                    sides=self.calls.sides(ranks, key, seq, self.calls.is_p2p(waiting[0])),
                    words=f"{named(ranks, 'wait')} in {collective} for {named(absent).lower()}.",
                    at_ns=self.calls.at_ns(waiting[0]),
                    follows=True,
                )
            )
        return found


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
