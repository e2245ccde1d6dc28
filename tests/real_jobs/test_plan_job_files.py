"""The files of a plan, run for real on gloo: torchrun, DeepSpeed on the CPU, accelerate launch; what a rank keeps.

Several projects share one start of torchrun, by a driver that calls the ``train`` of each in one process group, and the
ranks are forks of a process that has imported torch: starting them would take longer than what they do.
"""

import asyncio
import importlib.util
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from textwrap import indent
from typing import Any

import msgspec
import psutil
import pytest
import torch
import yaml
from ddpwizard.app.plan.job_files.own_script import plan_job_files
from ddpwizard.app.plan.job_files.write import render_job_files, write_job_files
from ddpwizard.app.plan.memory.formula import total_bytes
from ddpwizard.app.plan.memory.model_states import model_states
from ddpwizard.app.plan.spec import fill_defaults
from ddpwizard.app.plan.types import Model, Strategy, TrainingOptions, TrainingSetup
from ddpwizard.app.system.subprocesses import ProcessOutcome, run_process
from helpers.jobs import wait_for
from helpers.torchrun_server import run_torchrun

pytestmark = [pytest.mark.jobs, pytest.mark.slow, pytest.mark.long]

LIMIT_S = 600.0
RANKS_OF_MODELS = (2, 4)
# Trains the project of each directory that is named, in one process group.
DRIVER = """\
import gc
import importlib
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
{before}

gc.freeze()
device = None
scripts = {{}}
for name in sys.argv[1:]:
    for module in ("train", "model", "data", "parallel", "checkpoint", "sequence", "experts"):
        sys.modules.pop(module, None)
    sys.path.insert(0, name)
    os.chdir(name)
    made = scripts[Path(name).name] = importlib.import_module("train")
    device = device or made.set_up()
    if dist.get_rank() == 0:
        print("project", Path(name).name, flush=True)
{each}
    sys.path.remove(name)
    gc.collect()
    gc.freeze()  # later collections would visit all of torch again
{after}
made.finish()
"""
TRAIN = """\
    made.train(device)
"""
# Every rank computes what an unsharded model of the same seed does, with the buffers that no state dict has.
LOGITS = """\
    tokens = torch.arange(64).reshape(2, 32)
    torch.manual_seed(made.SEED)
    with torch.no_grad():
        wanted = sys.modules["model"].build()(tokens)
        found = made.build_model(device)(tokens)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    print(f"{Path(name).name}: the logits of one process\\n", end="", flush=True)
"""
# Of one batch that the ranks share, before the first step: AdamW's steps do not depend on the size of a gradient.
GRADIENTS = """\
    model = made.build_model(device)
    tokens = torch.randint(256, (8, 33), generator=torch.Generator().manual_seed(1))
    made.loss_of(model, tokens.chunk(dist.get_world_size())[dist.get_rank()]).backward()
    grads = {name: weight.grad for name, weight in model.named_parameters()}
    grads = {name.replace("_checkpoint_wrapped_module.", ""): grad for name, grad in grads.items()}
    grads = {name: grad.full_tensor() if hasattr(grad, "full_tensor") else grad for name, grad in grads.items()}
    if dist.get_rank() == 0:
        torch.save(grads, "gradients.pt")
    dist.barrier()
    del model, grads
    gc.collect()
"""
BUFFERS = """\
    engine = made.make_engine()
    assert all(buffer.dtype == torch.float32 for buffer in engine.module.buffers())
    del engine
"""
# The newest checkpoint is lost, and a later one is torn.
TRAIN_AGAIN = """\
    made.train(device)
    dist.barrier()
    if dist.get_rank() == 0:
        *_, newest = sorted(Path("checkpoints/tiny").glob("step-*"))
        newest.rename("lost")
        Path("checkpoints/tiny/step-00000030").mkdir()
        latest = Path("checkpoints/tiny/latest")
        latest.exists() and latest.write_text("step-00000018")
    dist.barrier()
    gc.collect()
    made.train(device)
"""
# DeepSpeed's own all-reduce for the CPU is compiled when it is first used, for a minute; gloo does it as well. Its Muon
# compiles what torch does as well.
WITHOUT_COMPILING = """\
import torch._dynamo

torch._dynamo.config.disable = True
import deepspeed

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
"""
# One step of each project on shares of one batch, against torch's own optimizers in one process. Muon rounds to bf16.
ONE_STEP = """\
    from torch.distributed.tensor import DTensor

    def step(name, matrices, others):
        if "lion" in name:
            with torch.no_grad():
                for weight in [*matrices, *others]:
                    weight.sub_(1e-3 * weight.grad.sign())
            return
        if "muon" in name:
            torch.optim.Muon(matrices, lr=1e-3, adjust_lr_fn="match_rms_adamw").step()
        torch.optim.AdamW(others if "muon" in name else [*matrices, *others], lr=1e-3).step()

    kind = Path(name).name
    torch.manual_seed(made.SEED)
    alone = sys.modules["model"].build()
    before = [weight.detach().clone() for weight in alone.parameters()]
    tokens = torch.randint(256, (8, 33), generator=torch.Generator().manual_seed(1))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = made.build_model(device)
    if "in-backward" in kind:
        made.step_in_backward(model)
    elif "muon" in kind:
        optimizers = made.make_optimizers(model)
    else:
        optimizers = [made.make_optimizer(model)]
    made.loss_of(model, tokens.chunk(ranks)[rank]).backward()
    if "in-backward" in kind:
        assert all(weight.grad is None for weight in model.parameters())
    else:
        for optimizer in optimizers:
            optimizer.step()
    made.loss_of(alone, tokens).backward()
    matrices = [weight for block in alone.blocks for weight in block.parameters() if weight.ndim == 2]
    step(kind, matrices, [w for w in alone.parameters() if all(w is not matrix for matrix in matrices)])
    for found, wanted, start in zip(model.parameters(), alone.parameters(), before):
        found = (found.full_tensor() if isinstance(found, DTensor) else found).detach() - start
        grad, wanted = wanted.grad, wanted.detach() - start
        if "muon" in kind and any(wanted.shape == matrix.shape for matrix in matrices):
            cosine = torch.nn.functional.cosine_similarity(found.flatten(), wanted.flatten(), dim=0)
            assert cosine > 0.998, (kind, cosine)
            torch.testing.assert_close(found.norm(), wanted.norm(), rtol=0.02, atol=0)
        else:  # the first step of AdamW and Lion has the sign of the gradient, which rounding decides near zero
            clear = grad.abs() > 1e-6
            torch.testing.assert_close(found[clear], wanted[clear], rtol=2e-2, atol=1e-6)
    print(f"{kind} steps as one process does\\n", end="", flush=True)
"""
# Six small models under the functions of the two last scripts, DDP's and FSDP2's; every first size divides by 4.
MEASURE = """\
import copy
import json

import torch.distributed as dist
from torch import nn


class Block(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, inputs):
        return inputs + self.inner(inputs)


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.shape = heads, kv_heads, width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * kv_heads * width // heads, bias=False)

    def forward(self, inputs):
        heads, kv_heads, size = self.shape
        query = self.query(inputs).unflatten(-1, (heads, size)).transpose(1, 2)
        key, value = self.key_value(inputs).unflatten(-1, (2, kv_heads, size)).permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)
        return found.transpose(1, 2).flatten(2)


class Experts(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.router = nn.Linear(width, count)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(count))

    def forward(self, inputs):
        shares = self.router(inputs).softmax(-1)
        return sum(shares[..., [n]] * expert(inputs) for n, expert in enumerate(self.experts))


class Recurrent(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = nn.GRU(width, width, batch_first=True)

    def forward(self, inputs):
        return self.cell(inputs)[0]


def wide(width):
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


tokens = torch.arange(24).reshape(2, 12) % 64
features = torch.linspace(-1, 1, 2 * 12 * 32).reshape(2, 12, 32)
image = torch.linspace(-1, 1, 2 * 4 * 8 * 8).reshape(2, 4, 8, 8)
CASES = {
    "mlp": (nn.Sequential(*(Block(wide(32)) for _ in range(3)), nn.Linear(32, 8)), features),
    "decoder": (
        nn.Sequential(
            nn.Embedding(64, 32),
            *(Block(m) for _ in range(2) for m in (Attention(32, 4, 4), wide(32))),
            nn.Linear(32, 64, bias=False),
        ),
        tokens,
    ),
    "grouped-query": (nn.Sequential(nn.Embedding(64, 64), Block(Attention(64, 8, 2)), nn.Linear(64, 64)), tokens),
    "experts": (nn.Sequential(Block(Experts(32, 4)), Block(wide(32)), nn.Linear(32, 4)), features),
    "vision": (
        nn.Sequential(
            nn.Conv2d(4, 16, 3, padding=1),
            Block(nn.Sequential(nn.GroupNorm(4, 16), nn.GELU(), nn.Conv2d(16, 16, 3, padding=1))),
            nn.Flatten(),
            nn.Linear(16 * 64, 12),
        ),
        image,
    ),
    "recurrent": (nn.Sequential(Block(Recurrent(32)), nn.Linear(32, 8)), features),
}


def local(tensor):
    tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return tensor.numel() * tensor.element_size()


for kind in ("ddp", "fsdp2"):
    made = scripts[kind]
    for model_name, (built, inputs) in CASES.items():
        model = copy.deepcopy(built)
        count = sum(p.numel() for p in model.parameters())
        model = made.wrap(model, device) if kind == "ddp" else made.shard(model, Block, device)
        optimizer = made.make_optimizer(model)
        model(inputs).float().pow(2).mean().backward()
        grads = sum(local(p.grad) for p in model.parameters())
        optimizer.step()
        moments = [value for state in optimizer.state.values() for value in state.values() if value.ndim]
        line = {
            "rank": dist.get_rank(), "ranks": dist.get_world_size(), "kind": kind, "model": model_name,
            "count": count, "params": sum(map(local, model.parameters())), "grads": grads,
            "optimizer": sum(map(local, moments)),
        }
        print(json.dumps(line) + "\\n", end="", flush=True)
        del model, optimizer, moments
    gc.collect()
"""
COUNT_RANKS = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ranks = torch.ones(1)
dist.all_reduce(ranks)
print(f"{int(ranks)} ranks joined\\n", end="", flush=True)
dist.destroy_process_group()
"""


def setting(
    strategy: Strategy, gpus: int = 2, nodes: int = 1, params: float = 1e6, model: Model | None = None, **train: Any
) -> TrainingSetup:
    values = msgspec.convert({"dtype": "fp32", "micro_batch": 4} | train, TrainingOptions)
    model = model or Model(params=params)
    return fill_defaults(TrainingSetup(model=model, train=values, gpus=gpus, nodes=nodes, strategy=strategy))[0]


def written(directory: Path, asked: TrainingSetup, own_script: str = "", stateful: bool = False) -> Path:
    directory.mkdir()
    versions = {"torchdata": "0.11"} if stateful else {}
    write_job_files(directory, render_job_files(asked, own_script, versions=versions))
    return directory


def environ(directory: Path, **variables: str) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ACCELERATE_", "PET_"))}
    env |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}", "OMP_NUM_THREADS": "1"}
    return env | {"HF_HOME": str(directory)} | variables


def shell(line: str, directory: Path, **variables: str) -> str:
    """Run a line as a person would, with this interpreter's programs first on the path; its output."""
    env = environ(directory, **variables)
    outcome: ProcessOutcome = asyncio.run(run_process(["bash", "-c", line], limit_s=LIMIT_S, env=env, cwd=directory))
    assert outcome.status == "ok", outcome.log[-4000:]
    return outcome.log


