"""Setup scripts of a plan: they do what the plan assumes, or list what they do not do."""

import ast
import itertools
import json
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from ddpwizard.app.hardware.machine import Machine
from ddpwizard.app.plan.batch_scaling import scale_batch
from ddpwizard.app.plan.job_files import deepspeed_json, optimizer_snippets
from ddpwizard.app.plan.job_files.write import render_job_files, script_path_from, write_job_files
from ddpwizard.app.plan.spec import fill_defaults
from ddpwizard.app.plan.types import Kind, Model, Strategy, TrainingOptions, TrainingSetup
from ddpwizard.app.text.templates import TEMPLATES

MODEL = Model(name="llama", params=6.738e9, layers=32, hidden=4096, heads=32, intermediate=11008, vocab=32000)
STRATEGIES = {
    "ddp": Strategy(kind="ddp"),
    "bucket-view": Strategy(kind="ddp", gradient_as_bucket_view=True),
    "zero-optimizer": Strategy(kind="zero-optimizer"),
    "fsdp2": Strategy(kind="fsdp2"),
    "fsdp2-whole": Strategy(kind="fsdp2", reshard_after_forward=False),
    "fsdp2-8": Strategy(kind="fsdp2", reshard_after_forward=8),
    "fsdp2-offload": Strategy(kind="fsdp2", reshard_after_forward=True, cpu_offload=True),
    "hsdp": Strategy(kind="hsdp", shard_size=4),
    "zero-2": Strategy(kind="deepspeed", stage=2, offload_optimizer="cpu"),
    "zero-3": Strategy(kind="deepspeed", stage=3),
}
TRAINS: dict[str, dict[str, Any]] = {
    "plain": {"dtype": "bf16"},
    "fp16": {"dtype": "fp16", "grad_accum": 2, "act_ckpt": "full", "optimizer": "sgd"},
    "pure": {"dtype": "bf16-pure", "act_ckpt": "selective-op", "optimizer": "adafactor"},
    "fp32": {"dtype": "fp32", "act_ckpt": "selective-layer", "grad_accum": 3, "optimizer_impl": "fused"},
    "compiled": {"optimizer": "muon", "compile": True},
    "8-bit": {"optimizer": "adamw-8bit", "lora": {"r": 8}},
    "muon": {"optimizer": "muon", "dtype": "fp16", "act_offload": True, "grad_accum": 2},
    "lion": {"optimizer": "lion", "dtype": "fp32", "act_offload": True},
    "in-backward": {"optimizer_in_bwd": True, "optimizer_impl": "fused", "dtype": "bf16-pure"},
    "adapters": {"optimizer": "muon", "lora": {"r": 16, "alpha": 32, "target": "all-linear"}, "optimizer_in_bwd": True},
}


def made(strategy: Strategy, gpus: int = 16, nodes: int = 2, **train: Any) -> dict[str, str]:
    values = msgspec.convert(train, TrainingOptions)
    asked = TrainingSetup(model=MODEL, train=values, gpus=gpus, nodes=nodes, gpu="H100", strategy=strategy)
    return render_job_files(fill_defaults(asked)[0])


def code(strategy: Strategy, **train: Any) -> str:
    (content,) = (text for name, text in made(strategy, **train).items() if name.endswith(".py"))
    ast.parse(content)
    return content


def test_every_setup_script_passes_ruff(tmp_path: Path) -> None:
    """Includes names, imports, line length and format; no template directive is left."""
    for (first, strategy), (second, train) in itertools.product(STRATEGIES.items(), TRAINS.items()):
        content = code(strategy, micro_batch=2, **train)
        assert "{{" not in content
        assert "#?" not in content
        (tmp_path / f"{first}_{second}.py").write_text(content)
    rules = ["check", "--select", "E,F,I,B,UP,SIM"], ["format", "--check"]
    for words in rules:
        command = [sys.executable, "-m", "ruff", *words, "--isolated", "--no-cache", "--line-length", "120"]
        done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode == 0, done.stdout[-3000:]


