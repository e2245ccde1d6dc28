"""Tests that need a GPU: NCCL jobs, their recorder, the GPUs of a rank (``pytest -m gpu``); skipped without one.

docs/gpu-runs.md lists the results.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from ddpwizard.app.triage.flight_recorder.loader import load_records
from ddpwizard.app.triage.triage import triage_jobs
from helpers.jobs import line_of, running, torchrun, triage_until, wait_for

COUNT = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"


def gpu_count() -> int:
    """The GPUs that torch can use here."""
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, timeout=120, check=False)
    return int(done.stdout or 0)


pytestmark = [pytest.mark.gpu, pytest.mark.jobs, pytest.mark.slow]

CONDITIONAL = """
import os, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
x = torch.ones(1024, device="cuda")
dist.all_reduce(x)
torch.cuda.synchronize()
if dist.get_rank() == 0:  # BRANCH
    dist.all_reduce(x)
    torch.cuda.synchronize()  # HANG
dist.barrier()
torch.cuda.synchronize()  # PEERS
"""
ALONE = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("nccl")
x = torch.ones(1 << 28, device="cuda")
dist.all_reduce(x)
torch.cuda.synchronize()
with open(sys.argv[1], "wb") as out:
    out.write(torch._C._distributed_c10d._dump_nccl_trace())
print("dumped", flush=True)
while True:
    x = x * 1.0
    torch.cuda.synchronize()
    print("step", flush=True)
"""


@pytest.fixture(scope="module")
def gpus() -> int:
    count = gpu_count()
    if not count:
        pytest.skip("no GPU that torch can use")
    return count


def test_one_rank_its_gpu_and_its_record(gpus: int, tmp_path: Path) -> None:
    script, dump = tmp_path / "alone.py", tmp_path / "trace_0"
    script.write_text(ALONE)
    with running(torchrun(script, 1, str(dump)), script, tmp_path) as job:
        wait_for(lambda: job.printed("dumped"), "the recorder was dumped")
        (report,) = asyncio.run(triage_jobs(pid=job.pid))
        (seen,) = report.observed.seen
        assert report.verdict.state == "progressing"
        assert seen.samples[-1].gpu
        assert any((device.memory_used_bytes or 0) > 1 << 30 for device in seen.devices)
    found = load_records([dump])
    assert (len(found.records), found.problems) == (1, [])


def test_a_collective_under_a_rank_test_on_nccl(gpus: int, tmp_path: Path) -> None:
    if gpus < 2:
        pytest.skip("NCCL takes one GPU for each rank: two are needed")
    script = tmp_path / "train.py"
    script.write_text(CONDITIONAL)
    with running(torchrun(script, 2), script, tmp_path) as job:
        verdict = triage_until(job.pid, "hung").verdict
        assert verdict.culprits == [0]
        assert verdict.where == line_of(script, "HANG")
        assert verdict.branch == line_of(script, "BRANCH")
        assert verdict.cause == "rank-conditional-collective"
