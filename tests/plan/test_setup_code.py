"""The set-up code of a plan does what the plan says, or says what it does not do."""

import ast
import itertools
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ddpwizard.app.plan.runfiles import setup_code
from ddpwizard.app.plan.runfiles.files import files, script_from, write
from ddpwizard.app.plan.spec import complete
from ddpwizard.app.plan.types import Model, Setting, Strategy, Train

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
}


def made(strategy: Strategy, gpus: int = 16, nodes: int = 2, **train: Any) -> dict[str, str]:
    values = msgspec.convert(train, Train)
    asked = Setting(model=MODEL, train=values, gpus=gpus, nodes=nodes, gpu="H100", strategy=strategy)
    return files(complete(asked)[0])


def code(strategy: Strategy, **train: Any) -> str:
    (content,) = (text for name, text in made(strategy, **train).items() if name.endswith(".py"))
    ast.parse(content)
    return content


def test_every_script_is_as_one_would_commit_it(tmp_path: Path) -> None:
    """Names, imports, lines and layout by ruff; nothing of the template is left."""
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
    def test_lines_are_kept_by_their_tags(self) -> None:
        text = "a  #? one\nb  #? !one\nc  #? one|two three\n#? if two\nd\n    #? end\ne"
        assert list(setup_code.kept(text, {"one"})) == ["a", "e"]
        assert list(setup_code.kept(text, {"two", "three"})) == ["b", "c", "d", "e"]

    @pytest.mark.parametrize("kind", ["ddp", "fsdp2", "deepspeed"])
    def test_every_tag_is_one_that_a_plan_can_have(self, kind: str) -> None:
        text = (setup_code.TEMPLATES / f"plan_{kind}.py.in").read_text()
        tags = set(re.split(r"[ |]", " ".join(re.findall(r"#\? (?:if )?(.+)$", text, re.MULTILINE))))
        known = {"zero", "view", "offload", "hybrid", "stage3", "cpu-adam", "mixed", "autocast", "pure", "scaler"}
        known |= {"accumulate", "compile", "full", "selective-op", "selective-layer", *setup_code.OPTIMIZERS}
        assert {tag.removeprefix("!") for tag in tags} - {"end"} <= known


class TestFsdp2:
    @pytest.mark.parametrize("reshard", [True, False, 8])
    def test_blocks_are_resharded_as_planned_and_the_rest_stays(self, reshard: bool | int) -> None:
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

    def test_no_policy_where_all_is_one_precision(self) -> None:
        assert "MixedPrecisionPolicy" not in code(Strategy(kind="fsdp2"), dtype="fp32")
        pure = code(Strategy(kind="fsdp2"), dtype="bf16-pure")
        assert "MixedPrecisionPolicy" not in pure
        assert "model = model.to(torch.bfloat16)" in pure


class TestDdp:
    def test_autocast_and_no_sync(self) -> None:
        content = code(Strategy(kind="ddp"), dtype="bf16", grad_accum=4, micro_batch=3)
        assert "torch.autocast(device.type, dtype=torch.bfloat16)" in content
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
    def test_stage_3_splits_while_it_builds(self) -> None:
        assert "deepspeed.zero.Init(" in code(Strategy(kind="deepspeed", stage=3))
        assert "zero.Init" not in code(Strategy(kind="deepspeed", stage=2))

    def test_an_offloaded_optimizer_steps_on_the_host(self) -> None:
        content = code(Strategy(kind="deepspeed", stage=2, offload_optimizer="cpu"))
        assert "return DeepSpeedCPUAdam(model.parameters(), lr=LEARNING_RATE)" in content

    def test_other_optimizers_are_allowed_in_the_json(self) -> None:
        content = made(Strategy(kind="deepspeed", stage=2, offload_optimizer="cpu"), optimizer="sgd")
        assert '"zero_allow_untested_optimizer": true' in content["ds_config.json"]
        assert '"zero_force_ds_cpu_optimizer": false' in content["ds_config.json"]
        assert "zero_allow" not in made(Strategy(kind="deepspeed", stage=2))["ds_config.json"]


def test_what_the_script_does_not_do_is_said() -> None:
    content = code(Strategy(kind="fsdp2"), optimizer="muon", lora={"r": 8}, loss="chunked")
    for words in ("does not do:", "optimizer muon: it is AdamW here", "adapters of rank 8", "a chunked loss"):
        assert words in content
    assert "optimizer adafactor" in code(Strategy(kind="fsdp2"), optimizer="adafactor")
    for strategy in STRATEGIES.values():
        assert "does not do" not in code(strategy, act_ckpt="full", grad_accum=4, dtype="fp32")


@pytest.mark.parametrize("name", ['"""; import os', "a\nb", "x\\", "{{START}}"])
def test_a_model_s_name_stays_text(name: str) -> None:
    setting = Setting(model=msgspec.structs.replace(MODEL, name=name), train=Train(), gpus=2)
    for strategy in STRATEGIES.values():
        content = files(complete(msgspec.structs.replace(setting, strategy=strategy, nodes=1))[0])
        for file, text in content.items():
            if file.endswith(".py"):
                tree = ast.parse(text)
                imported = [each for each in tree.body if isinstance(each, ast.Import)]
                assert all(
                    alias.name != "os" or text.count("\nimport os\n") == 1 for i in imported for alias in i.names
                )


def test_the_start_line_runs_from_anywhere(tmp_path: Path) -> None:
    where = tmp_path / "a plan"
    where.mkdir()
    write(where, made(Strategy(kind="ddp"), gpus=2, nodes=1), "--write")
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


def test_a_script_that_is_here_is_found_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert script_from(Path("plan"), "train.py") == "train.py"
    Path("train.py").touch()
    assert script_from(Path("plan"), "train.py") == "../train.py"