def drive(
    directory: Path, names: list[str], ranks: int, before: str = "", each: str = TRAIN, after: str = ""
) -> dict[str, list[tuple[int, float]]]:
    """Train the projects; the steps and losses of each."""
    log = drive_log(directory, names, ranks, before, each, after)
    return {part.split("\n", 1)[0]: losses(part) for part in log.split("project ")[1:]}


def drive_log(directory: Path, names: list[str], ranks: int, before: str, each: str, after: str) -> str:
    driver = directory / "driver.py"
    driver.write_text(DRIVER.format(before=before, each=each, after=after))
    ended = run_torchrun(
        ["--standalone", f"--nproc-per-node={ranks}"],
        driver,
        [str(directory / name) for name in names],
        directory=directory,
        limit_s=LIMIT_S,
        environ=environ(directory, DS_ACCELERATOR="cpu", TINY="1"),
    )
    assert ended.code == 0, ended.log[-4000:]
    return ended.log


def losses(log: str) -> list[tuple[int, float]]:
    return [(int(step), float(loss)) for step, loss in re.findall(r"^step (\d+): loss ([\d.]+)", log, re.MULTILINE)]


def falls(found: list[tuple[int, float]]) -> bool:
    """The mean of the last losses is clearly below that of the first."""
    values = [loss for _, loss in found]
    return sum(values[-4:]) < sum(values[:4]) - 4 * 0.3


