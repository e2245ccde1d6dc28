"""Output of the fix generators, executed: the shown command, in a shell, in the directory of the written files."""

import asyncio
import os
import re
import socket
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest
import torch
from ddpwizard.app.fixes import code_templates
from ddpwizard.app.launchers import accelerate, env_file, torchrun
from ddpwizard.app.launchers.types import GeneratedFix
from ddpwizard.app.system.subprocesses import ProcessOutcome, run_process
from helpers.machines import CPU_ONLY
from helpers.torchrun_server import Ended, run_python, run_torchrun

pytestmark = [pytest.mark.jobs, pytest.mark.slow]

LIMIT_S = 240.0
COUNT_RANKS = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ranks = torch.ones(1)
dist.all_reduce(ranks)
print(f"{int(ranks)} ranks joined\\n", end="", flush=True)
dist.destroy_process_group()
"""
ACCELERATED = """\
import gc

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def train(accelerator):
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(16, 8), torch.randn(16, 1)), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for features, target in loader:
        loss = torch.nn.functional.mse_loss(model(features), target)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    weights = accelerator.gather(torch.cat([value.detach().flatten() for value in model.parameters()])[None])
    same = bool((weights == weights[0]).all())
    print(f"trained with {accelerator.num_processes}, weights of {len(weights)} same: {same}\\n", end="", flush=True)


accelerator = Accelerator()
train(accelerator)
gc.collect()
accelerator.end_training()
"""


def shell(line: str, directory: Path) -> ProcessOutcome:
    """Run one shown line as a person would, with this interpreter's programs first on the path."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ACCELERATE_")}
    env |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}", "HF_HOME": str(directory / "hf")}
    return asyncio.run(run_process(["bash", "-c", line], limit_s=LIMIT_S, env=env, cwd=directory))


def start(made: GeneratedFix, directory: Path) -> ProcessOutcome:
    """Write the files, run the line."""
    for name, content in made.files.items():
        (directory / name).write_text(content)
    (line,) = made.commands
    outcome = shell(line, directory)
    assert outcome.status == "ok", outcome.log[-4000:]
    return outcome


def start_as_forks(made: GeneratedFix, directory: Path) -> Ended:
    """Write the files, run the line; its processes are forks of one that has imported torch."""
    for name, content in made.files.items():
        (directory / name).write_text(content)
    (line,) = made.commands
    program, *options, script = line.split()
    assert program in ("python", "torchrun"), line
    run = partial(run_torchrun, options) if program == "torchrun" else run_python
    ended = run(directory / script, directory=directory, limit_s=LIMIT_S, environ=os.environ)
    assert ended.code == 0, ended.log[-4000:]
    return ended


def losses(log: str) -> list[float]:
    return [float(number) for number in re.findall(r"loss (\d+\.\d+)", log)]


