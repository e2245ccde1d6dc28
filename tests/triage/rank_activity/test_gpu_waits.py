"""Ranks that wait for their GPU. Stacks, states and counters are those of jobs that were sampled on an H200, with
torch 2.11; the jobs of two ranks are composed from them.
"""

import msgspec
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.triage.types import JobReport, Sample, ThreadStack
from ddpwizard.app.triage.verdict import judge_job
from helpers.synthetic_job import SCRIPT, job, observation

LOOP = """
x = torch.randn(8192, 8192, device="cuda")
while True:
    y = x @ x
    torch.cuda.synchronize()
    print(y[0, 0].item())
"""
SYNCHRONIZE = StackFrame("synchronize", "/opt/torch/.venv/lib/python3.12/site-packages/torch/cuda/__init__.py", 1162)
IN_SYNCHRONIZE = [SYNCHRONIZE, StackFrame("<module>", SCRIPT, 5)]
IN_ITEM = [StackFrame("<module>", SCRIPT, 6)]


def samples(stack: list[StackFrame], written_bytes: int) -> list[Sample]:
    """Two samples of a process that spins in a call of CUDA, with the bytes that it wrote between them."""
    both = [
        Sample(at=at, process_state="R", cpu_s=at, switches=9, written_bytes=9000, stack=stack, gpu=True)
        for at in (1000.0, 1001.0)
    ]
    return [both[0], msgspec.structs.replace(both[1], written_bytes=9000 + written_bytes)]


def report(*ranks: list[Sample]) -> JobReport:
    return judge_job(observation(job(len(ranks)), dict(enumerate(ranks, 100)), {SCRIPT: LOOP}))


def test_a_process_that_prints_while_it_waits_for_its_gpu_makes_progress() -> None:
    found = report(samples(IN_SYNCHRONIZE, 107))
    assert (found.verdict.state, found.ranks[0].state) == ("progressing", "running")


def test_a_process_without_peers_waits_for_its_gpu_alone() -> None:
    for stack in (IN_SYNCHRONIZE, IN_ITEM):
        verdict = report(samples(stack, 0)).verdict
        assert (verdict.state, verdict.cause, verdict.collective) == ("unknown", None, None)
        assert "queued on the GPU" in verdict.why


def test_synchronize_waits_for_queued_collectives_like_item() -> None:
    for stack in (IN_SYNCHRONIZE, IN_ITEM):
        found = report(samples(stack, 0), samples(stack, 0))
        assert found.verdict.state == "hung"
        assert [row.collective for row in found.ranks] == ["all_reduce", "all_reduce"]


def test_ranks_at_the_place_of_one_that_prints_make_progress() -> None:
    found = report(samples(IN_SYNCHRONIZE, 107), samples(IN_SYNCHRONIZE, 0))
    assert (found.verdict.state, [row.state for row in found.ranks]) == ("progressing", ["running", "running"])


def test_output_of_another_thread_is_no_progress() -> None:
    other = ThreadStack(name="monitor", frames=[StackFrame("write", SCRIPT, 2)])
    printing = [msgspec.structs.replace(each, others=[other]) for each in samples(IN_SYNCHRONIZE, 107)]
    assert report(printing).verdict.state == "unknown"