def continues(found: list[tuple[int, float]], first: int = 19, last: int = 24) -> bool:
    """The steps after a checkpoint were trained twice, with the same losses."""
    whole, again = found[:last], found[last:]
    assert [step for step, _ in found] == [*range(1, last + 1), *range(first, last + 1)]
    return again == [(step, pytest.approx(loss, abs=1e-5)) for step, loss in whole[first - 1 :]]


def same(*paths: Path) -> None:
    """The saved weights are those of the first file."""
    first, *others = (torch.load(path) for path in paths)
    for other in others:
        torch.testing.assert_close(other, first, rtol=1e-3, atol=1e-4)


def exact(log: str, ranks: int) -> None:
    """On each rank the bytes of parameters, gradients and moments are those of the plan: six models, both layouts."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith('{"rank"')]
    assert {(line["rank"], line["kind"], line["model"]) for line in lines} == {
        (rank, kind, model)
        for rank in range(ranks)
        for kind in ("ddp", "fsdp2")
        for model in ("mlp", "decoder", "grouped-query", "experts", "vision", "recurrent")
    }
    for line in lines:
        planned = model_states(setting(Strategy(kind=line["kind"]), ranks, params=line["count"]))
        sizes = [total_bytes(terms) for terms in (planned.params, planned.grads, planned.optimizer)]
        assert [line["params"], line["grads"], line["optimizer"]] == pytest.approx(sizes)


def killed_in_mid_run(directory: Path, seen: str, variables: dict[str, str]) -> str:
    """Run launch.sh, kill a rank when the log shows ``seen``, and return the log of the run, which ends well."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with (directory / "log").open("w") as log:
        env = os.environ | {"PATH": path} | variables
        job = subprocess.Popen([directory / "launch.sh"], env=env, stdout=log, stderr=log)
        try:
            wait_for(lambda: seen in (directory / "log").read_text() or job.poll() is not None or None, seen, LIMIT_S)
            assert job.poll() is None, (directory / "log").read_text()[-3000:]
            children = psutil.Process(job.pid).children(recursive=True)
            ranks = [each for each in children if each.cmdline()[-1].endswith("train.py")]
            max(ranks, key=lambda each: each.create_time()).kill()
            assert job.wait(timeout=LIMIT_S) == 0, (directory / "log").read_text()[-3000:]
        finally:
            job.kill()
    return (directory / "log").read_text()


