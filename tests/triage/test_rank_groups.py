"""The display of a report: ranks in groups, excerpts of the source."""

import time
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.text.units import rank_ranges
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.triage import phrases
from ddpwizard.app.triage.process_json import process_rows
from ddpwizard.app.triage.rank_groups import (
    RankGroup,
    blocking_children,
    group_cells,
    group_rows,
    job_title,
    long_notes,
    rank_groups,
    rank_table,
    ranks_label,
    resource_use,
    since_text,
    source_excerpt,
)
from ddpwizard.app.triage.types import Child, JobReport
from helpers.recorded_state import large, surrounded
from helpers.recorded_state import report as recorded
from helpers.synthetic_job import SCRIPT, report_of, stack

TEXT = """def main():
    if rank == 0:
        total = x
        dist.all_reduce(total)
    one = 1
    two = 2
    three = 3
    dist.barrier()
main()
"""


@pytest.fixture
def report() -> JobReport:
    """Rank 0 in an all_reduce, 63 others in a barrier."""
    places = [stack("all_reduce", ("main", 4))] + [stack("barrier", ("main", 8))] * 63
    return report_of(TEXT, *places)


def test_ranks_at_one_place_are_one_row(report: JobReport) -> None:
    groups = rank_groups(report)
    assert [(g.ranks, g.where, g.collective, g.culprit) for g in groups] == [
        ("0", "train.py:4", "all_reduce", True),
        ("1–63", "train.py:8", "barrier", False),
    ]
    assert groups[0].since == "≥ 1 s"


def test_source_shows_the_condition_and_both_places(report: JobReport) -> None:
    lines = source_excerpt(report)
    assert [line.number for line in lines] == [1, 2, 3, 4, 5, None, 7, 8, 9]
    marked = {line.number: (line.mark, line.culprit) for line in lines if line.mark}
    assert marked == {2: ("cause", True), 4: ("rank 0", True), 8: ("ranks 1–63", False)}
    assert lines[1].text == "    if rank == 0:"


def test_the_line_of_the_cause_is_first_with_its_file(report: JobReport) -> None:
    sources = {**report.observed.sources, "/home/me/metrics.py": "def log():\n    if is_main():\n        mean()\n"}
    verdict = msgspec.structs.replace(report.verdict, branch="/home/me/metrics.py:2")
    observed = msgspec.structs.replace(report.observed, sources=sources)
    lines = source_excerpt(msgspec.structs.replace(report, verdict=verdict, observed=observed))
    assert [(line.number, line.mark) for line in lines[:5]] == [(None, ""), (1, ""), (2, "cause"), (3, ""), (None, "")]
    assert [line.text for line in lines if line.number is None and line.text] == ["/home/me/metrics.py", SCRIPT]


def test_source_excerpt_of_another_place(report: JobReport) -> None:
    lines = source_excerpt(report, report.ranks[0].where)
    assert [line.number for line in lines] == [1, 2, 3, 4, 5, None, 7, 8, 9], "it is among those of the verdict"
    path = (report.ranks[0].where or "").rpartition(":")[0]
    assert [line.number for line in source_excerpt(report, f"{path}:6")] == [5, 6, 7]


def test_each_rank_can_have_its_own_row(report: JobReport) -> None:
    assert [group.ranks for group in rank_groups(report, [3, 0, 2], alone=True)] == ["0", "2", "3"]


def test_what_differs_within_a_group_is_a_range(tmp_path: Path) -> None:
    first, others = rank_groups(surrounded(recorded(tmp_path)))
    assert (first.seq, first.group, first.cpu, first.gpu, first.memory) == (
        "117",
        "default_pg",
        "1%",
        "100%",
        "10 GiB",
    )
    assert (others.members, others.gpu, others.memory, others.io) == ((1, 2, 3), "97–99%", "13 GiB", "64 KiB/s")


def test_unread_resource_use_is_none(report: JobReport) -> None:
    use = resource_use(report.observed.seen[0])
    assert use.cpu_percent == 0
    assert (use.gpu_percent, use.memory_bytes, use.io_bytes_per_s) == (None, None, None)
    assert resource_use(None).cpu_percent is None


def test_time_since_progress_is_a_lower_bound_unless_it_is_known(report: JobReport) -> None:
    row = report.ranks[0]
    known = msgspec.structs.replace(row, since_s=660.0, since_from="recorder")
    assert since_text([row]) == "≥ 1 s"
    assert since_text([known]) == "11 min"
    assert since_text([known, row]) == "≥ 1 s", "one of them is only known at least"
    assert since_text([msgspec.structs.replace(row, since_s=None)]) == ""


