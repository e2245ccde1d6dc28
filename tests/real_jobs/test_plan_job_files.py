"""The files of a plan, run for real on gloo: torchrun, DeepSpeed on the CPU, accelerate launch; what a rank keeps.

Several scripts share one start of torchrun, by a driver that calls the ``train`` of each in one process group: starting
the ranks takes longer than what they do.
"""

import asyncio
import importlib.util
import json
import os
import shlex
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import yaml
from ddpwizard.app.plan.job_files.write import render_job_files, write_job_files
from ddpwizard.app.plan.memory.formula import total_bytes
from ddpwizard.app.plan.memory.model_states import model_states
from ddpwizard.app.plan.spec import fill_defaults
from ddpwizard.app.plan.types import Model, Strategy, TrainingOptions, TrainingSetup
from ddpwizard.app.system.subprocesses import ProcessOutcome, run_process

pytestmark = [pytest.mark.jobs, pytest.mark.slow]

LIMIT_S = 600.0
RANKS_OF_MODELS = (2, 4)
# Trains by the script of each directory that is named, from the same weights.
DRIVER = """\
import gc
import importlib.util
import os
import sys
from pathlib import Path

import torch
{before}

device = None
scripts = {{}}
for number, name in enumerate(sys.argv[1:]):
    (path,) = Path(name).glob("*_setup.py")
    spec = importlib.util.spec_from_file_location(f"made_{{number}}", path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    scripts[Path(name).name] = made
    device = device or made.set_up()
    os.chdir(name)
    torch.manual_seed(0)
    made.train(device)
    gc.collect()
{after}
made.finish()
"""
# DeepSpeed's own all-reduce for the CPU is compiled when it is first used, for a minute; gloo does it as well. Its Muon
# compiles what torch does as well.
WITHOUT_COMPILING = """\
import torch._dynamo

torch._dynamo.config.disable = True
import deepspeed

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
"""
# One step of each script on shares of one batch, against torch's own optimizers in one process. Muon rounds to bf16.
ONE_STEP = """\
import copy

import torch.distributed as dist
from torch.distributed.tensor import DTensor


def step(name, model, matrices, others):
    if "lion" in name:
        with torch.no_grad():
            for weight in [*matrices, *others]:
                weight.sub_(1e-3 * weight.grad.sign())
        return
    if "muon" in name:
        torch.optim.Muon(matrices, lr=1e-3, adjust_lr_fn="match_rms_adamw").step()
    torch.optim.AdamW(others if "muon" in name else [*matrices, *others], lr=1e-3).step()


for name, made in scripts.items():
    torch.manual_seed(1)
    inputs, target = torch.randn(64, 16), torch.randn(64, 16)
    model = torch.nn.Sequential(made.Block(16), made.Block(16), torch.nn.Linear(16, 16))
    alone, before = copy.deepcopy(model), [weight.detach().clone() for weight in model.parameters()]
    model = made.wrap(model, device) if "ddp" in name else made.shard(model, made.Block, device)
    optimizer = None if "in-backward" in name else made.make_optimizer(model)
    if optimizer is None:
        made.step_in_backward(model)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    made.loss_of(model, inputs.chunk(ranks)[rank], target.chunk(ranks)[rank]).backward()
    if optimizer is None:
        assert all(weight.grad is None for weight in model.parameters())
    else:
        optimizer.step()
    made.loss_of(alone, inputs, target).backward()
    matrices = [weight for block in alone[:2] for weight in block.parameters() if weight.ndim == 2]
    step(name, alone, matrices, [w for w in alone.parameters() if all(w is not matrix for matrix in matrices)])
    for found, wanted, start in zip(model.parameters(), alone.parameters(), before):
        found = (found.full_tensor() if isinstance(found, DTensor) else found).detach() - start
        wanted = wanted.detach() - start
        if "muon" in name and any(wanted.shape == matrix.shape for matrix in matrices):
            assert torch.nn.functional.cosine_similarity(found.flatten(), wanted.flatten(), dim=0) > 0.999, name
            torch.testing.assert_close(found.norm(), wanted.norm(), rtol=0.01, atol=0)
        else:
            torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-6)
    print(f"{name} steps as one process does\\n", end="", flush=True)
    del model, optimizer
    gc.collect()
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
ACCELERATED = """\
import gc

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def train(accelerator):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(64, 8)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for _ in range(4):
        for features, target in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(features), target)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        losses.append(loss.item())
    words = accelerator.num_processes, accelerator.mixed_precision, accelerator.gradient_accumulation_steps
    print(f"trained {words} {losses[-1] < losses[0]}\\n", end="", flush=True)


accelerator = Accelerator(gradient_accumulation_steps=2)
train(accelerator)
gc.collect()
accelerator.end_training()
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


def setting(strategy: Strategy, gpus: int = 2, nodes: int = 1, params: float = 1e6, **train: Any) -> TrainingSetup:
    values = msgspec.convert({"dtype": "fp32", "micro_batch": 4} | train, TrainingOptions)
    return fill_defaults(
        TrainingSetup(model=Model(params=params), train=values, gpus=gpus, nodes=nodes, strategy=strategy)
    )[0]