class TestTemplates:
    @pytest.mark.parametrize("kind", ["ddp", "fsdp2", "deepspeed"])
    def test_templates_use_known_tags_only(self, kind: str) -> None:
        text = (TEMPLATES / f"{kind}_setup.py.in").read_text()
        tags = set(re.split(r"[ |]", " ".join(re.findall(r"#\? (?:if )?(.+)$", text, re.MULTILINE))))
        known = {"zero", "view", "offload", "hybrid", "stage3", "cpu-adam", "mixed", "autocast", "pure", "scaler"}
        known |= {"accumulate", "compile", "full", "selective-op", "selective-layer", *optimizer_snippets.OPTIMIZERS}
        known |= {"act-offload", "lora", "in-backward", "pair", "own-lion", "cpu-lion", "named"}
        known |= {"workers", "alone", "on-cpu", "several"}  # of fixes and migrations
        assert {tag.removeprefix("!") for tag in tags} - {"end"} <= known


class TestFsdp2:
    @pytest.mark.parametrize("reshard", [True, False, 8])
    def test_blocks_are_resharded_as_planned_and_the_root_is_not(self, reshard: bool | int) -> None:
        content = code(Strategy(kind="fsdp2", reshard_after_forward=reshard))
        assert f"fully_shard(module, mesh=mesh, mp_policy=precision, reshard_after_forward={reshard})" in content
        assert "fully_shard(model, mesh=mesh, mp_policy=precision)" in content

    def test_hybrid_sharding_has_a_mesh_of_two_dimensions(self) -> None:
        content = code(Strategy(kind="hsdp", shard_size=4))
        assert "SHARD_SIZE = 4  #" in content
        assert '(copies, SHARD_SIZE), mesh_dim_names=("replicate", "shard")' in content
        assert "SHARD_SIZE = 8  #" in code(Strategy(kind="hsdp"))

    def test_offload(self) -> None:
        content = code(Strategy(kind="fsdp2", reshard_after_forward=True, cpu_offload=True))
        assert content.count("offload_policy=offload") == 2
        assert "cpu:gloo,cuda:nccl" in content

    @pytest.mark.parametrize(("dtype", "computes_in"), [("bf16", "bfloat16"), ("fp16", "float16")])
    def test_mixed_precision(self, dtype: str, computes_in: str) -> None:
        content = code(Strategy(kind="fsdp2"), dtype=dtype)
        assert f"MixedPrecisionPolicy(param_dtype=torch.{computes_in}, reduce_dtype=torch.float32)" in content
        assert ("GradScaler" in content) == (dtype == "fp16")

    def test_no_mixed_precision_policy_for_a_single_precision(self) -> None:
        assert "MixedPrecisionPolicy" not in code(Strategy(kind="fsdp2"), dtype="fp32")
        pure = code(Strategy(kind="fsdp2"), dtype="bf16-pure")
        assert "MixedPrecisionPolicy" not in pure
        assert "model = model.to(torch.bfloat16)" in pure


class TestDdp:
    def test_autocast_and_no_sync(self) -> None:
        content = code(Strategy(kind="ddp"), dtype="bf16", grad_accum=4, micro_batch=3)
        assert "torch.autocast(features.device.type, dtype=torch.bfloat16)" in content
        assert "else model.no_sync()" in content
        assert "ACCUMULATION = 4  #" in content
        assert "MICRO_BATCH = 3  #" in content
        assert "no_sync" not in code(Strategy(kind="ddp"))

    def test_buckets_and_optimizer(self) -> None:
        assert "gradient_as_bucket_view=True" in code(Strategy(kind="ddp", gradient_as_bucket_view=True))
        sharded = code(Strategy(kind="zero-optimizer"), optimizer_impl="fused")
        assert "ZeroRedundancyOptimizer(" in sharded
        assert "optimizer_class=torch.optim.AdamW, lr=LEARNING_RATE, fused=True)" in sharded