DDP, FSDP2 = Strategy(kind="ddp"), Strategy(kind="fsdp2")
TENSOR = Strategy(kind="fsdp2", reshard_after_forward=True, tensor=2)
CONTEXT = Strategy(kind="fsdp2", reshard_after_forward=True, context=2)
EXPERT = Strategy(kind="fsdp2", reshard_after_forward=True, expert=2)
TIED = Model(params=1e6, tied=True, mlp="gelu")
EXPERTS = Model(params=1e6, experts=8, experts_per_token=2)


def test_two_ranks(tmp_path: Path) -> None:
    """DDP and FSDP2 as planned: what must not change the result does not, what a rank keeps is as computed."""
    whole = Strategy(kind="fsdp2", reshard_after_forward=False)
    asked = {
        "ddp-recomputes": setting(DDP, act_ckpt="selective-layer", optimizer_impl="fused"),
        "ddp-view": setting(Strategy(kind="ddp", gradient_as_bucket_view=True), act_offload=True),
        "ddp-sharded-optimizer": setting(Strategy(kind="zero-optimizer")),
        "fsdp2-full": setting(FSDP2, act_ckpt="full", act_offload=True),
        "fsdp2-layer": setting(whole, act_ckpt="selective-layer"),
        "fsdp2-op": setting(FSDP2, act_ckpt="selective-op"),
        "fsdp2-offload": setting(Strategy(kind="fsdp2", cpu_offload=True), optimizer_impl="fused"),
        "many-ddp": setting(DDP, grad_accum=2, loss="chunked"),
        "many-fsdp2": setting(FSDP2, grad_accum=2),
        "many-unreduced": setting(Strategy(kind="fsdp2", sync_each_batch=False), grad_accum=2),
        "ddp-fp16": setting(DDP, dtype="fp16-mixed", grad_accum=2, optimizer="sgd"),
        "ddp-pure": setting(DDP, dtype="bf16-pure", optimizer="adafactor"),
        "fsdp2-bf16": setting(whole, dtype="bf16-mixed"),
        "fsdp2-pure": setting(FSDP2, dtype="bf16-pure", act_ckpt="full"),
        "ddp-frozen": setting(DDP, frozen=0.3),
        "ddp": setting(DDP),
        "fsdp2": setting(FSDP2),
    }
    for name, each in asked.items():
        written(tmp_path / name, each)
    log = drive_log(tmp_path, list(asked), 2, "", TRAIN, MEASURE)
    for part in log.split("project ")[1:]:
        name = part.split("\n", 1)[0]
        found = losses(part)
        assert len(found) == 24
        assert falls(found) or name in ("ddp-fp16", "ddp-pure"), name  # SGD and Adafactor need more steps
    alike = [name for name in asked if not name.startswith("many") and not re.search("16|pure|frozen", name)]
    same(*(tmp_path / name / "model.pt" for name in alike))
    same(*(tmp_path / name / "model.pt" for name in asked if name.startswith("many")))
    for name in asked:
        dtypes = {value.dtype for value in torch.load(tmp_path / name / "model.pt").values()}
        assert dtypes == {torch.bfloat16 if name.endswith("-pure") else torch.float32}
    exact(log, 2)


