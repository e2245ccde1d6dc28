"""Runs that are killed and started again end with the weights of a run that nothing disturbed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ddpwizard.app.review.migrations.engine import migrate
from ddpwizard.app.system.subprocesses import ProcessOutcome
from helpers.migration_scripts_list import CAN_BE_MIGRATED, RUNNER, SCRIPTS
from helpers.two_ranks import on_two_ranks, plain, run

pytestmark = [pytest.mark.jobs, pytest.mark.slow, pytest.mark.long]

NAMES = sorted([*CAN_BE_MIGRATED, "batch_norm", "own_sampler", "two_optimizers"])
COUNTED = "        self.stepped = True\n"
KILLED_ONCE = """\
        if self.steps == 13 and not os.path.exists("killed"):
            open("killed", "w").close()
            os.kill(os.getpid(), 9)
"""
# Random numbers of Python, NumPy and torch in every batch, a scheduler per step, a scaler, accumulated gradients.
RANDOM_TRAINING = """\
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
inputs = torch.randn(160, 8)
loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=40)
scaler = torch.amp.GradScaler("cpu")
loss_fn = nn.MSELoss()
best = float("inf")
for epoch in range(4):
    total = 0.0
    for i, (x, y) in enumerate(loader):
        x = x + 0.1 * random.random() + 0.1 * float(np.random.rand())
        loss = loss_fn(model(x), y)
        scaler.scale(loss / 2).backward()
        total += loss.item()
        if (i + 1) % 2 == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            scheduler.step()
    best = min(best, total)
    print(f"epoch {epoch}: total {total!r}, best {best!r}, step {scheduler.last_epoch}")
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "best": best}, "model.pt")
"""
# Rank 1 dies in a step, then rank 0 while it writes, then rank 0 between the files: at most one in each start.
DEATHS = """\
import io
import os
import signal

start, rank = os.environ.get("TORCHELASTIC_RESTART_COUNT"), os.environ.get("RANK")


def die():
    with open("deaths", "a") as log:
        log.write(f"rank {rank} in start {start}\\n")
    os.kill(os.getpid(), signal.SIGKILL)


if (start, rank) == ("0", "1"):
    import torch

    real_step, steps = torch.optim.AdamW.step, []

    def step(*args, **kwargs):
        steps.append(0)
        if len(steps) == 14:
            die()
        return real_step(*args, **kwargs)

    torch.optim.AdamW.step = step
