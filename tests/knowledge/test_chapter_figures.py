"""The figures of the chapters against torch and the planner, and their first script."""

import json
import re
import subprocess
import sys
import textwrap
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from ddpwizard.knowledge.chapters import read_chapters
from helpers.command import ddpwizard
from torch._C._distributed_c10d import _DEFAULT_FIRST_BUCKET_BYTES
from torch.distributed.constants import default_pg_timeout
from torch.utils.data import DistributedSampler

CHAPTERS = read_chapters()


def shares(samples: int, ranks: int, *, epoch: int = 0, shuffle: bool = True) -> list[list[int]]:
    """Return the samples of each rank as DistributedSampler gives them."""
    found = []
    for rank in range(ranks):
        sampler: DistributedSampler[int] = DistributedSampler(
            torch.arange(samples),  # pyright: ignore[reportArgumentType]
            num_replicas=ranks,
            rank=rank,
            shuffle=shuffle,
        )
        sampler.set_epoch(epoch)
        found.append(list(sampler))
    return found


def test_shares_without_shuffling_are_those_of_the_sampler():
    page = CHAPTERS["data"].pages[0]
    drawn = re.findall(r"^  rank (\d)  (.{1,22})", page, re.MULTILINE)
    assert [sorted(map(int, numbers.split())) for _, numbers in drawn] == [
        sorted(share) for share in shares(10, 4, shuffle=False)
    ]


@pytest.mark.parametrize(("row", "epoch"), [("set_epoch(0)", 0), ("set_epoch(1)", 1), ("without     ", 0)])
def test_shares_of_an_epoch_are_those_of_the_sampler(row: str, epoch: int):
    line = next(line for line in CHAPTERS["data"].pages[1].splitlines() if line.strip().startswith(row))
    numbers = [int(digit) for digit in re.findall(r" (\d)(?= |$)", line)]
    assert numbers == [sample for share in shares(8, 2, epoch=epoch) for sample in share]


def test_time_outs_and_buckets_are_those_of_torch():
    assert default_pg_timeout == timedelta(minutes=30), "of gloo; that of NCCL is in CUDA builds only"
    assert "30 with gloo" in CHAPTERS["launching"].pages[1]
    assert _DEFAULT_FIRST_BUCKET_BYTES == 2**20
    assert "the first one 1 MiB" in CHAPTERS["ddp-step"].pages[1]


def test_bytes_of_the_stages_are_computed_from_16_bytes_a_parameter():
    per_parameter = {"DDP, ZeRO-0": 16, "ZeRO-1": 4 + 12 / 8, "ZeRO-2": 2 + 14 / 8, "ZeRO-3, FSDP": 16 / 8}
    drawn = re.findall(r"^  (\S.*?) +(\d+) GB  (█+)", CHAPTERS["sharding"].pages[0], re.MULTILINE)
    assert {name: int(gigabytes) for name, gigabytes, _ in drawn} == {
        name: int(7 * size + 0.5) for name, size in per_parameter.items()
    }
    for name, _, bar in drawn:
        assert len(bar) == round(40 * per_parameter[name] / 16)


def test_plan_in_the_chapter_is_that_of_the_planner():
    page = CHAPTERS["sharding"].pages[3]
    command = next(line.split()[1:] for line in page.splitlines() if "ddpwizard plan" in line)
    planned, of_ddp = ddpwizard(*command), ddpwizard(*command, "--strategy", "ddp")
    assert planned.returncode == 0, planned.stderr
    shown = planned.stdout + of_ddp.stdout  # the table of all strategies leaves out the last ones
    rows = re.findall(r"^  [✓✗] (\S+) +(no|all) +([\d.]+) +\d+ +(\d\.\d+) s", shown, re.MULTILINE)
    computed = {(name, recompute): (round(float(gib)), float(step)) for name, recompute, gib, step in rows}
    drawn = re.findall(r"^    (FSDP2|DDP) +(no|all) +(\d+) +(fits|no)(?: +(\d\.\d+) s)?", page, re.MULTILINE)
    assert len(drawn) == 3
    for name, recompute, gib, fits, step in drawn:
        planned_gib, planned_step = computed[name, recompute]
        assert planned_gib == int(gib), (name, recompute)
        assert (fits == "fits") == (planned_gib < 79)
        assert not step or planned_step == pytest.approx(float(step), abs=0.02)