class TestCode:
    """The set-up scripts, as they are."""

    def test_ddp_trains_and_saves(self, tmp_path: Path):
        outcome = start_as_forks(code_templates.ddp_code(CPU_ONLY, []), tmp_path)
        first, last = losses(outcome.log)
        assert last < first
        saved = torch.load(tmp_path / "ddp_model.pt")
        assert saved["0.layers.0.weight"].shape == (64, 16)
        assert saved["2.weight"].shape == (1, 16)
        assert not list(tmp_path.glob("*.part"))

    @pytest.mark.calibration
    def test_fsdp2_trains_and_saves_whole_weights(self, tmp_path: Path):
        outcome = start_as_forks(code_templates.fsdp2_code(CPU_ONLY, []), tmp_path)
        assert len(losses(outcome.log)) == 4
        saved = torch.load(tmp_path / "fsdp2_model.pt")
        assert all(type(value) is torch.Tensor and value.dtype == torch.float32 for value in saved.values())
        assert saved["0.layers.0.weight"].shape == (64, 16)
        assert saved["2.weight"].shape == (1, 16)

    def test_fsdp2_shards_and_starts_from_rank_0s_weights(self, tmp_path: Path):
        (tmp_path / "probe.py").write_text(
            "import gc, torch, torch.distributed as dist\n"
            "import fsdp2_setup as made\n"
            "device = made.set_up()\n"
            "torch.manual_seed(dist.get_rank())\n"
            "model = torch.nn.Sequential(made.Block(16), torch.nn.Linear(16, 2))\n"
            "mine = model[1].weight.detach().clone()\n"
            "wanted = mine.clone()\n"
            "dist.broadcast(wanted, 0)\n"
            "made.shard(model, made.Block, device)\n"
            "whole = model[1].weight.full_tensor()\n"
            "units = sum(isinstance(m, torch.distributed.fsdp.FSDPModule) for m in model.modules())\n"
            "local = sum(p.to_local().numel() for p in model.parameters())\n"
            "total = sum(p.numel() for p in model.parameters())\n"
            # One string with its end in it: two ranks that write piece by piece mix their lines.
            "words = ['rank', dist.get_rank(), 'differed', not torch.equal(mine, wanted), 'equal', "
            "torch.equal(whole, wanted), 'units', units, 'share', round(local / total, 2)]\n"
            "print(' '.join(map(str, words)) + '\\n', end='', flush=True)\n"
            "del model, whole\n"
            "made.finish()\n"
        )
        made = code_templates.fsdp2_code(CPU_ONLY, [])
        line = torchrun.torchrun_line(CPU_ONLY, ["probe.py"])
        outcome = start_as_forks(msgspec.structs.replace(made, commands=[line]), tmp_path)
        assert "rank 0 differed False equal True units 2 share 0.5" in outcome.log
        assert "rank 1 differed True equal True units 2 share 0.5" in outcome.log

    @pytest.mark.calibration
    def test_join_ends_where_ranks_have_unequal_batches(self, tmp_path: Path):
        assert "7 steps in total" in start_as_forks(code_templates.join_context(CPU_ONLY, []), tmp_path).log

    def test_unused_parameters_are_named(self, tmp_path: Path):
        outcome = start_as_forks(code_templates.find_unused(CPU_ONLY, []), tmp_path)
        assert outcome.log.split() == ["spare_head.weight", "spare_head.bias"]


class TestTorchrun:
    """The lines."""

    def test_one_node_with_a_nasty_script_name_under_the_env_file(self, tmp_path: Path):
        script = "count $(touch pwned); ranks.py"
        (tmp_path / script).write_text(COUNT_RANKS)
        made = env_file.env_file(msgspec.structs.replace(CPU_ONLY, interface="lo", cpus=4), [])
        (tmp_path / env_file.FILE).write_text(made.files[env_file.FILE])
        machine = msgspec.structs.replace(CPU_ONLY, cpus=2)
        outcome = shell(f"{made.commands[0]} && {torchrun.single_node(machine, [script]).commands[0]}", tmp_path)
        assert outcome.status == "ok", outcome.log[-4000:]
        assert outcome.log.count("2 ranks joined") == 2
        assert not (tmp_path / "pwned").exists()

    def test_the_same_line_twice_makes_two_nodes_of_one_job(self, tmp_path: Path):
        (tmp_path / "count.py").write_text(COUNT_RANKS)
        machine = msgspec.structs.replace(CPU_ONLY, head="127.0.0.1", free_port=free_port())
        (line,) = torchrun.multi_node(machine, ["count.py"]).commands
        # Two agents on one machine stand for two nodes.
        outcome = shell(f"{line} & first=$!; {line} && wait $first", tmp_path)
        assert outcome.status == "ok", outcome.log[-4000:]
        assert outcome.log.count("4 ranks joined") == 4


class TestAccelerate:
    """accelerate launch with the written file, on gloo."""

    @pytest.fixture(autouse=True)
    def _accelerate(self):
        pytest.importorskip("accelerate", reason="Accelerate runs here: pip install -c constraints.txt accelerate")

    def test_ddp_trains_on_two_processes(self, tmp_path: Path):
        (tmp_path / "train.py").write_text(ACCELERATED)
        outcome = start(accelerate.accelerate_ddp(CPU_ONLY, ["train.py"]), tmp_path)
        assert outcome.log.count("trained with 2, weights of 2 same: True") == 2

    @pytest.mark.calibration
    def test_without_the_variable_of_the_line_each_process_would_train_alone(self, tmp_path: Path):
        (tmp_path / "train.py").write_text(ACCELERATED)
        made = accelerate.accelerate_ddp(CPU_ONLY, ["train.py"])
        line = made.commands[0].removeprefix("env ACCELERATE_USE_CPU=true ")
        assert line != made.commands[0]
        outcome = start(msgspec.structs.replace(made, commands=[line]), tmp_path)
        assert outcome.log.count("trained with 1,") == 2


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