elif (start, rank) == ("1", "0"):
    import torch

    real_save, saves = torch.save, []

    def save(state, file, **options):
        if isinstance(file, io.BytesIO):  # how torch pickles a tensor
            return real_save(state, file, **options)
        saves.append(0)
        whole = io.BytesIO()
        real_save(state, whole)
        file.write(whole.getvalue()[: len(whole.getvalue()) // (2 if len(saves) == 2 else 1)])
        if len(saves) == 2:
            file.flush()
            die()

    torch.save = save
elif (start, rank) == ("2", "0"):
    real_replace = os.replace

    def replace(source, target):
        real_replace(source, target)
        if str(target).endswith(".previous"):
            die()

    os.replace = replace
"""

DEATHS_OF_SHARDED = DEATHS.replace('("1", "0")', '("1", "1")').replace(
    DEATHS[DEATHS.index("    real_save,") : DEATHS.index('elif (start, rank) == ("2"')],
    """\
    import torch.distributed.checkpoint as dcp

    real_save, saves = dcp.save, []

    def save(*args, **kwargs):
        saves.append(0)
        if len(saves) == 2:
            die()
        return real_save(*args, **kwargs)

    dcp.save = save
""",
)
SHARDED_TRAINING = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
inputs = torch.randn(160, 8)
data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, batch_size=8 // dist.get_world_size(), sampler=sampler)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
fully_shard(model[0], mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
if dist.get_rank() == 0:
    torch.save(whole, "model.pt")
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.calibration
def test_scripts_killed_once_end_with_the_same_weights(tmp_path: Path) -> None:
    for name in NAMES:
        text = (SCRIPTS / f"{name}.py").read_text()
        resumed = _resumable(text, f"{name}_killed.py", every=4)
        assert COUNTED in resumed
        (tmp_path / f"{name}_original.py").write_text(text)
        (tmp_path / f"{name}_killed.py").write_text(resumed.replace(COUNTED, COUNTED + KILLED_ONCE))
    codes = _run_twice(tmp_path, *(each.name for each in tmp_path.iterdir()))
    for name in NAMES:
        folder = tmp_path / f"{name}_killed"
        log = (folder / "0.log").read_text()
        assert [each[f"{name}_killed.py"][0] for each in codes] == [-9, 0], log
        assert f"{name}_killed_checkpoint.pt: continuing after step 12" in log
        _check_same(tmp_path / f"{name}_original", folder)


@pytest.mark.calibration
@pytest.mark.parametrize("target", ["ddp", "fsdp2"])
def test_migrated_scripts_of_which_a_rank_was_killed_end_with_the_same_weights(target: str, tmp_path: Path) -> None:
    killed_rank = KILLED_ONCE.replace("if ", "if _rank() == 1 and ")
    for name in CAN_BE_MIGRATED:
        on_ranks = migrate((SCRIPTS / f"{name}.py").read_text(), f"{name}.py", target).after
        resumed = _resumable(on_ranks, f"{name}_killed.py", every=4)
        (tmp_path / f"{name}_undisturbed.py").write_text(on_ranks)
        (tmp_path / f"{name}_killed.py").write_text(resumed.replace(COUNTED, COUNTED + killed_rank))
    codes = _run_twice(tmp_path)
    for name in CAN_BE_MIGRATED:
        folder = tmp_path / f"{name}_killed"
        log = (folder / "0.log").read_text()
        assert [each[f"{name}_killed.py"][1] for each in codes] == [-9, 0], log
        assert "continuing after step 12" in log, name
        _check_same(tmp_path / f"{name}_undisturbed", folder)


@pytest.mark.calibration
@pytest.mark.parametrize("is_sharded", [False, True])
def test_ranks_killed_three_times_end_with_the_weights_of_an_undisturbed_run(is_sharded: bool, tmp_path: Path) -> None:
    text = SHARDED_TRAINING if is_sharded else migrate(RANDOM_TRAINING, "train.py", "ddp").after
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    for folder, code in ((undisturbed, text), (killed, _resumable(text, "train.py", every=3))):
        folder.mkdir()
        (folder / "train.py").write_text(code)
    (killed / "sitecustomize.py").write_text(DEATHS_OF_SHARDED if is_sharded else DEATHS)
    first = _torchrun(undisturbed)
    assert first.code == 0, first.log
    second = _torchrun(killed, "--max-restarts=3", path=str(killed))
    assert second.code == 0, second.log
    deaths = (killed / "deaths").read_text().splitlines()
    assert deaths == ["rank 1 in start 0", f"rank {int(is_sharded)} in start 1", "rank 0 in start 2"]
    path = "train_checkpoint" if is_sharded else "train_checkpoint.pt"
    assert [line for line in second.log.splitlines() if "continuing after step" in line] == [
        f"{path}: continuing after step 12",
        f"{path}: continuing after step 15",
        f"{path}.previous: continuing after step 15",
    ]
    _check_same(undisturbed, killed)


def test_torn_file_and_other_number_of_ranks(tmp_path: Path) -> None:
    on_ranks = migrate(RANDOM_TRAINING.replace("nn.Dropout(0.3)", "nn.ReLU()"), "train.py", "ddp").after
    (tmp_path / "train.py").write_text(_resumable(on_ranks, "train.py", every=3))
    whole = on_two_ranks(tmp_path)
    assert whole.code == 0, whole.log
    newest, before = tmp_path / "train_checkpoint.pt", tmp_path / "train_checkpoint.pt.previous"
    newest.write_bytes(newest.read_bytes()[:1000])

    fewer = plain(tmp_path)
    assert fewer.code == 0, fewer.log
    assert "rank 0: train_checkpoint.pt cannot be loaded" in fewer.log
    assert "train_checkpoint.pt.previous: continuing after step" in fewer.log
    assert "1 ranks continue a run of 2: same global batch" in fewer.log

    script = (tmp_path / "train.py").read_text()
    (tmp_path / "train.py").write_text(script.replace("per_rank(8)", "per_rank(16)"))
    other = plain(tmp_path)
    assert other.code != 0
    assert "with a global batch of 8, this run has 1 ranks with 16: start it with" in other.log

    for path in (newest, before):
        path.write_bytes(path.read_bytes()[:1000])
    neither = plain(tmp_path)
    assert neither.code != 0
    assert "move train_checkpoint.pt and train_checkpoint.pt.previous away to start over" in neither.log


@pytest.mark.calibration
def test_torn_directory_and_other_number_of_ranks(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_resumable(SHARDED_TRAINING, "train.py", every=3))
    assert _torchrun(tmp_path).code == 0
    before = torch.load(tmp_path / "model.pt")
    newest = tmp_path / "train_checkpoint"
    shard = newest / "__1_0.distcp"
    shard.write_bytes(shard.read_bytes()[:1000])

    fewer = _torchrun(tmp_path, "--nproc-per-node=1")
    assert fewer.code == 0, fewer.log
    assert "rank 0: train_checkpoint cannot be loaded (EOFError())" in fewer.log
    assert "train_checkpoint.previous: continuing after step" in fewer.log
    assert "1 ranks continue a run of 2: same global batch" in fewer.log
    torch.testing.assert_close(torch.load(tmp_path / "model.pt"), before, rtol=1e-5, atol=1e-6)

    for folder in (newest, tmp_path / "train_checkpoint.previous"):
        (folder / "run.pt").unlink()
    neither = _torchrun(tmp_path)
    assert neither.code != 0
    assert "rank 0: train_checkpoint is no saved run: it has no run.pt" in neither.log
    assert (newest / ".metadata").is_file(), "nothing was removed"


def _run_twice(directory: Path, *in_one_process: str) -> list[dict[str, list[int]]]:
    """Run the programs of a directory one time after the other and return their exit codes."""
    command = [sys.executable, str(RUNNER), str(directory), *in_one_process]
    env = {"PYTHONPATH": str(SCRIPTS), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    return [
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=1500, env=env).stdout)
        for _ in range(2)
    ]


def _resumable(text: str, name: str, every: int) -> str:
    made = migrate(text, name, "resume")
    assert not made.refusals, (name, made.refusals)
    assert "every=100" in made.after
    return made.after.replace("every=100", f"every={every}")


def _torchrun(directory: Path, *options: str, path: str = "") -> ProcessOutcome:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *options]
    # With a shared store the ranks of a restart can meet gloo's addresses of the start before, and a restart is lost.
    python_path = os.pathsep.join([path, *sys.path])
    return run(
        [*command, "train.py"],
        directory,
        limit_s=600,
        PYTHONPATH=python_path,
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
    )


def _check_same(one: Path, other: Path) -> None:
    """Check that two runs saved the same, bit by bit."""
    first, second = (torch.load(folder / "model.pt", weights_only=False) for folder in (one, other))
    torch.testing.assert_close(second, first, rtol=0, atol=0, msg=lambda text: f"{other.name}: {text}")