def test_runs_continue_with_the_same_losses(tmp_path: Path) -> None:
    """After the newest checkpoint is lost and a later one is torn; and models built on the meta device are complete."""
    asked = {
        "ddp": setting(DDP, grad_accum=2),
        "ddp-sharded-optimizer": setting(Strategy(kind="zero-optimizer")),
        "ddp-frozen": setting(DDP, frozen=0.3),
        "fsdp2": setting(FSDP2, grad_accum=2, act_ckpt="full"),
        "fsdp2-tied": setting(FSDP2, model=TIED),
        "fsdp2-experts": setting(FSDP2, model=EXPERTS),
        "fsdp2-in-backward": setting(FSDP2, optimizer_in_bwd=True),
    }
    stateful = importlib.util.find_spec("torchdata") is not None
    for name, each in asked.items():
        written(tmp_path / name, each, stateful=stateful and name == "fsdp2")
    log = drive_log(tmp_path, list(asked), 2, "", LOGITS + TRAIN_AGAIN, "")
    for part in log.split("project ")[1:]:
        name = part.split("\n", 1)[0]
        assert part.count(f"{name}: the logits of one process") == 2
        assert continues(losses(part)), name
        assert "step-00000018: continuing after step 18" in part


def test_split_layers_and_sequences_train_as_one_process_does(tmp_path: Path) -> None:
    """Two groups of two ranks: logits, losses and weights; a run continues with the same ones."""
    train: dict[str, Any] = {"model": TIED, "act_ckpt": "full", "frozen": 0.3, "loss": "chunked"}
    written(tmp_path / "alone", setting(Strategy(kind="single"), 1, grad_accum=2, **train))
    written(tmp_path / "tensor", setting(TENSOR, 4, **train))
    written(tmp_path / "context", setting(CONTEXT, 4, act_offload=True, **train))
    alone = drive(tmp_path, ["alone"], 1)["alone"]
    logits = indent(LOGITS.replace("(device)(tokens)", "(device)(tokens).full_tensor()"), "    ")
    each = f"    if hasattr(made, 'TENSOR'):\n{logits}{TRAIN_AGAIN}"
    log = drive_log(tmp_path, ["tensor", "context"], 4, "", each, "")
    assert log.count("tensor: the logits of one process") == 4
    for part in log.split("project ")[1:]:
        name, found = part.split("\n", 1)[0], losses(part)
        assert continues(found), name
        assert falls(found[:24]), name
        assert found[:24] == [(step, pytest.approx(loss, abs=1e-5)) for step, loss in alone]
        same(tmp_path / "alone" / "model.pt", tmp_path / name / "model.pt")


@pytest.mark.parametrize(("ranks", "splits"), [(2, [2]), (4, [2, 4])])
def test_split_experts_train_as_one_process_does(ranks: int, splits: list[int], tmp_path: Path) -> None:
    """Gradients, losses and weights, whatever the split; a run continues with the same losses."""
    alone = written(tmp_path / "alone", setting(Strategy(kind="single"), 1, grad_accum=2, model=EXPERTS))
    for name, of_one, of_all in (
        ("model.py", "experts=3,", "experts=4,"),
        ("train.py", "    ACCUMULATION = 2", f"    ACCUMULATION = {ranks}"),
    ):
        text = (alone / name).read_text()
        assert of_one in text
        (alone / name).write_text(text.replace(of_one, of_all))
    names = [f"of-{size}" for size in splits]
    for name, size in zip(names, splits, strict=True):
        layout = msgspec.structs.replace(EXPERT, expert=size)
        written(tmp_path / name, setting(layout, ranks, model=EXPERTS, act_ckpt="full", act_offload=size == 2))
    whole = drive(tmp_path, ["alone"], 1, each=GRADIENTS + TRAIN)["alone"]
    for name, found in drive(tmp_path, names, ranks, each=GRADIENTS + TRAIN_AGAIN).items():
        assert continues(found), name
        assert falls(found[:24]), name
        assert found[:24] == [(step, pytest.approx(loss, abs=1e-5)) for step, loss in whole]
        same(alone / "model.pt", tmp_path / name / "model.pt")
        gradients, wanted = (torch.load(each / "gradients.pt") for each in (tmp_path / name, alone))
        torch.testing.assert_close(gradients, wanted, rtol=1e-4, atol=1e-7)


@pytest.mark.calibration
@pytest.mark.parametrize(
    ("strategy", "ranks"),
    [(FSDP2, 2), (TENSOR, 4), (CONTEXT, 4), (EXPERT, 4)],
    ids=["fsdp2", "tensor", "context", "expert"],
)
def test_a_killed_rank_does_not_change_the_losses(strategy: Strategy, ranks: int, tmp_path: Path) -> None:
    """kill -9 of a rank in mid-run: torchrun starts the ranks again, and they continue from a checkpoint."""
    made = written(tmp_path / "plan", setting(strategy, ranks, model=EXPERTS if strategy.expert else None))
    whole = drive(tmp_path, ["plan"], ranks)["plan"]
    shutil.rmtree(made / "checkpoints")
    before, after = killed_in_mid_run(made, "step 15: ", {"TINY": "1"}).split(": continuing after step ")
    assert int(after.split("\n", 1)[0]) in (6, 12)
    found = [*losses(before), *losses(after)]
    assert losses(after)[-1][0] == 24
    assert losses(after)[0][0] == int(after.split("\n", 1)[0]) + 1
    assert found == [(step, pytest.approx(dict(whole)[step], abs=1e-5)) for step, _ in found]