class TestDeepspeed:
    def test_stage_3_partitions_weights_at_construction(self) -> None:
        assert "deepspeed.zero.Init(" in code(Strategy(kind="deepspeed", stage=3))
        assert "zero.Init" not in code(Strategy(kind="deepspeed", stage=2))

    def test_an_offloaded_optimizer_steps_on_the_host(self) -> None:
        content = code(Strategy(kind="deepspeed", stage=2, offload_optimizer="cpu"))
        assert "return DeepSpeedCPUAdam(model.parameters(), lr=LEARNING_RATE)" in content

    def test_deepspeed_json_allows_other_optimizers(self) -> None:
        content = made(Strategy(kind="deepspeed", stage=2, offload_optimizer="cpu"), optimizer="sgd")
        assert '"zero_allow_untested_optimizer": true' in content["ds_config.json"]
        assert '"zero_force_ds_cpu_optimizer": false' in content["ds_config.json"]
        assert "zero_allow" not in made(Strategy(kind="deepspeed", stage=2))["ds_config.json"]


class TestOptimizers:
    @pytest.mark.parametrize("kind", ["ddp", "zero-optimizer", "fsdp2", "hsdp"])
    def test_muon_handles_matrices_of_blocks_and_adamw_the_rest(self, kind: Kind) -> None:
        content = code(Strategy(kind=kind), optimizer="muon", optimizer_impl="fused")
        sharded = kind == "zero-optimizer"
        assert (
            "optimizer_class=torch.optim.Muon," if sharded else "muon = torch.optim.Muon(list(matrices),"
        ) in content
        assert ("optimizer_class=torch.optim.AdamW," if sharded else "torch.optim.AdamW(others,") in content
        assert "lr=LEARNING_RATE, fused=True)" in content
        assert content.count("fused") == 1
        assert "def make_optimizer(model: torch.nn.Module) -> Together:" in content

    def test_adapters_use_muon_alone(self) -> None:
        content = code(Strategy(kind="fsdp2"), optimizer="muon", lora={"r": 8})
        assert "return torch.optim.Muon(adapters, lr=LEARNING_RATE, " in content
        assert "AdamW" not in content

    def test_deepspeed_json_names_deepspeeds_own_muon(self) -> None:
        for offload in (None, "cpu"):
            for stage in range(4):
                layout = msgspec.convert(
                    {"kind": "deepspeed", "stage": stage, "offload_optimizer": offload if stage else None}, Strategy
                )
                content = made(layout, optimizer="muon")
                for name, rate in (("ds_config.json", 1e-3), ("ds_config_auto.json", "auto")):
                    plain = json.loads(content[name])
                    torchs = {} if layout.offload_optimizer else {"torch_adam": True}
                    assert plain["optimizer"] == {"type": "Muon", "params": {"lr": rate} | torchs}
                    assert plain["zero_optimization"].get("reduce_scatter", True) is (stage != 3)
                    assert "zero_allow_untested_optimizer" not in plain
                assert "DummyOptim" in json.loads(content["ds_config_auto.json"])["_comment"]
                script = content["deepspeed_setup.py"]
                assert "initialize(model=model, model_parameters=model.parameters(), config=CONFIG)" in script
                assert "LEARNING_RATE" not in script
                assert "make_optimizer" not in script

    def test_deepspeed_json_has_the_learning_rate_of_the_reference_run(self) -> None:
        layout = msgspec.convert({"kind": "deepspeed", "stage": 2}, Strategy)
        asked = fill_defaults(
            TrainingSetup(model=MODEL, train=TrainingOptions(optimizer="muon"), gpus=4, strategy=layout)
        )[0]
        before = scale_batch(asked, reference_gpus=4, lr=3e-4)
        (text, automatic) = deepspeed_json.render_configs(
            asked, Machine(gpu_count=4, gpu_memory_bytes=0), before
        ).values()
        assert json.loads(text)["optimizer"]["params"]["lr"] == 3e-4
        assert json.loads(automatic)["optimizer"]["params"]["lr"] == "auto"

    def test_lion_on_the_host_is_deepspeeds_own(self) -> None:
        assert "class Lion(" in code(Strategy(kind="deepspeed", stage=2), optimizer="lion")
        content = made(Strategy(kind="deepspeed", stage=2, offload_optimizer="cpu"), optimizer="lion")
        assert "return DeepSpeedCPULion(model.parameters(), lr=LEARNING_RATE)" in content["deepspeed_setup.py"]
        assert "class Lion(" not in content["deepspeed_setup.py"]
        assert "zero_allow" not in content["ds_config.json"]

    def test_lion_step_matches_its_paper(self) -> None:
        """Algorithm 2 of arXiv 2302.06675, over three steps."""
        defined: dict[str, Any] = {"torch": torch}
        exec(optimizer_snippets.LION, defined)  # noqa: S102
        weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
        lion = defined["Lion"]([weight], lr=0.1, weight_decay=0.5)
        wanted, mean = weight.detach().clone(), torch.zeros(3)
        for grad in torch.tensor([[1.0, -1.0, 0.0], [-0.05, 3.0, 1.0], [-4.0, -0.1, -0.1]]):
            weight.grad = grad.clone()
            lion.step()
            wanted -= 0.1 * ((0.9 * mean + 0.1 * grad).sign() + 0.5 * wanted)
            mean = 0.99 * mean + 0.01 * grad
            torch.testing.assert_close(weight.detach(), wanted)

    @pytest.mark.parametrize(
        ("strategy", "train", "does"),
        [
            (Strategy(kind="fsdp2"), {}, True),
            (Strategy(kind="hsdp"), {"optimizer": "lion"}, True),
            (Strategy(kind="fsdp2"), {"optimizer": "muon"}, False),
            (Strategy(kind="fsdp2"), {"grad_accum": 2}, False),
            (Strategy(kind="fsdp2"), {"dtype": "fp16"}, False),
            (Strategy(kind="ddp"), {}, False),
            (Strategy(kind="deepspeed", stage=2), {}, False),
        ],
    )
    def test_optimizer_in_backward_is_used_or_listed_as_missing(
        self, strategy: Strategy, train: dict[str, Any], does: bool
    ) -> None:
        content = code(strategy, optimizer_in_bwd=True, **train)
        assert ("    step_in_backward(model)" in content) is does
        assert ("optimizer.step()" not in content and "clip_grad_norm_" not in content) is does or "engine" in content
        assert ("optimizer steps within the backward pass" in content) is not does


