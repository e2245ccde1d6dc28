"""Culprits and findings of synthetic records, independent of the order of the dumps."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from ddpwizard.app.triage.flight_recorder.analyse import analyse_records
from ddpwizard.app.triage.flight_recorder.parse import parse_dump
from ddpwizard.app.triage.flight_recorder.types import Finding, RecorderVerdict
from helpers.flight_recorder_dumps import dump, entry, pickled

Dump = Mapping[str, Any]
HERE, THERE = (("step", "/home/me/train.py", 24),), (("last", "/home/me/train.py", 48),)


def world(ranks: int, entries: Mapping[int, Sequence[dict[str, Any]]], **groups: Sequence[int]) -> dict[int, Dump]:
    """Return dumps of an NCCL job: two calls that all ranks finished, then the given entries."""
    named: dict[str, Sequence[int]] = {"0": range(ranks), **{name.removeprefix("g"): g for name, g in groups.items()}}
    mine = {rank: {name: g for name, g in named.items() if rank in g} for rank in range(ranks)}
    return {rank: dump([entry(0), entry(1), *entries.get(rank, ())], mine[rank]) for rank in range(ranks)}


def analysed(dumps: Mapping[int, Dump], world_size: int | None = None) -> RecorderVerdict:
    """Analyse the dumps and check that their order does not matter."""
    records = [parse_dump(pickled(content), rank) for rank, content in dumps.items()]
    found = analyse_records(records, world_size=world_size)
    for seed in range(20):
        random.Random(seed).shuffle(records)
        assert msgspec.json.encode(analyse_records(records, world_size=world_size)) == msgspec.json.encode(found)
    return found


def first(found: RecorderVerdict) -> list[Finding]:
    return [finding for finding in found.findings if not finding.follows]


def waiting(number: int, **more: Any) -> dict[str, Any]:
    return entry(number, done=False, **more)


def test_agreeing_ranks_have_no_findings() -> None:
    found = analysed(world(4, {}))
    assert (found.culprits, found.findings) == ([], [])


def test_rank_that_has_not_entered_is_missing() -> None:
    found = analysed(world(4, {rank: [waiting(2, frames=HERE)] for rank in (0, 1, 3)}))
    (finding,) = first(found)
    assert (finding.kind, finding.culprits, finding.seq, finding.collective) == ("missing", [2], 3, "all_reduce")
    assert found.confidence > 0.8
    assert [(side.ranks, side.where) for side in finding.sides] == [
        ([0, 1, 3], "/home/me/train.py:24"),
        ([2], "/home/me/train.py:24"),
    ]
    assert finding.words == "Ranks 0, 1, 3 wait in all_reduce (number 3 of default_pg). Rank 2 has not entered it."


def test_rank_that_stopped_after_the_first_pending_call_is_missing() -> None:
    """As with a failing GPU: the other ranks continue to enqueue."""
    found = analysed(world(3, {rank: [waiting(2), waiting(3)][: 1 if rank == 1 else 2] for rank in range(3)}))
    assert (first(found)[0].kind, found.culprits, found.confidence) == ("missing", [1], 0.5)


def test_rank_without_record_is_silent() -> None:
    dumps = world(4, {rank: [waiting(2)] for rank in (0, 1, 3)})
    del dumps[2]
    found = analysed(dumps)
    assert (first(found)[0].kind, found.culprits, found.silent) == ("silent", [2], [2])
    assert analysed(world(2, {0: [waiting(2)], 1: [waiting(2)]}), world_size=3).culprits == []


def test_call_that_only_one_rank_entered_is_extra() -> None:
    found = analysed(world(4, {1: [waiting(2)]}))
    assert (first(found)[0].kind, found.culprits) == ("extra", [1])


@pytest.mark.parametrize(
    ("odd", "kind"),
    [
        ({"op": "nccl:broadcast"}, "op"),
        ({"sizes": [[7]]}, "size"),
        ({"dtype": "Half"}, "dtype"),
    ],
)
def test_different_op_size_or_dtype_is_a_mismatch(odd: dict[str, Any], kind: str) -> None:
    found = analysed(world(4, {rank: [waiting(2)] for rank in range(3)} | {3: [waiting(2, **odd)]}))
    (finding,) = first(found)
    assert (finding.kind, finding.culprits, finding.seq) == (kind, [3], 3)
    assert [side.ranks for side in finding.sides] == [[0, 1, 2], [3]]
    tie = analysed(world(2, {0: [waiting(2)], 1: [waiting(2, **odd)]}))
    assert (first(tie)[0].kind, tie.culprits, tie.confidence < 0.5) == (kind, [0, 1], True)


def test_one_operation_at_two_lines_is_two_calls() -> None:
    usual = [waiting(2, frames=HERE), waiting(3, frames=HERE), waiting(4, frames=HERE)]
    odd = [waiting(2, frames=THERE, sizes=[[1]]), waiting(3, frames=HERE), waiting(4, frames=HERE)]
    found = analysed(world(4, dict.fromkeys(range(3), usual) | {3: odd}))
    (finding,) = first(found)
    assert (finding.kind, found.culprits) == ("op", [3])
    assert [(side.ranks, side.where[-2:]) for side in finding.sides] == [([0, 1, 2], "24"), ([3], "48")]
    assert "rank 3 made one call more" in finding.words
    found = analysed(world(2, {0: [waiting(2, frames=HERE)], 1: [waiting(2, frames=THERE, sizes=[[1]])]}))
    assert first(found)[0].kind == "op"


@pytest.mark.parametrize(
    ("before", "usual", "odd", "kind"),
    [
        ([[32, 10]], [[32, 10]], [[7, 10]], "batch"),
        ([[32, 10]], [[32, 10]], [[32, 7]], "size"),
        ([[20, 10]], [[32, 10]], [[7, 10]], "size"),  # it varies: data of any length
        ([], [[32, 10]], [[7, 10]], "size"),
    ],
)
def test_fewer_rows_than_in_all_earlier_calls_are_a_smaller_batch(
    before: list[list[int]], usual: list[list[int]], odd: list[list[int]], kind: str
) -> None:
    def calls(last: list[list[int]]) -> list[dict[str, Any]]:
        earlier = [entry(2, sizes=before, frames=THERE)] if before else []
        return [*earlier, waiting(3 if before else 2, sizes=last, frames=THERE)]

    found = analysed(world(3, {0: calls(usual), 1: calls(odd), 2: calls(usual)}))
    assert (first(found)[0].kind, found.culprits) == (kind, [1])


def test_ranks_that_have_made_no_call_yet_are_not_the_majority() -> None:
    alone = {rank: dump([waiting(0)] if rank == 1 else [], {"0": range(4)}) for rank in range(4)}
    found = analysed(alone)
    assert (first(found)[0].kind, found.culprits) == ("first_call", [0, 2, 3])
    assert "Ranks 0, 2, 3 have not entered it: they have made no call yet." in first(found)[0].words


def test_equal_element_counts_are_not_a_mismatch() -> None:
    found = analysed(world(2, {0: [waiting(2, sizes=[[2, 6]])], 1: [waiting(2, sizes=[[12]])]}))
    assert (first(found)[0].kind, found.culprits) == ("together", [])


def test_uneven_all_to_all_is_not_a_mismatch() -> None:
    entries = {rank: [waiting(2, op="nccl:all_to_all", sizes=[[rank + 1]], out=[[2]])] for rank in range(3)}
    assert analysed(world(3, entries)).culprits == []


def test_calls_in_another_order_are_a_mismatch() -> None:
    usual = [waiting(2), waiting(3, op="nccl:broadcast", sizes=[[4]])]
    odd = [waiting(2, op="nccl:broadcast", sizes=[[4]]), waiting(3)]
    found = analysed(world(3, {0: usual, 1: odd, 2: usual}))
    assert (first(found)[0].kind, found.culprits) == ("order", [1])


def test_skipped_call_is_recognised() -> None:
    calls = [("nccl:broadcast", 1), ("nccl:all_reduce", 2), ("nccl:reduce", 3), ("nccl:all_reduce", 4)]
    usual = [waiting(2 + at, op=op, sizes=[[size]]) for at, (op, size) in enumerate(calls)]
    odd = [waiting(2 + at, op=op, sizes=[[size]]) for at, (op, size) in enumerate(calls[1:])]
    found = analysed(world(3, {0: usual, 1: usual, 2: odd}))
    assert (first(found)[0].kind, first(found)[0].seq, found.culprits) == ("op", 3, [2])
    assert "left out one call" in first(found)[0].words


def test_call_in_another_group_is_wrong_group() -> None:
    entries = {rank: [waiting(2)] for rank in (0, 1, 2)}
    entries[3] = [waiting(2, seq=1, group=("5", "pair"), group_id=1)]
    found = analysed(world(4, entries, g5=[2, 3]))
    assert (first(found)[0].kind, found.culprits) == ("wrong_group", [3])


def test_groups_entered_in_different_orders_are_a_cycle() -> None:
    left, right = {"group": ("5", "left"), "group_id": 1}, {"group": ("6", "right"), "group_id": 2}
    small = {"op": "nccl:broadcast", "sizes": [[1]]}
    found = analysed(
        world(2, {0: [waiting(2, seq=1, **left)], 1: [waiting(2, seq=1, **right, **small)]}, g5=[0, 1], g6=[0, 1])
    )
    assert (first(found)[0].kind, found.culprits, found.confidence < 0.5) == ("group_cycle", [0, 1], True)
    both = {
        0: [waiting(2, seq=1, **left), waiting(3, seq=1, **right, **small)],
        1: [waiting(2, seq=1, **right, **small), waiting(3, seq=1, **left)],
    }
    found = analysed(world(2, both, g5=[0, 1], g6=[0, 1]))
    assert (first(found)[0].kind, found.culprits) == ("group_cycle", [0, 1])


@pytest.mark.parametrize("word", ["recv {0}<-{1}", "send {0}->{1}"])
def test_p2p_pairs_that_wait_for_each_other(word: str) -> None:
    entries = {
        0: [waiting(2, op=f"nccl:{word.format(0, 1)}", p2p=True, seq=1)],
        1: [waiting(2, op=f"nccl:{word.format(1, 0)}", p2p=True, seq=1)],
    }
    for ranks in (2, 3):
        found = analysed(world(ranks, entries))
        assert (first(found)[0].kind, found.culprits, found.confidence < 0.5) == ("p2p", [0, 1], True)


def test_matching_send_and_recv_have_no_culprit() -> None:
    entries = {
        0: [waiting(2, op="nccl:send 0->1", p2p=True, seq=1)],
        1: [waiting(2, op="nccl:recv 1<-0", p2p=True, seq=1)],
    }
    assert analysed(world(3, entries)).culprits == []


def test_waits_that_are_consequences_are_marked() -> None:
    """Rank 3 has stopped: its group waits for it, and another group waits for that group."""
    pair = {"group": ("5", "pipe"), "group_id": 1}
    entries = {
        0: [waiting(2, op="nccl:recv 0<-1", p2p=True, seq=1, **pair)],
        1: [waiting(2, seq=1, group=("6", "stage"), group_id=2)],
        2: [waiting(2, seq=1, group=("6", "stage"), group_id=2)],
    }
    found = analysed(world(4, entries, g5=[0, 1], g6=[1, 2, 3]))
    assert found.culprits == [3]
    assert [(finding.group_name, finding.follows) for finding in found.findings] == [("6", False), ("5", True)]


def test_rank_in_a_collective_finished_by_all_others() -> None:
    found = analysed(world(3, {0: [entry(2)], 1: [waiting(2)], 2: [entry(2)]}))
    assert (first(found)[0].kind, found.culprits) == ("unfinished", [1])


def test_rank_whose_gpu_has_not_started_is_the_culprit() -> None:
    found = analysed(world(3, {0: [waiting(2, state="started")], 1: [waiting(2)], 2: [waiting(2, state="started")]}))
    assert (first(found)[0].kind, found.culprits) == ("together", [1])


def test_one_name_for_different_groups() -> None:
    """Ranks number their groups separately if only some of them create a group."""
    dumps = {
        rank: dump([entry(0), waiting(1, seq=1, group=("1", "mine"), group_id=1)], {"0": range(4), "1": members})
        for rank, members in ((0, [0, 1]), (1, [0, 1]), (2, [2, 3]))
    }
    dumps[3] = dump([entry(0)], {"0": range(4), "1": [2, 3]})
    assert analysed(dumps).culprits == [3]


def test_gloo_call_that_timed_out_counts_as_pending() -> None:
    """Gloo records a call that ended with an error as completed."""
    dumps = {rank: dump([entry(n, op="gloo:all_reduce") for n in range(3 if rank == 1 else 4)]) for rank in range(3)}
    found = analysed(dumps)
    assert (first(found)[0].kind, first(found)[0].seq, found.culprits) == ("missing", 4, [1])


def test_parts_of_a_coalesced_call_are_done_with_it() -> None:
    parts = [waiting(2, op="nccl:send 0->1", p2p=True, seq=1), entry(3, op="nccl:coalesced", seq=1, p2p=True)]
    record = parse_dump(pickled(dump(parts, {"0": [0, 1]})), 0)
    assert record.states == "dd"


def test_no_records_and_empty_records_have_no_culprit() -> None:
    assert analyse_records([]).culprits == []
    assert analysed({0: dump([], {"0": [0]})}).culprits == []


def test_two_ranks_with_failed_gpus_are_both_named() -> None:
    """Each still waits in a call of its group that the others have finished. The first one has gone on to enqueue a
    call of all ranks, which the second has not entered: that wait is no reason to acquit it."""
    low, high = {"group": ("a", "low"), "group_id": 1}, {"group": ("b", "high"), "group_id": 2}
    entries = {
        rank: [entry(2, seq=1, done=rank not in (1, 6), **(low if rank < 4 else high))]
        + ([waiting(3, seq=3)] if rank != 6 else [])
        for rank in range(8)
    }
    found = analysed(world(8, entries, ga=range(4), gb=range(4, 8)))
    assert found.culprits == [1, 6]
    assert {finding.kind for finding in first(found)} == {"wrong_group", "unfinished"}


def test_ranks_missing_in_two_groups_are_both_named() -> None:
    low, high = {"group": ("a", "low"), "group_id": 1}, {"group": ("b", "high"), "group_id": 2}
    entries = {rank: [waiting(2, seq=1, **(low if rank < 4 else high))] for rank in range(8) if rank not in (2, 5)}
    found = analysed(world(8, entries, ga=range(4), gb=range(4, 8)))
    assert found.culprits == [2, 5]
    assert {finding.group for finding in first(found)} == {"low", "high"}
