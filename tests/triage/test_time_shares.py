"""Shares of time from stack samples: the activity of a stack, shares of each rank, and their trend."""

from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.triage.slow_place import count_places
from ddpwizard.app.triage.time_shares import Activity, History, activity_of, extend_history, share_lines, time_shares
from ddpwizard.app.triage.types import Sample
from helpers.recorded_state import report

TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
USER = StackFrame("main", "/home/me/train.py", 12)


def sample(*frames: tuple[str, str], at: float = 1.0, state: str = "R") -> Sample:
    stack = [StackFrame(function, path, 1) for function, path in frames]
    return Sample(at=at, process_state=state, cpu_s=0.0, switches=0, stack=[*stack, USER])


LOADER = (("__getitem__", "/home/me/data.py"), ("fetch", f"{TORCH}/utils/data/_utils/fetch.py"))
WAIT = (("all_reduce", f"{TORCH}/distributed/distributed_c10d.py"),)


@pytest.mark.parametrize(
    ("frames", "activity"),
    [
        (LOADER, "loader"),
        (WAIT, "collective"),
        ((("step", f"{TORCH}/optim/adamw.py"),), "optimizer"),
        ((("forward", f"{TORCH}/nn/modules/linear.py"),), "forward"),
        ((("_engine_run_backward", f"{TORCH}/autograd/graph.py"),), "backward"),
        ((), "other"),
    ],
)
def test_a_stack_is_in_one_part_of_a_step(frames: tuple[tuple[str, str], ...], activity: Activity):
    assert activity_of(sample(*frames)) == activity


def test_a_backward_pass_that_sleeps_waits_for_other_ranks():
    backward = ("_engine_run_backward", f"{TORCH}/autograd/graph.py")
    assert activity_of(sample(backward, state="S")) == "collective"
    for state, runs, activity in (("S", True, "backward"), ("R", False, "collective")):
        at_its_stack = msgspec.structs.replace(sample(backward, state=state), runs=runs)
        assert activity_of(at_its_stack) == activity, "the state of the moment of the stack counts"


def test_imports_are_no_part_of_a_step(tmp_path: Path):
    recorded = report(tmp_path)
    imports = StackFrame("_find_and_load", "<frozen importlib._bootstrap>", 1)
    seen = [
        msgspec.structs.replace(
            each, samples=[msgspec.structs.replace(s, stack=[imports, *s.stack]) for s in each.samples]
        )
        for each in recorded.observed.seen
    ]
    importing = msgspec.structs.replace(recorded, observed=msgspec.structs.replace(recorded.observed, seen=seen))
    assert not any(extend_history({}, importing).values())
    assert count_places(seen[0].samples) == {}


def test_the_rank_that_waits_least_comes_first_and_a_change_is_named():
    history: History = {
        0: [(float(n), "collective") for n in range(10)],
        1: [(float(n), "forward" if n < 5 else "loader") for n in range(10)],
        2: [(0.0, "loader")],
    }
    rows = time_shares(history)
    assert [(row.rank, row.samples) for row in rows] == [(1, 10), (0, 10)], "a rank with one sample is left out"
    assert rows[0].shares == {"forward": 0.5, "loader": 0.5}
    assert rows[0].trend in ("loader grows", "forward shrinks") and rows[1].trend == ""
    assert share_lines(history)[1].split()[:4] == ["rank", "1", "50%", "50%"]
    assert share_lines({}) == []


def test_samples_are_counted_once(tmp_path: Path):
    recorded = report(tmp_path)
    once = extend_history({}, recorded)
    assert once[0] and extend_history(once, recorded) == once
    later = [
        msgspec.structs.replace(each, samples=[msgspec.structs.replace(s, at=s.at + 100.0) for s in each.samples])
        for each in recorded.observed.seen
    ]
    newer = msgspec.structs.replace(recorded, observed=msgspec.structs.replace(recorded.observed, seen=later))
    assert len(extend_history(once, newer)[0]) == 2 * len(once[0])