def run_on_two_ranks(script: str, options: list[str], directory: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *options, script],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.jobs
def test_unequal_batches_stop_together_and_logs_are_where_the_chapter_says(tmp_path: Path):
    page = CHAPTERS["data"].pages[3]
    function = textwrap.dedent(page[page.index("  def equal_batches") : page.index("  for x, y in")])
    (tmp_path / "train.py").write_text(
        "import torch\nimport torch.distributed as dist\n\ndist.init_process_group('gloo')\n"
        f"{function}\nbatches = range(5 + dist.get_rank())\n"
        "print(*equal_batches(batches, 'cpu'))\ndist.destroy_process_group()\n"
    )
    lines = CHAPTERS["hangs"].pages[2].splitlines()
    command = next(line.split() for line in lines if line.strip().startswith("torchrun --log-dir"))
    run_on_two_ranks("train.py", command[1 : command.index("...")], tmp_path)
    drawn = re.findall(r"^ +(logs/\S+)", "\n".join(lines), re.MULTILINE)
    assert len(drawn) == 3
    for path in drawn:
        assert len(list(tmp_path.glob(path.replace("<id>", "*")))) == 1, path
    printed = [path.read_text() for path in tmp_path.rglob("stdout.log")]
    assert printed == ["0 1 2 3 4\n"] * 2


def test_configuration_of_deepspeed_is_json():
    page = CHAPTERS["sharding"].pages[1]
    configuration = json.loads(page[page.index("{") : page.rindex("}") + 1])
    assert configuration["zero_optimization"] == {"stage": 2} and configuration["bf16"]["enabled"]


@pytest.mark.jobs
def test_options_of_fully_shard_are_as_the_chapter_says(tmp_path: Path):
    """Weights, gradients and moments are in fp32, the layers compute in bf16, and the norm is that of all parts."""
    layers, options = CHAPTERS["sharding"].pages[2:4]
    start = layers.splitlines()[next(at for at, line in enumerate(layers.splitlines()) if "import fully_shard" in line)]
    lines = options.splitlines()
    first = next(at for at, line in enumerate(lines) if "MixedPrecisionPolicy(" in line)
    code = textwrap.dedent("\n".join(lines[first : first + 4]))
    assert '"cuda", (2, 8)' in code
    body = code.replace('"cuda", (2, 8)', '"cpu", (1, 2)')
    (tmp_path / "train.py").write_text(
        "import torch\nimport torch.distributed as dist\nfrom torch.distributed.device_mesh import init_device_mesh\n"
        f"from torch.distributed.fsdp import MixedPrecisionPolicy\n{start.strip()}\n"
        "dist.init_process_group('gloo')\nblock = torch.nn.Linear(8, 8)\n"
        f"{body}\noptimizer = torch.optim.AdamW(block.parameters())\n"
        "out = block(torch.ones(2, 8))\nout.float().sum().backward()\n"
        "torch.nn.utils.clip_grad_norm_(block.parameters(), 1.0)\noptimizer.step()\n"
        "weight = block.weight\nmoment = optimizer.state[weight]['exp_avg']\n"
        "assert out.dtype == torch.bfloat16\n"
        "assert {weight.dtype, weight.grad.dtype, moment.dtype} == {torch.float32}\n"
        "assert [type(each).__name__ for each in weight.placements] == ['Replicate', 'Shard'], weight.placements\n"
        "norms = [each.grad.full_tensor().norm() for each in block.parameters()]\n"
        "assert abs(torch.stack(norms).norm() - 1) < 1e-3, norms\n"
        "del block, optimizer, out, weight, moment, norms\ndist.destroy_process_group()\n"
    )
    run_on_two_ranks("train.py", [], tmp_path)


@pytest.mark.jobs
def test_first_script_runs(tmp_path: Path):
    lines = CHAPTERS["ranks"].pages[2].splitlines()
    first = next(number for number, line in enumerate(lines) if line.strip().startswith("import torch"))
    (tmp_path / "hello.py").write_text("\n".join(line.strip() for line in lines[first : first + 4]))
    command = next(line.split() for line in lines if line.strip().startswith("torchrun"))
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--redirects=3", "--log-dir=logs", *command[1:]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = {path.parent.name: path.read_text() for path in tmp_path.rglob("stdout.log")}
    assert printed == {"0": "rank 0 of 2\n", "1": "rank 1 of 2\n"}
