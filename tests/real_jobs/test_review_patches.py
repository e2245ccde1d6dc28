"""The patches of the review, proved by running: what hung under torchrun runs to its end after them."""

import os
from pathlib import Path

import pytest
from helpers.command import ddpwizard
from helpers.patched_scripts import PORT_OF_THE_SCRIPT
from helpers.torchrun_server import Ended, run_torchrun

# The helper reduces under a test on the rank; the others go on to the barrier, and both wait for the time-out.
HANGS = """\
import datetime
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def validate(model, data, rank, epoch):
    if rank == 0 and epoch % 2 == 0:
        print("validating", epoch)
        with torch.no_grad():
            loss = model.module(data).mean()
            dist.all_reduce(loss)
            print("loss of epoch", epoch, "over", dist.get_world_size(), "ranks")


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=int(os.environ["LIMIT_S"])))
    rank = int(os.environ["RANK"])
    model = DDP(nn.Linear(8, 1))
    data = torch.randn(16, 8)
    loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for batch in loader:
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
        validate(model, data, rank, epoch)
        dist.barrier()
    if rank == 0:
        print("first order of the last epoch:", next(iter(loader.sampler)), "epoch", loader.sampler.epoch)
    dist.destroy_process_group()


main()
"""


def torchrun(script: Path, collective_limit_s: int) -> Ended:
    """The script on two ranks, ended with all its processes after the limit."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "LIMIT_S": str(collective_limit_s)}
    options = ["--standalone", "--nproc-per-node=2"]
    return run_torchrun(options, script, directory=script.parent, limit_s=400, environ=env)


@pytest.mark.jobs
@pytest.mark.slow
def test_a_script_that_hung_runs_to_its_end_after_the_patch(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HANGS)

    before = torchrun(script, 20)
    assert before.code == 1, before.log
    assert "imed out" in before.log or "imeout" in before.log or "Connection closed by peer" in before.log
    assert "validating 0" in before.log
    assert "loss of epoch" not in before.log

    done = ddpwizard("review", "train.py", "--fix", "--unsafe-fixes", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "applied hoist-collective (DW401)" in done.stderr
    assert "applied insert-set-epoch (DW203)" in done.stderr

    after = torchrun(script, 300)
    assert after.code == 0, after.log
    losses = [line for line in after.log.splitlines() if "loss of epoch" in line]
    assert losses == ["loss of epoch 0 over 2 ranks", "loss of epoch 2 over 2 ranks"]
    assert "epoch 2" in next(line for line in after.log.splitlines() if "first order" in line)

    assert ddpwizard("undo", "--yes").returncode == 0
    assert script.read_text() == HANGS


@pytest.mark.jobs
@pytest.mark.slow
def test_ranks_meet_at_the_port_of_torchrun_after_the_patch(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PORT_OF_THE_SCRIPT)

    before = torchrun(script, 5)
    assert before.code == 1, before.log
    assert "23457" in before.log and "sum" not in before.log.split()

    done = ddpwizard("review", "train.py", "--fix", "--unsafe-fixes", cwd=tmp_path)
    assert "applied keep-port-of-launcher (DW122)" in done.stderr
    after = torchrun(script, 60)
    assert (after.code, after.log.count("sum 1")) == (0, 2), after.log