def test_many_ranks_are_counted() -> None:
    assert ranks_label([0]) == "rank 0"
    assert ranks_label(range(1, 64)) == "ranks 1–63"
    assert ranks_label(range(0, 1024, 2)) == "512 ranks"


def test_a_thousand_ranks_are_grouped_quickly(tmp_path: Path) -> None:
    many = large(tmp_path)
    groups = rank_groups(many)
    assert len(groups) == 301
    assert groups[0].members == (517,)
    assert sum(len(group.members) for group in groups) == 1024


def test_as_many_ranks_as_a_job_may_claim_are_grouped_quickly(report: JobReport) -> None:
    rows = [msgspec.structs.replace(report.ranks[1], rank=rank) for rank in range(100_000)]
    start = time.process_time()
    (group,) = group_rows(rows, [*range(100_000)])
    assert len(group.members) == 100_000
    assert time.process_time() - start < 20, "with a search in a list for each rank it takes minutes"


def test_job_title(report: JobReport) -> None:
    assert job_title(report) == "train.py · 64 ranks · torchrun (pid 99)"


@pytest.mark.parametrize(
    ("ranks", "text"), [([3], "3"), ([0, 1], "0, 1"), ([2, 1, 3], "1–3"), ([0, 2, 3, 4, 9], "0, 2–4, 9"), ([], "")]
)
def test_rank_ranges(ranks: list[int], text: str) -> None:
    assert rank_ranges(ranks) == text


@pytest.mark.parametrize(
    ("ranks", "verb", "text"),
    [
        ([0], "wait", "Rank 0 waits"),
        ([0, 1], "wait", "Ranks 0, 1 wait"),
        ([2], "are stopped", "Rank 2 is stopped"),
        ([2], "have", "Rank 2 has"),
    ],
)
def test_verbs_agree(ranks: list[int], verb: str, text: str) -> None:
    assert phrases.ranks_phrase(ranks, verb) == text


def test_a_loader_worker_that_blocks_the_culprit_is_named(report: JobReport) -> None:
    worker = Child(
        pid=4711,
        command=["python"],
        kind="loader",
        process_state="S",
        moved=False,
        stack=[StackFrame("__getitem__", "/home/ana/run/data.py", 8)],
    )
    seen = [msgspec.structs.replace(each, children=[worker]) for each in report.observed.seen]
    observed = msgspec.structs.replace(report.observed, seen=seen)
    lines = blocking_children(msgspec.structs.replace(report, observed=observed))
    assert lines == ["rank 0's loader worker (pid 4711) is at data.py:8  __getitem__"]
    assert blocking_children(report) == []


def test_process_rows_hold_the_data_of_each_process(report: JobReport) -> None:
    row = process_rows(report)[0]
    assert (row["rank"], row["pid"], row["looks"], row["switches"]) == (0, 100, 2, 0)
    assert row["stack"][-1] == f"main ({SCRIPT}:4)"
    assert row["children"] == row["links"] == row["devices"] == row["output"] == []


def test_table_rows_have_the_cells_of_all_faces(tmp_path: Path) -> None:
    groups = rank_groups(surrounded(recorded(tmp_path)))
    columns, rows = rank_table(groups)
    assert columns == ["rank", "state", "where", "call", "last moved"]
    assert rows[0] == ["0", "waiting", f"{groups[0].where}  {groups[0].function}", "all_reduce", groups[0].since]
    columns, rows = rank_table(groups, resources=True)
    assert columns[5:] == ["group", "seq", "CPU", "GPU", "memory", "I/O"]
    assert rows[1][-2:] == ["13 GiB", "64 KiB/s"]


def test_cells_of_a_group() -> None:
    group = RankGroup("0, 2, 4", "blocked_io", "", "", "", "", False, "", members=(0, 2, 4))
    assert group_cells(group)["state"] == "blocked io"
    assert group_cells(group, most=5)["rank"] == "3 ranks"
    assert group_cells(group._replace(state="running"))["last moved"] == ""
    assert group_cells(group._replace(state="running", moves_now=True))["last moved"] == "now"


def test_note_replaces_an_unknown_place_and_is_shortened() -> None:
    note = "the stack could not be read because the kernel refuses it to this user"
    group = RankGroup("0", "unreadable", "", "", "", "", False, note, members=(0,))
    assert group_cells(group)["where"] == "the stack could not be read because the kernel …"
    assert long_notes([group, group]) == [note]
    placed = group._replace(where="a.py:1", function="f", collective="barrier", note="alone")
    cells = group_cells(placed)
    assert (cells["where"], cells["call"]) == ("a.py:1  f", "barrier (alone)")
    assert long_notes([placed]) == []
