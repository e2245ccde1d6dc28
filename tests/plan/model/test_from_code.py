"""A model of the user's own, built on the meta device in a child process, and its shards as torch makes them."""

import asyncio
import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from ddpwizard.app.errors import InspectionError, UserError
from ddpwizard.app.plan.model.from_code import (
    ModelShape,
    frozen_share,
    inspect_factory,
    model_from_shape,
)
from helpers.jobs import wait_for

MODELS = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width, inner, heads):
        super().__init__()
        self.num_heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

class Net(nn.Module):
    def __init__(self, width, inner, heads, layers, vocab, tied):
        super().__init__()
        self.table = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width, inner, heads) for _ in range(layers))
        self.head = nn.Linear(width, vocab, bias=False)
        if tied:
            self.head.weight = self.table.weight

def small(): return Net(64, 256, 4, 3, 1000, True)
def uneven(): return Net(33, 101, 3, 2, 77, False)
def reads(): return nn.Sequential(*(nn.Dropout(rate.item()) for rate in torch.linspace(0, 0.1, 3)))
def narrow(): return Net(6, 10, 2, 5, 11, True)
def wide(): return Net(128, 300, 8, 1, 333, False)
def plain(): return nn.Sequential(nn.Linear(17, 5), nn.ReLU(), nn.Linear(5, 3))
def convolutions(): return nn.Sequential(nn.Conv2d(3, 7, 3), nn.BatchNorm2d(7), nn.Conv2d(7, 13, 3))
def sixty_billion(): return Net(8192, 28672, 64, 80, 32000, False)
def leaves(): raise SystemExit("bye\\nnow")
def sleeps():
    import time
    time.sleep(1000)
def downloads():
    import urllib.request
    urllib.request.urlopen("http://example.com/weights")
def from_hub():
    from transformers import AutoModel
    return AutoModel.from_pretrained("bert-base-uncased")
def greedy(): return bytearray(64 * 2**30)
def partly_frozen(width, layers):
    net = Net(width, 256, 4, layers, 1000, True)
    net.table.requires_grad_(False)
    return net
"""
SIX = ("small", "uneven", "narrow", "wide", "plain", "convolutions")
# Elements that torch keeps on each rank of a real gloo job.
SHARDED = """
import json, os, sys
from pathlib import Path
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
import models
dist.init_process_group("gloo")
counts = {}
for name in sys.argv[2:]:
    model = getattr(models, name)()
    whole = sum(p.numel() for p in model.parameters())
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    optimizer.step()
    params = sum(p.to_local().numel() for p in model.parameters())
    grads = sum(p.grad.to_local().numel() for p in model.parameters())
    states = [v for s in optimizer.state.values() for k, v in s.items() if k in ("exp_avg", "exp_avg_sq")]
    counts[name] = [whole, params, grads, sum(v.to_local().numel() for v in states)]
Path(sys.argv[1] + str(dist.get_rank())).write_text(json.dumps(counts))
dist.barrier()
os._exit(0)  # what still holds the group can abort the process when Python takes it down (gloo)
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "models.py").write_text(MODELS)
    return tmp_path


def shape_of(name: str, directory: Path, *arguments: Any) -> ModelShape:
    return asyncio.run(inspect_factory(f"models:{name}", sys.executable, directory, (arguments, {})))


@pytest.mark.jobs
@pytest.mark.slow
def test_the_shape_of_sixty_billion_parameters_takes_no_memory(models: Path) -> None:
    shape = shape_of("sixty_billion", models)
    model = model_from_shape(shape)
    assert (shape.block, model.layers, model.hidden, model.heads) == ("Block", 80, 8192, 64)
    assert (model.vocab, model.intermediate, model.tied) == (32000, 28672, False)
    block = 2 * 8192 + 4 * (8192 * 8192 + 8192) + 2 * 8192 * 28672 + 28672 + 8192
    assert model.params == 2 * 8192 * 32000 + 80 * block