OWN_SCRIPT = """\
import time

import torch
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    inputs = torch.randn(640, 8)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8, shuffle=True)
    for epoch in range(6):
        for features, target in loader:
            loss = torch.nn.functional.mse_loss(model(features), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.02)
        print(f"step {epoch + 1}: loss {loss.item():.6f}", flush=True)


if __name__ == "__main__":
    main()
"""


@pytest.mark.calibration
@pytest.mark.parametrize("strategy", [DDP, FSDP2], ids=["ddp", "fsdp2"])
def test_a_patched_script_trains_on_two_ranks_and_continues(
    strategy: Strategy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own script with the patch of the plan: a killed rank does not change its losses."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(OWN_SCRIPT)
    made = plan_job_files(setting(strategy), Path("plan"), "train.py").files
    Path("plan").mkdir()
    write_job_files(Path("plan"), made)
    shell("patch -p1 < plan/train.py.patch", tmp_path)
    whole = losses(shell("sh plan/launch.sh", tmp_path))
    assert [step for step, _ in whole] == list(range(1, 7))
    assert whole[-1][1] < whole[0][1] / 2
    for saved in tmp_path.rglob("train_checkpoint*"):
        shutil.rmtree(saved) if saved.is_dir() else saved.unlink(missing_ok=True)
    found = losses(killed_in_mid_run(tmp_path / "plan", "step 4: ", {}))
    assert found[-1][0] == 6
    assert len(found) < 12
    assert found == [(step, pytest.approx(dict(whole)[step], abs=1e-5)) for step, _ in found]


@pytest.mark.calibration
def test_a_step_of_two_ranks_is_that_of_one_process(tmp_path: Path) -> None:
    """Muon, Lion, and steps within the backward pass."""
    ddp, fsdp2 = DDP, FSDP2
    asked = {
        "ddp-muon": setting(ddp, optimizer="muon", act_offload=True, grad_accum=2),
        "ddp-sharded-muon": setting(Strategy(kind="zero-optimizer"), optimizer="muon"),
        "fsdp2-muon": setting(fsdp2, optimizer="muon", act_ckpt="full"),
        "fsdp2-muon-whole": setting(Strategy(kind="fsdp2", reshard_after_forward=False), optimizer="muon"),
        "ddp-lion": setting(ddp, optimizer="lion"),
        "ddp-sharded-lion": setting(Strategy(kind="zero-optimizer"), optimizer="lion"),
        "fsdp2-lion": setting(fsdp2, optimizer="lion"),
        "fsdp2-in-backward": setting(fsdp2, optimizer_in_bwd=True, optimizer_impl="fused", act_ckpt="full"),
    }
    for name, each in asked.items():
        written(tmp_path / name, each)
    log = drive_log(tmp_path, list(asked), 2, "", ONE_STEP + TRAIN, "")
    for name in asked:
        assert log.count(f"{name} steps as one process does") == 2
    same(*(tmp_path / name / "model.pt" for name in ("ddp-lion", "ddp-sharded-lion")))


@pytest.mark.calibration
def test_muon_and_lion_in_other_precisions(tmp_path: Path) -> None:
    """With a scaler, which steps them as it does any other, in 16 bit, and on the host."""
    asked = {
        "ddp-muon": setting(Strategy(kind="ddp"), optimizer="muon", dtype="fp16-mixed", grad_accum=2),
        "ddp-lion": setting(Strategy(kind="ddp"), optimizer="lion", dtype="fp16-mixed"),
        "fsdp2-muon": setting(Strategy(kind="fsdp2"), optimizer="muon", dtype="fp16-mixed", act_offload=True),
        "fsdp2-host": setting(Strategy(kind="fsdp2", cpu_offload=True), optimizer="muon", dtype="bf16-pure"),
        "fsdp2-in-backward": setting(
            Strategy(kind="fsdp2", cpu_offload=True), optimizer="lion", dtype="bf16-pure", optimizer_in_bwd=True
        ),
    }
    for name, each in asked.items():
        written(tmp_path / name, each)
    for name, found in drive(tmp_path, list(asked), 2).items():
        saved = torch.load(tmp_path / name / "model.pt")
        assert all(value.isfinite().all() for value in saved.values())
        assert falls(found) or name == "fsdp2-muon", name  # its first steps are left out, as the scale still falls


def test_adapters_are_all_that_is_trained_and_saved(tmp_path: Path) -> None:
    """PEFT's, of a plan for each layout, in float32 on weights in 16 bit."""
    pytest.importorskip("peft", reason="PEFT makes them: pip install peft")
    lora = {"r": 4, "alpha": 8}
    asked = {
        "ddp": setting(Strategy(kind="ddp"), lora=lora, dtype="bf16", grad_accum=2),
        "ddp-muon": setting(Strategy(kind="zero-optimizer"), lora=lora, dtype="bf16", optimizer="muon"),
        "fsdp2": setting(Strategy(kind="fsdp2"), lora=lora, dtype="bf16", act_ckpt="full", act_offload=True),
        "fsdp2-all": setting(Strategy(kind="fsdp2"), lora=lora | {"target": "all-linear"}, dtype="bf16"),
        "fsdp2-in-backward": setting(Strategy(kind="fsdp2"), lora=lora, dtype="bf16-pure", optimizer_in_bwd=True),
    }
    for name, each in asked.items():
        written(tmp_path / name, each)
    for name, found in drive(tmp_path, list(asked), 2, each=TRAIN_AGAIN).items():
        assert continues(found), name
        saved = torch.load(tmp_path / name / "model.pt")
        parts = {tuple(key.rsplit(".", 2)) for key in saved}
        adapted = {layer.split(".")[-1] for layer, *_ in parts}
        every = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "head"}
        assert adapted == (every if name == "fsdp2-all" else {"q_proj", "v_proj"})
        assert {value.dtype for value in saved.values()} == {
            torch.bfloat16 if name == "fsdp2-in-backward" else torch.float32
        }
        assert all(value.any() for value in saved.values())  # B starts at zero


