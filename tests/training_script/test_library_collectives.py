"""Collectives inside functions of libraries, called by one rank: the names are those of the libraries' sources."""

import ast
from pathlib import Path

import pytest
from ddpwizard.app.training_script.model.divergences import divergences
from ddpwizard.app.training_script.model.evaluated import Evaluated
from helpers.diverging_programs import source

OPTIMIZER = (
    "from torch.distributed.optim import ZeroRedundancyOptimizer\n"
    "optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam)\n"
)
FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
ACCELERATOR = "from accelerate import Accelerator\naccelerator = Accelerator()\n"
LIGHTNING = "import lightning\ntrainer = lightning.Trainer()\n"
DIVERGED = {
    "the states of an optimizer": (OPTIMIZER, "rank == 0", "optimizer.consolidate_state_dict(to=0)"),
    "the states of FSDP's optimizer": (FSDP, "rank == 0", "FSDP.full_optim_state_dict(model, optimizer)"),
    "the parameters of FSDP": (FSDP, "rank == 0", "with FSDP.summon_full_params(model): print(model)"),
    "a metric": ("import torchmetrics\nerror = torchmetrics.MeanMetric()\n", "rank == 0", "print(error.compute())"),
    "one process first": (
        ACCELERATOR,
        "accelerator.is_main_process",
        "with accelerator.main_process_first(): print(1)",
    ),
    "a checkpoint of lightning": (LIGHTNING, "trainer.is_global_zero", "trainer.save_checkpoint('x')"),
    "detectron2": ("from detectron2.utils import comm\n", "comm.is_main_process()", "comm.synchronize()"),
    "mmengine": ("from mmengine.dist import barrier, get_rank\n", "get_rank() == 0", "barrier()"),
    "deepspeed": ("import deepspeed.comm as dist\n", "dist.get_rank() == 0", "dist.barrier()"),
    "mpi4py": ("from mpi4py import MPI\ncomm = MPI.COMM_WORLD\n", "comm.Get_rank() == 0", "comm.reduce(1)"),
}


def kinds(tmp_path: Path, code: str) -> list[str]:
    script = tmp_path / "train.py"
    text = source(code)
    script.write_text(text)
    return [each.first.kind for each in divergences(Evaluated(ast.parse(text), script, text)).found]


@pytest.mark.parametrize("name", DIVERGED)
def test_a_collective_of_a_library_on_one_rank_is_found(name: str, tmp_path: Path) -> None:
    made, only, call = DIVERGED[name]
    assert len(kinds(tmp_path, f"{made}if {only}:\n    {call}\n")) == 1


@pytest.mark.parametrize("name", DIVERGED)
def test_the_same_collective_on_every_rank_is_not(name: str, tmp_path: Path) -> None:
    made, only, call = DIVERGED[name]
    assert kinds(tmp_path, f"{made}{call}\nif {only}:\n    print(1)\n") == []


def test_a_metric_of_torcheval_is_computed_on_one_rank_alone(tmp_path: Path) -> None:
    code = "from torcheval.metrics import Mean\nerror = Mean()\nif rank == 0:\n    print(error.compute())\n"
    assert kinds(tmp_path, code) == []


def test_what_all_ranks_gathered_decides_for_all_of_them(tmp_path: Path) -> None:
    code = (
        "from detectron2.utils import comm\nlosses = comm.all_gather(rank)\n"
        "if losses[0] > 1:\n    dist.all_reduce(torch.ones(1))\n"
    )
    assert kinds(tmp_path, code) == []