@pytest.mark.jobs
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("leaves", "SystemExit: bye", marks=pytest.mark.calibration),
        ("downloads", "connection to 'example.com' refused: nothing is downloaded while a plan is made"),
        pytest.param("from_hub", "couldn't connect to 'https://huggingface.co'", marks=pytest.mark.calibration),
        pytest.param("greedy", "MemoryError", marks=pytest.mark.calibration),
        ("reads", "cannot be called on meta tensors"),
    ],
)
def test_failing_factory_is_reported_in_one_line(name: str, message: str, models: Path) -> None:
    with pytest.raises(UserError) as refusal:
        shape_of(name, models)
    assert message in refusal.value.message
    assert "\n" not in refusal.value.message
    assert ("on the meta device" in (refusal.value.next_step or "")) == (name == "reads")


@pytest.mark.jobs
@pytest.mark.slow
def test_factory_that_never_returns_is_terminated(models: Path) -> None:
    with pytest.raises(InspectionError, match="models:sleeps did not answer within 5 s"):
        asyncio.run(inspect_factory("models:sleeps", sys.executable, models, limit_s=5))


@pytest.mark.jobs
@pytest.mark.slow
def test_ctrl_c_terminates_a_factory_that_never_returns(models: Path) -> None:
    program = [sys.executable, "-m", "ddpwizard", "plan", "--model", "models:sleeps", "--gpus", "1"]
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # also where the tests were started in the background
    with subprocess.Popen(program, cwd=models, stderr=subprocess.PIPE, text=True, preexec_fn=heeds) as command:
        assert command.stderr is not None
        assert "importing models in" in command.stderr.readline()  # before it does
        process = psutil.Process(command.pid)
        supervisor = wait_for(lambda: next(iter(process.children()), None), "the supervisor of the factory")
        command.send_signal(signal.SIGINT)
        output = command.communicate(timeout=180)[1]
    assert command.returncode == 130
    assert "Traceback" not in output
    supervisor.wait(timeout=180)


@pytest.mark.jobs
@pytest.mark.slow
def test_factory_arguments_and_frozen_weights(models: Path) -> None:
    shape = shape_of("partly_frozen", models, 64, 5)
    assert (shape.layers, shape.hidden, shape.vocab, shape.tied) == (5, 64, 1000, True)
    assert frozen_share(shape) == pytest.approx(64_000 / model_from_shape(shape).params)


@pytest.mark.parametrize("name", ["models", "models:", ":f", "a b:c", "os;x:y", "models:f()"])
def test_invalid_factory_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="names no function"):
        asyncio.run(inspect_factory(name, sys.executable, tmp_path))


def fsdp2_elements(shape: ModelShape, ranks: int, rank: int) -> int:
    """Return the elements that a rank keeps if the rows of each parameter are split as torch.chunk does."""
    kept = 0
    for parameter in shape.params:
        rows = parameter.shape[0] if parameter.shape else 1
        chunk = -(-rows // ranks)
        kept += max(0, min(rows - chunk * rank, chunk)) * (parameter.count // rows if rows else 0)
    return kept


@pytest.mark.calibration
@pytest.mark.jobs
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_fsdp2_elements_per_rank_match_torch(ranks: int, models: Path) -> None:
    """Parameters, gradients and AdamW's states of each rank, to the element, for six models."""
    (models / "sharded.py").write_text(SHARDED)
    output = models / "counts"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    done = subprocess.run(
        [*launch, "sharded.py", str(output), *SIX], cwd=models, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    by_rank = [json.loads(Path(f"{output}{rank}").read_text()) for rank in range(ranks)]
    for name in SIX:
        shape = shape_of(name, models)
        for rank, of_rank in enumerate(by_rank):
            whole, params, grads, states = of_rank[name]
            assert model_from_shape(shape).params == whole
            assert fsdp2_elements(shape, ranks, rank) == params == grads
            assert states == 2 * params