@pytest.mark.calibration
def test_four_ranks(tmp_path: Path) -> None:
    """Hybrid sharding and resharding to two ranks train as FSDP2 does."""
    asked = {
        "hsdp": setting(Strategy(kind="hsdp", shard_size=2), 4, grad_accum=2, act_ckpt="full"),
        "to-two": setting(Strategy(kind="fsdp2", reshard_after_forward=2), 4, grad_accum=2),
        "ddp": setting(Strategy(kind="ddp"), 4),
        "hsdp-muon": setting(Strategy(kind="hsdp", shard_size=2), 4, optimizer="muon"),
        "fsdp2": setting(Strategy(kind="fsdp2"), 4, grad_accum=2),
    }
    for name, each in asked.items():
        written(tmp_path / name, each)
    log = drive_log(tmp_path, list(asked), 4, "", TRAIN, MEASURE)
    same(*(tmp_path / name / "model.pt" for name in ("fsdp2", "hsdp", "to-two")))
    exact(log, 4)


def test_deepspeed_trains_and_continues_in_every_stage(tmp_path: Path) -> None:
    """DeepSpeed's engine with the written JSON and program, on its CPU accelerator."""
    pytest.importorskip("deepspeed", reason="deepspeed is not installed")
    names = [f"zero-{stage}" for stage in range(4)]
    for stage, name in enumerate(names):
        layout = msgspec.convert({"kind": "deepspeed", "stage": stage}, Strategy)
        written(tmp_path / name, setting(layout, dtype="bf16", grad_accum=2, act_ckpt="full" if stage == 2 else "none"))
    for name, found in drive(tmp_path, names, 2, before=WITHOUT_COMPILING, each=BUFFERS + TRAIN_AGAIN).items():
        assert falls(found[:24]), name
        assert continues(found), name