class TestAdapters:
    @pytest.mark.parametrize("kind", ["ddp", "fsdp2", "deepspeed"])
    def test_adapters_have_rank_alpha_and_layers_of_the_plan(self, kind: Kind) -> None:
        strategy = Strategy(kind=kind, stage=2 if kind == "deepspeed" else None)
        content = code(strategy, lora={"r": 16, "alpha": 32, "target": "all-linear"})
        assert "LoraConfig(r=16, lora_alpha=32, target_modules=ADAPTED)" in content
        assert 'ADAPTED = "all-linear"' in content
        assert "does not do" not in content
        content = code(strategy, lora={"r": 4, "target": "q,v"})
        assert "LoraConfig(r=4, lora_alpha=8, target_modules=ADAPTED)" in content
        assert 'ADAPTED = ["out"]  # of the example; the plan has: q_proj, v_proj' in content

    def test_frozen_weights_have_the_planned_width(self) -> None:
        lora = {"r": 8}
        assert "get_peft_model(model.to(torch.bfloat16), config)" in code(Strategy(kind="ddp"), lora=lora, dtype="bf16")
        for kind, dtype in (("ddp", "bf16-mixed"), ("fsdp2", "fp32"), ("fsdp2", "bf16-pure"), ("deepspeed", "bf16")):
            strategy = msgspec.convert({"kind": kind, "stage": 2 if kind == "deepspeed" else None}, Strategy)
            assert "get_peft_model(model, config)" in code(strategy, lora=lora, dtype=dtype)

    @pytest.mark.parametrize("target", ['q"; import os', "a\nb", "{{START}}", "q" * 200])
    def test_layer_names_cannot_inject_code(self, target: str) -> None:
        content = code(Strategy(kind="ddp"), lora={"r": 8, "target": target})
        (line,) = (line for line in content.splitlines() if line.startswith("ADAPTED = "))
        assert ast.unparse(ast.parse(line)) == "ADAPTED = ['out']"
        assert len(line) <= 120


