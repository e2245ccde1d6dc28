"""The places at which the ranks of a crashed job ended, from what they left in the directory of the run."""

from pathlib import Path

import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.system.run_directory import RankRecordFile
from ddpwizard.app.watchdog.crash import diagnose_crash
from ddpwizard.app.watchdog.ended_ranks import EndedRank
from ddpwizard.app.watchdog.exit_events import ProcessExit
from ddpwizard.app.watchdog.last_stacks import last_stack, report_of_ends
from helpers.built_in_knowledge import built_in_knowledge
from helpers.synthetic_job import lines_with

SITE = "/venv/lib/python3.11/site-packages/torch"
SCRIPT = """\
def train():
    for batch in loader:  # LOOP
        model(batch).backward()  # STEP

def main():
    train()  # TRAIN
    dist.all_reduce(total)  # SUM

main()  # CALL
"""
MISMATCH = """\
terminate called after throwing an instance of 'gloo::EnforceNotMet'
  what():  [enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 1156 vs 4. \
Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?
"""
LOST = "RuntimeError: Read error [127.0.0.1]:9921: Connection reset by peer."


def left(private: Path, *, dump: bool = True) -> list[EndedRank]:
    """Write what two ranks leave: rank 0 lost its peer in the backward pass, rank 1 was aborted behind the loop."""
    script = private / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    step, train, total, call = lines_with(SCRIPT, "# STEP", "# TRAIN", "# SUM", "# CALL")
    frames = [(script, call, "<module>"), (script, train, "main"), (script, step, "train")]
    frames += [(f"{SITE}/_tensor.py", 623, "backward"), (f"{SITE}/autograd/__init__.py", 395, "backward")]
    frames += [(f"{SITE}/autograd/graph.py", 979, "_engine_run_backward")]
    lines = ["Traceback (most recent call last):", *(f'  File "{f}", line {n}, in {name}' for f, n, name in frames)]
    stamped = "".join(f"2026-11-27T11:29:09.910 [rank0]: {line}\n" for line in [*lines, LOST])
    (private / "50.log").write_text(stamped, encoding="utf-8")
    (private / "51.log").write_text(MISMATCH, encoding="utf-8")
    if dump:
        (private / "51.stacks").write_text(
            "Fatal Python error: Aborted\n\nThread 0x00007f0000000001 (most recent call first):\n"
            "  <no Python frame>\n\nThread 0x00007f193273cb80 (most recent call first):\n"
            f'  File "{SITE}/distributed/distributed_c10d.py", line 3000 in all_reduce\n'
            f'  File "{script}", line {total} in main\n  File "{script}", line {call} in <module>\n',
            encoding="utf-8",
        )
    records = [
        RankRecordFile(
            pid=50 + rank,
            started_ticks=1,
            rank=rank,
            world_size=2,
            main_thread="0x00007f193273cb80",
            command=["python", "train.py"],
            cwd=str(private),
            ended=error,
        )
        for rank, error in enumerate([LOST, ""])
    ]
    return [EndedRank(records[0], ProcessExit(10.0, 1 << 8)), EndedRank(records[1], ProcessExit(9.0, 6))]


def test_ranks_in_different_collectives_are_judged_by_their_places(tmp_path: Path) -> None:
    report = report_of_ends(tmp_path, left(tmp_path))
    assert report is not None
    assert (report.verdict.cause, report.verdict.culprits) == ("uneven-inputs", [1])
    step, total = lines_with(SCRIPT, "# STEP", "# SUM")
    assert f"train.py:{step}" in report.verdict.why and f"train.py:{total}" in report.verdict.why


def test_without_the_stack_of_every_rank_nothing_is_concluded(tmp_path: Path) -> None:
    ended = left(tmp_path, dump=False)
    assert last_stack(tmp_path, ended[1]) == []
    assert report_of_ends(tmp_path, ended) is None
    assert report_of_ends(tmp_path, left(tmp_path)[:1]) is None


@pytest.mark.parametrize(("dump", "first"), [(True, "uneven-inputs"), (False, "collective-desync")])
def test_what_led_to_the_places_comes_before_the_mismatch(dump: bool, first: str, tmp_path: Path) -> None:
    ended = left(tmp_path, dump=dump)
    case = Case(built_in_knowledge())
    lines = diagnose_crash(case, tmp_path, ended, ended[1], lambda _cause, _timeline: [])
    assert case.diagnosis(in_scope=True).causes[0].id == first
    assert not any("(100%)" in line for line in lines)
    assert ("left the loop" in lines[0]) == dump