@pytest.mark.calibration
def test_deepspeed_trains_with_muon_lion_and_adapters(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed", reason="deepspeed is not installed")
    two, three = (msgspec.convert({"kind": "deepspeed", "stage": stage}, Strategy) for stage in (2, 3))
    asked = {
        "muon": setting(two, dtype="bf16", optimizer="muon"),
        "lion": setting(two, dtype="bf16", optimizer="lion", act_offload=True),
        "lion-3": setting(three, dtype="bf16", optimizer="lion"),
    }
    if importlib.util.find_spec("peft"):
        asked |= {f"adapters-{layout.stage}": setting(layout, dtype="bf16", lora={"r": 4}) for layout in (two, three)}
    for name, each in asked.items():
        written(tmp_path / name, each)
    for name, found in drive(tmp_path, list(asked), 2, before=WITHOUT_COMPILING).items():
        assert falls(found), (name, found)


@pytest.mark.parametrize(
    "strategy",
    ["fsdp2", *(pytest.param(kind, marks=pytest.mark.calibration) for kind in ("ddp", "hsdp", "deepspeed"))],
)
def test_accelerate_trains_on_two_processes(strategy: str, tmp_path: Path) -> None:
    """Without GPUs Accelerate has neither FSDP nor DeepSpeed: the script joins the processes of the same file, which
    train with DDP. Its plugins are held against the files in tests/plan."""
    pytest.importorskip("accelerate", reason="Accelerate runs here: pip install -c constraints.txt accelerate")
    options = {"deepspeed": {"stage": 2}, "hsdp": {"shard_size": 1}}
    layout = msgspec.convert({"kind": strategy} | options.get(strategy, {}), Strategy)
    made = written(tmp_path / "plan", setting(layout, dtype="bf16", grad_accum=2))
    line = (made / "accelerate.yaml").read_text().splitlines()[0].removeprefix("# ")
    start = f"{line} && rm -r checkpoints/accelerate/tiny/step-00000024 && {line}"
    found = losses(shell(start, made, DS_ACCELERATOR="cpu", TINY="1"))
    assert falls(found[:24])
    assert continues(found)
    saved = made / "checkpoints/accelerate/tiny/step-00000024"
    assert len([*saved.glob("random_states_*")]) == 2  # of one run, whose processes are two ranks


def refusal(log: str, directory: Path) -> str:
    """Return the message on checkpoints with which a run has failed; its ranks have no traceback."""
    assert f'File "{directory}' not in log
    return next(each for each in log.splitlines() if "of a model of another size" in each)


def test_small_and_planned_model_have_checkpoints_of_their_own(tmp_path: Path) -> None:
    """TINY=1, then the planned model, by launch.sh and by accelerate launch; a model of another size is refused."""
    pytest.importorskip("accelerate", reason="Accelerate runs here: pip install -c constraints.txt accelerate")
    model = Model(params=1e5, layers=1, hidden=64, heads=4, vocab=256)
    made = written(tmp_path / "plan", setting(FSDP2, model=model, seq_len=32))
    for name in ("train.py", "train_accelerate.py"):
        text = (made / name).read_text()
        (made / name).write_text(
            text.replace("STEPS = 1000", "STEPS = 4").replace("SAVE_EVERY = 100", "SAVE_EVERY = 2")
        )
    accelerated = "accelerate launch --config_file accelerate.yaml train_accelerate.py"
    for line, directory in (("./launch.sh", "checkpoints"), (accelerated, "checkpoints/accelerate")):
        assert losses(shell(line, made, TINY="1"))[-1][0] == 24
        assert [step for step, _ in losses(shell(line, made))] == [1, 2, 3, 4]
        assert sorted(path.name for path in (made / directory).glob("step-*")) == ["step-00000002", "step-00000004"]
        assert sorted(path.name for path in (made / directory / "tiny").glob("step-*")) == [
            "step-00000018",
            "step-00000024",
        ]
    ended = run_torchrun(
        ["--standalone", "--nproc-per-node=2"],
        made / "train.py",
        directory=made,
        limit_s=LIMIT_S,
        environ=environ(made, CHECKPOINTS="checkpoints/tiny"),
    )
    assert ended.code == 1
    assert refusal(ended.log, made).startswith("checkpoints/tiny/step-00000024 is of ")
    (made / "other").mkdir()
    (made / "checkpoints/accelerate/tiny").rename(made / "other/accelerate")
    log = shell(f"! ({accelerated}) 2>&1", made, CHECKPOINTS="other")
    assert refusal(log, made).startswith("other/accelerate/step-00000024 is of ")


def test_both_manifests_start_ranks_that_meet(tmp_path: Path) -> None:
    """The first pod as the Training Operator would start it, with its PET_* variables; the second as JobSet would."""
    made = written(tmp_path / "plan", setting(Strategy(kind="ddp"), 2, 2), "train.py")
    (made / "train.py").write_text(COUNT_RANKS)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    job = yaml.safe_load((made / "pytorchjob.yaml").read_text())["spec"]
    (first,) = job["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    operator = f"PET_NNODES=2 PET_NPROC_PER_NODE={job['nprocPerNode']} PET_NODE_RANK=0 PET_MASTER_ADDR=127.0.0.1"
    jobset = yaml.safe_load((made / "jobset.yaml").read_text())["spec"]["replicatedJobs"][0]["template"]["spec"]
    (second,) = jobset["template"]["spec"]["containers"]
    command = shlex.join(second["command"]).replace("'--node-rank=$(JOB_COMPLETION_INDEX)'", "--node-rank=1")
    command = command.replace("train-nodes-0-0.train", "127.0.0.1").replace("29500", str(port))
    assert "--node-rank=1 --master-addr=127.0.0.1" in command
    line = f"{operator} PET_MASTER_PORT={port} {shlex.join(first['command'])} & first=$!; {command} && wait $first"
    assert shell(line, made).count("2 ranks joined") == 2