def written(directory: Path, asked: TrainingSetup, script: str = "train.py") -> Path:
    directory.mkdir()
    write_job_files(directory, render_job_files(asked, script), "--write")
    return directory


def shell(line: str, directory: Path, **variables: str) -> str:
    """Run a line as a person would, with this interpreter's programs first on the path; its output."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ACCELERATE_", "PET_"))}
    env |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}", "OMP_NUM_THREADS": "1"}
    outcome: ProcessOutcome = asyncio.run(
        run_process(
            ["bash", "-c", line], limit_s=LIMIT_S, env=env | {"HF_HOME": str(directory)} | variables, cwd=directory
        )
    )
    assert outcome.status == "ok", outcome.log[-4000:]
    return outcome.log


def drive(directory: Path, names: list[str], ranks: int, before: str = "", after: str = "") -> str:
    (directory / "driver.py").write_text(DRIVER.format(before=before, after=after))
    line = ["torchrun", "--standalone", f"--nproc-per-node={ranks}", "driver.py"]
    return shell(shlex.join([*line, *(str(directory / name) for name in names)]), directory, DS_ACCELERATOR="cpu")


def same(*paths: Path) -> None:
    """The saved weights are those of the first file."""
    first, *others = (torch.load(path) for path in paths)
    for other in others:
        torch.testing.assert_close(other, first, rtol=1e-4, atol=1e-5)


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


def test_two_ranks(tmp_path: Path) -> None:
    """DDP and FSDP2 as planned: what must not change the result does not, what a rank keeps is as computed."""
    ddp, fsdp2, whole = (
        Strategy(kind="ddp"),
        Strategy(kind="fsdp2"),
        Strategy(kind="fsdp2", reshard_after_forward=False),
    )
    offloaded = Strategy(kind="fsdp2", reshard_after_forward=True, cpu_offload=True)
    asked = {
        "ddp-accumulates": setting(ddp, grad_accum=2),
        "ddp-recomputes": setting(ddp, micro_batch=8, act_ckpt="selective-layer"),
        "ddp-view": setting(Strategy(kind="ddp", gradient_as_bucket_view=True), micro_batch=8, optimizer_impl="fused"),
        "ddp-sharded-optimizer": setting(Strategy(kind="zero-optimizer"), micro_batch=8),
        "ddp-fp16": setting(ddp, dtype="fp16-mixed", grad_accum=2, optimizer="sgd"),
        "ddp-pure": setting(ddp, dtype="bf16-pure", optimizer="adafactor"),
        "fsdp2-full": setting(fsdp2, act_ckpt="full"),
        "fsdp2-layer": setting(whole, act_ckpt="selective-layer"),
        "fsdp2-op": setting(fsdp2, act_ckpt="selective-op"),
        "fsdp2-offload": setting(offloaded, optimizer_impl="fused"),
        "fsdp2-fp16": setting(fsdp2, dtype="fp16-mixed", grad_accum=3, optimizer="sgd"),
        "fsdp2-bf16": setting(whole, dtype="bf16-mixed"),
        "fsdp2-pure": setting(fsdp2, dtype="bf16-pure", act_ckpt="full"),
        "ddp-host": setting(ddp, micro_batch=8, act_offload=True),
        "fsdp2-host": setting(fsdp2, act_offload=True, act_ckpt="full"),
        "ddp": setting(ddp, micro_batch=8),
        "fsdp2": setting(fsdp2),
    }
    for name, each in asked.items():
        written(tmp_path / name, each)
    log = drive(tmp_path, list(asked), 2, after=MEASURE)
    of_ddp = ["ddp", "ddp-accumulates", "ddp-recomputes", "ddp-view", "ddp-sharded-optimizer", "ddp-host"]
    same(*(tmp_path / name / "ddp_model.pt" for name in of_ddp))
    alike = ["fsdp2", "fsdp2-full", "fsdp2-layer", "fsdp2-op", "fsdp2-offload", "fsdp2-host"]
    same(*(tmp_path / name / "fsdp2_model.pt" for name in alike))
    kept = {name: next(tmp_path.glob(f"{name}/*_model.pt")) for name in asked}
    for name, path in kept.items():
        dtypes = {value.dtype for value in torch.load(path).values()}
        assert dtypes == {torch.bfloat16 if name.endswith("-pure") else torch.float32}
    exact(log, 2)


@pytest.mark.calibration
def test_a_step_of_two_ranks_is_that_of_one_process(tmp_path: Path) -> None:
    """Muon, Lion, and steps within the backward pass."""
    ddp, fsdp2 = Strategy(kind="ddp"), Strategy(kind="fsdp2")
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
    log = drive(tmp_path, list(asked), 2, after=ONE_STEP)
    for name in asked:
        assert log.count(f"{name} steps as one process does") == 2
    same(*(tmp_path / name / "ddp_model.pt" for name in ("ddp-lion", "ddp-sharded-lion")))


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
    drive(tmp_path, list(asked), 2)
    torch.manual_seed(0)
    first = torch.nn.Linear(16, 64).weight.detach()
    for name in asked:
        saved = torch.load(next(tmp_path.glob(f"{name}/*_model.pt")))
        assert all(value.isfinite().all() for value in saved.values())
        if name != "fsdp2-muon":  # its few steps are left out, as the scale still falls
            moved = (saved["0.layers.0.weight"].float() - first).abs()
            assert 1e-4 < moved.mean() < 0.01
            assert moved.max() < 0.02


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
    drive(tmp_path, list(asked), 2)
    for name in asked:
        saved = torch.load(next(tmp_path.glob(f"{name}/*_model.pt")))
        adapted = {"0.out", "1.out"} | ({"0.layers.0", "1.layers.0", "2"} if name == "fsdp2-all" else set())
        parts = {f"base_model.model.{layer}.lora_{part}.weight" for layer in adapted for part in "AB"}
        assert saved.keys() == parts
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
    log = drive(tmp_path, list(asked), 4, after=MEASURE)
    same(*(tmp_path / name / "fsdp2_model.pt" for name in ("fsdp2", "hsdp", "to-two")))
    exact(log, 4)


def test_launch_sh_starts_the_written_script(tmp_path: Path) -> None:
    made = written(tmp_path / "plan", setting(Strategy(kind="fsdp2"), dtype="bf16", act_ckpt="full"), "fsdp2_setup.py")
    assert shell("plan/launch.sh", tmp_path).count("loss") == 4
    assert (made / "fsdp2_model.pt").exists()


def test_deepspeed_trains_in_every_stage(tmp_path: Path) -> None:
    """DeepSpeed's engine with the written JSON and script, on its CPU accelerator."""
    pytest.importorskip("deepspeed", reason="deepspeed is not installed")
    names = [f"zero-{stage}" for stage in range(4)]
    for stage, name in enumerate(names):
        layout = msgspec.convert({"kind": "deepspeed", "stage": stage}, Strategy)
        written(tmp_path / name, setting(layout, dtype="bf16", grad_accum=2, act_ckpt="full" if stage == 2 else "none"))
    log = drive(tmp_path, names, 2, before=WITHOUT_COMPILING)
    assert log.count("step 4: loss") == 4
    for name in names:
        assert list((tmp_path / name / "deepspeed_checkpoint").glob("global_step4/*model_states.pt"))