def test_required_packages_are_listed() -> None:
    packages = {
        ("ddp", "8-bit"): "pip install peft bitsandbytes\n",
        ("fsdp2", "8-bit"): "pip install peft torchao\n",
        ("ddp", "adapters"): "pip install peft\n",
    }
    for (strategy, train), line in packages.items():
        assert f"Required packages: {line}" in code(STRATEGIES[strategy], **TRAINS[train])
    for optimizer in ("adamw", "muon", "lion"):
        assert "pip install" not in code(Strategy(kind="fsdp2"), optimizer=optimizer)


def test_activation_offload_saves_tensors_on_the_host() -> None:
    autocast, host = "torch.autocast(features.device.type, dtype=torch.bfloat16)", "save_on_cpu(pin_memory=True)"
    for strategy in STRATEGIES.values():
        content = code(strategy, act_offload=True)
        assert content.count(host) == 1
        assert (f"with {autocast}, torch.autograd.graph.{host}:" in content) is strategy.replicates
        assert host not in code(strategy)


def test_parts_that_the_script_does_not_do_are_listed() -> None:
    content = code(Strategy(kind="fsdp2"), optimizer="adafactor", quant="nf4", loss="chunked")
    for words in (
        "does not do:",
        "optimizer adafactor: this script uses AdamW",
        "frozen weights in nf4",
        "a chunked loss",
    ):
        assert words in content
    assert "90% of the weights frozen" in code(Strategy(kind="ddp"), frozen=0.9)
    done: dict[str, Any] = {"act_ckpt": "full", "grad_accum": 4, "dtype": "fp32", "act_offload": True, "lora": {"r": 8}}
    for strategy, optimizer in itertools.product(STRATEGIES.values(), ("adamw", "muon", "lion")):
        assert "does not do" not in code(strategy, optimizer=optimizer, **done)


@pytest.mark.parametrize("name", ['"""; import os', "a\nb", "x\\", "{{START}}"])
def test_model_name_cannot_inject_code(name: str) -> None:
    setting = TrainingSetup(model=msgspec.structs.replace(MODEL, name=name), train=TrainingOptions(), gpus=2)
    for strategy in STRATEGIES.values():
        content = render_job_files(fill_defaults(msgspec.structs.replace(setting, strategy=strategy, nodes=1))[0])
        for file, text in content.items():
            if file.endswith(".py"):
                tree = ast.parse(text)
                imported = [each for each in tree.body if isinstance(each, ast.Import)]
                assert all(
                    alias.name != "os" or text.count("\nimport os\n") == 1 for i in imported for alias in i.names
                )


def test_launch_script_runs_from_any_directory(tmp_path: Path) -> None:
    where = tmp_path / "a plan"
    where.mkdir()
    write_job_files(where, made(Strategy(kind="ddp"), gpus=2, nodes=1), "--write")
    assert stat.S_IMODE((where / "launch.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE((where / "env.sh").stat().st_mode) == 0o644
    program = tmp_path / "torchrun"
    program.write_text('#!/bin/sh\necho "$PWD $OMP_NUM_THREADS $*"\n')
    program.chmod(0o755)
    found = subprocess.run(
        [where / "launch.sh"],
        cwd="/",
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == f"{where} 4 --standalone --nproc-per-node=2 train.py\n"


def test_existing_script_is_named_relative_to_the_output_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert script_path_from(Path("plan"), "train.py") == "train.py"
    Path("train.py").touch()
    assert script_path_from(Path("plan"), "train.py") == "../train.py"
