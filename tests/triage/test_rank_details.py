"""The page of one rank, and the distinct stacks of many."""

from pathlib import Path

import msgspec
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.triage import rank_details
from helpers.recorded_state import large, report, surrounded
from helpers.synthetic_job import report_of, stack

TEXT = """\
def main():
    for step in range(9):
        if step == 3:
            continue
        if rank == 0:
            # one
            # two
            # three
            # four
            dist.all_reduce(total)
    dist.barrier()
main()
"""


def test_source_shows_the_enclosing_heads_above_the_line() -> None:
    found = report_of(TEXT, stack("all_reduce", ("main", 10)), stack("barrier", ("main", 11)))
    lines = rank_details.source_around_rank(found, found.ranks[0])
    assert [line.number for line in lines] == [1, 2, 3, None, 5, None, 7, 8, 9, 10, 11, 12]
    assert [(line.number, line.mark, line.culprit) for line in lines if line.mark] == [(10, "rank 0", True)]


def test_an_unread_file_has_no_source() -> None:
    found = report_of("", stack("barrier", ("main", 11), path="/elsewhere/x.py"))
    assert rank_details.source_around_rank(found, found.ranks[0]) == []


def test_rank_page_shows_all_data_of_a_rank(tmp_path: Path) -> None:
    found = surrounded(report(tmp_path))
    row = found.ranks[2]
    facts = dict(rank_details.rank_facts(found, row))
    assert facts["state"] == "waiting in barrier"
    assert facts["last moved"] == "≥ 3 s ago, from samples"
    assert facts["CPU"] == "1% of one core"
    assert facts["I/O"] == "64 KiB/s"
    assert facts["kernel"] == "sleeping, in futex_wait_queue"
    assert facts["GPU"] == "2, 98% busy, 12 GiB in use"
    assert (facts["group"], facts["sequence"]) == ("default_pg", "118")
    page = {part.title: [line.text for line in part.lines] for part in rank_details.detail_sections(found, row)}
    assert list(page) == [
        "Main thread, innermost first",
        "Processes it started: 1",
        "Connections: 2",
        "Last output (/home/ana/run/logs/0/stderr.log)",
        "Thread QueueFeederThread",
    ]
    assert page["Processes it started: 1"][0] == "loader worker, pid 5002: sleeping, no progress"
    assert page["Connections: 2"][0] == "10.0.0.7:41002 → 10.0.0.8:5", "the one whose peer takes nothing first"
    assert page["Last output (/home/ana/run/logs/0/stderr.log)"] == ["step 117 loss 2.31", "rank 2 validates"]


def test_time_since_progress_from_the_flight_recorder(tmp_path: Path) -> None:
    row = msgspec.structs.replace(report(tmp_path).ranks[0], since_s=660.0, since_from="recorder")
    assert dict(rank_details.rank_facts(report(tmp_path), row))["last moved"] == "11 min ago, from the Flight Recorder"


def test_rank_page_of_a_missing_rank(tmp_path: Path) -> None:
    found = report(tmp_path)
    missing = msgspec.structs.replace(found.ranks[1], pid=None, state="missing", where=None, note="no such process")
    assert rank_details.detail_sections(found, missing) == []
    assert dict(rank_details.rank_facts(found, missing))["note"] == "no such process"


def test_equal_stacks_are_grouped_the_rarest_first(tmp_path: Path) -> None:
    found = rank_details.distinct_stacks(report(tmp_path), range(4))
    assert [stack.ranks for stack in found] == [[0], [1, 2, 3]]
    assert found[0].frames[0].function == "all_reduce"
    assert sum(len(stack.ranks) for stack in rank_details.distinct_stacks(large(tmp_path), range(1024))) == 1024


def test_a_long_stack_is_truncated_with_a_note() -> None:
    frames = [StackFrame(f"f{n}", "/x.py", n) for n in range(20)]
    assert [line.text for line in rank_details.frame_lines(frames, 3)] == ["f0", "f1", "f2", "… 17 more"]