@pytest.mark.calibration
def test_deepspeed_trains_with_muon_lion_and_adapters(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed", reason="deepspeed is not installed")
    two, three = (msgspec.convert({"kind": "deepspeed", "stage": stage}, Strategy) for stage in (2, 3))
    asked = {
        "muon": setting(two, dtype="bf16", optimizer="muon"),
        "muon-3": setting(three, dtype="bf16", optimizer="muon", grad_accum=2),
        "lion": setting(two, dtype="bf16", optimizer="lion", act_offload=True),
        "lion-3": setting(three, dtype="bf16", optimizer="lion"),
    }
    if importlib.util.find_spec("peft"):
        asked |= {f"adapters-{layout.stage}": setting(layout, dtype="bf16", lora={"r": 4}) for layout in (two, three)}
    for name, each in asked.items():
        written(tmp_path / name, each)
    log = drive(tmp_path, list(asked), 2, before=WITHOUT_COMPILING)
    assert log.count("step 4: loss") == len(asked)


@pytest.mark.parametrize(
    "strategy",
    ["fsdp2", *(pytest.param(kind, marks=pytest.mark.calibration) for kind in ("ddp", "deepspeed"))],
)
def test_accelerate_trains_on_two_processes(strategy: str, tmp_path: Path) -> None:
    """Without GPUs Accelerate has neither FSDP nor DeepSpeed: with ACCELERATE_USE_CPU it reads the same file, starts
    the same processes and trains with DDP. Its plugins are held against the files in tests/plan."""
    pytest.importorskip("accelerate", reason="Accelerate runs here: pip install -c constraints.txt accelerate")
    stage = {"stage": 2} if strategy == "deepspeed" else {}
    layout = msgspec.convert({"kind": strategy} | stage, Strategy)
    made = written(tmp_path / "plan", setting(layout, dtype="bf16", grad_accum=2))
    (made / "train.py").write_text(ACCELERATED)
    line = (made / "accelerate.yaml").read_text().splitlines()[0].removeprefix("# ")
    log = shell(line, made, ACCELERATE_USE_CPU="true", DS_ACCELERATOR="cpu")
    precision = "no" if strategy == "deepspeed" else "bf16"  # DeepSpeed's stands in its own file
    assert log.count(f"trained (2, '{precision}', 2) True") == 2


def test_both_manifests_start_ranks_that_meet(tmp_path: Path) -> None:
    """The first pod as the Training Operator would start it, with its PET_* variables; the second as JobSet would."""
    made = written(tmp_path / "plan", setting(Strategy(kind="ddp"), 2, 2))
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
