"""The training project of a plan: its files do what the plan assumes, or are refused."""

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
from ddpwizard.app.errors import UserError
from ddpwizard.app.hardware.machine import Machine
from ddpwizard.app.plan.batch_scaling import scale_batch
from ddpwizard.app.plan.job_files import configurations, optimizer_snippets
from ddpwizard.app.plan.job_files.own_script import plan_job_files
from ddpwizard.app.plan.job_files.project import weigh_accumulation
from ddpwizard.app.plan.job_files.write import render_job_files, write_job_files
from ddpwizard.app.plan.model import catalog
from ddpwizard.app.plan.spec import fill_defaults
from ddpwizard.app.plan.timing.communication import Links
from ddpwizard.app.plan.types import Kind, Model, Strategy, TrainingOptions, TrainingSetup
from ddpwizard.app.text.templates import TEMPLATES

MODEL = Model(name="llama", params=6.738e9, layers=32, hidden=4096, heads=32, intermediate=11008, vocab=32000)
STRATEGIES = {
    "single": Strategy(kind="single"),
    "ddp": Strategy(kind="ddp"),
    "bucket-view": Strategy(kind="ddp", gradient_as_bucket_view=True),
    "zero-optimizer": Strategy(kind="zero-optimizer"),
    "fsdp2": Strategy(kind="fsdp2"),
    "fsdp2-whole": Strategy(kind="fsdp2", reshard_after_forward=False),
    "fsdp2-8": Strategy(kind="fsdp2", reshard_after_forward=8),
    "unreduced": Strategy(kind="fsdp2", sync_each_batch=False),
    "fsdp2-offload": Strategy(kind="fsdp2", reshard_after_forward=True, cpu_offload=True),
    "hsdp": Strategy(kind="hsdp", shard_size=4),
    "tensor": Strategy(kind="fsdp2", reshard_after_forward=True, tensor=8),
    "context": Strategy(kind="fsdp2", reshard_after_forward=True, context=8),
    "expert": Strategy(kind="fsdp2", reshard_after_forward=True, expert=4),
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
    "adapters": {"optimizer": "muon", "lora": {"r": 16, "alpha": 32, "target": "all-linear"}},
    "chunked": {"loss": "chunked", "frozen": 0.5},
    "compiled-loss": {"loss": "compiled", "grad_accum": 2},
}
MIXTRAL = catalog.MODELS["mixtral-8x7b"]
MODELS = {
    "pure": msgspec.structs.replace(MODEL, tied=True, mlp="gelu"),
    "fp32": msgspec.structs.replace(MODEL, experts=12, experts_per_token=2),
}


def made(
    strategy: Strategy, gpus: int = 16, nodes: int = 2, model: Model = MODEL, stateful: bool = False, **train: Any
) -> dict[str, str]:
    if strategy.kind == "single":
        gpus, nodes = 1, 1
    values = msgspec.convert({"micro_batch": 2} | train, TrainingOptions)
    asked = TrainingSetup(model=model, train=values, gpus=gpus, nodes=nodes, gpu="H100", strategy=strategy)
    return render_job_files(fill_defaults(asked)[0], versions={"torchdata": "0.11"} if stateful else {})


def code(strategy: Strategy, **train: Any) -> str:
    """The program and what it imports for its layout."""
    content = made(strategy, **train)
    return content["train.py"] + content.get("parallel.py", "")


def test_every_project_passes_ruff(tmp_path: Path) -> None:
    """Includes names, imports, line length and format; no template directive is left."""
    written = 0
    for (first, strategy), (second, train) in itertools.product(STRATEGIES.items(), TRAINS.items()):
        try:
            model = MIXTRAL if strategy.expert else MODELS.get(second, MODEL)
            content = made(strategy, model=model, stateful=bool(written % 2), **train)
        except UserError:
            continue
        written += 1
        directory = tmp_path / f"{first}_{second}"
        directory.mkdir()
        for name, text in content.items():
            if name.endswith(".py"):
                assert "{{" not in text
                assert "#?" not in text
                (directory / name).write_text(text)
    assert written > 100
    own = 'lint.isort.known-first-party=["checkpoint","data","experts","model","parallel","sequence"]'
    for words in (["check", "--select", "E,F,I,B,UP,SIM", "--config", own], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *words, "--isolated", "--no-cache", "--line-length", "120"]
        done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode == 0, done.stdout[-3000:]


DIRECTIVE = r"#\? (?:if )?(?!include |part \w+$)(.+)$"


def test_templates_use_known_tags_only() -> None:
    known = {"zero", "view", "offload", "hybrid", "stage3", "cpu-adam", "mixed", "autocast", "pure", "scaler"}
    known |= {"accumulate", "compile", "full", "selective-op", "selective-layer", *optimizer_snippets.OPTIMIZERS}
    known |= {"act-offload", "lora", "in-backward", "pair", "own-lion", "cpu-lion", "named", "several"}
    known |= {"project", "single", "ddp", "fsdp", "block", "unreduced", "numbered", "frozen", "part", "chunked"}
    known |= {"tensor", "context", "expert"}
    known |= {"compiled", "stateful", "experts", "tied", "gated", "zero-stage", "cast"}
    known |= {"workers", "alone", "on-cpu"}  # of fixes and migrations
    names = ["train", "model", "data", "checkpoint", "deepspeed_train", "accelerate_train", "shared"]
    names += ["ddp_setup", "fsdp2_setup"]
    for name in names:
        text = (TEMPLATES / f"{name}.py.in").read_text()
        tags = set(re.split(r"[ |]", " ".join(re.findall(DIRECTIVE, text, re.MULTILINE))))
        assert {tag.removeprefix("!") for tag in tags} - {"end"} <= known


class TestModel:
    @pytest.mark.parametrize("tied", [True, False])
    def test_model_has_the_parameters_of_the_plan(self, tied: bool) -> None:
        """6.738e9 of Llama-2-7B, and without the second table for words those of its tied form."""
        shape: dict[str, Any] = {}
        content = made(Strategy(kind="ddp"), model=msgspec.structs.replace(MODEL, tied=tied))["model.py"]
        exec(content, shape)  # noqa: S102
        with torch.device("meta"):
            built = shape["build"]()
        count = sum(weight.numel() for weight in built.parameters())
        assert count == pytest.approx(6.738e9 - tied * 32000 * 4096, rel=1e-3)

    def test_model_with_experts_has_the_parameters_of_the_plan(self) -> None:
        shape: dict[str, Any] = {}
        exec(made(Strategy(kind="ddp"), model=MIXTRAL)["model.py"], shape)  # noqa: S102
        with torch.device("meta"):
            built = shape["build"]()
        assert built.blocks[0].feed_forward.experts.down.shape == (8, 14336, 4096)
        assert sum(weight.numel() for weight in built.parameters()) == pytest.approx(MIXTRAL.params, rel=1e-3)

    def test_other_models_are_named_as_a_stand_in(self) -> None:
        only_params = made(Strategy(kind="ddp"), model=Model(params=1e9, name="mine"))["model.py"]
        assert "only the number of parameters is known" in only_params
        vision = msgspec.structs.replace(MODEL, kind="vision", positions=196)
        assert "takes the place of the plan's vision" in made(Strategy(kind="ddp"), model=vision)["model.py"]
        assert "takes the place" not in made(Strategy(kind="ddp"))["model.py"]

    def test_experts_are_three_dimensional_and_divided_where_that_is_even(self) -> None:
        """12 experts on 16 ranks: along another dimension, by the rule of the written function itself."""
        content = made(Strategy(kind="fsdp2"), model=MODELS["fp32"])
        assert "torch.empty(shape.experts, shape.hidden, 2 * shape.intermediate)" in content["model.py"]
        assert "shard_placement_fn=placement)" in content["parallel.py"]
        tree = ast.parse(content["parallel.py"])
        (function,) = (node for node in tree.body if getattr(node, "name", "") == "placement")
        scope: dict[str, Any] = {"torch": torch, "Shard": lambda dim: dim, "dist": torch.distributed}
        scope["dist"] = type("Dist", (), {"get_world_size": staticmethod(lambda: 16)})
        exec("from __future__ import annotations\n" + ast.unparse(function), scope)  # noqa: S102
        placed = [scope["placement"](torch.empty(shape)) for shape in ((12, 4, 32), (12, 32, 4), (32, 4, 4), (12, 4))]
        assert placed == [2, 1, None, None]
        assert "placement" not in made(Strategy(kind="fsdp2"))["parallel.py"]


class TestData:
    @pytest.mark.parametrize("stateful", [True, False])
    def test_position_is_restored_within_and_between_epochs(self, stateful: bool, tmp_path: Path) -> None:
        if stateful:
            pytest.importorskip("torchdata", reason="torchdata is not installed")
        data: dict[str, Any] = {}
        exec(made(Strategy(kind="ddp"), stateful=stateful)["data.py"], data)  # noqa: S102

        def batches() -> Any:
            return data["Batches"](data["Windows"](9, 12), 2, rank=1, ranks=2)  # three an epoch

        whole = list(itertools.islice(batches(), 8))
        assert not torch.equal(whole[0], whole[3])  # another order in the second epoch
        for done in range(7):
            first, second = batches(), batches()
            stream = iter(first)
            for _ in range(done):
                next(stream)
            second.load_state_dict(first.state_dict())
            assert torch.equal(next(iter(second)), whole[done])


class TestCheckpointDirectories:
    def directory(self, written: Path, script: str, monkeypatch: pytest.MonkeyPatch, **variables: str) -> Path:
        """Return CHECKPOINTS of a script in an environment, from what is above its functions."""
        for name in ("TINY", "CHECKPOINTS"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        nodes = ast.parse((written / script).read_text()).body
        first = next(index for index, node in enumerate(nodes) if isinstance(node, ast.FunctionDef))
        libraries = ("os", "json", "pathlib")
        kept: list[ast.stmt] = [
            node
            for node in nodes[:first]
            if isinstance(node, (ast.Assign, ast.If))
            or (isinstance(node, ast.Import) and node.names[0].name in libraries)
            or (isinstance(node, ast.ImportFrom) and node.module in libraries)
        ]
        scope: dict[str, Any] = {"__file__": str(written / script)}
        exec(compile(ast.Module(kept, []), script, "exec"), scope)  # noqa: S102
        return Path(scope["CHECKPOINTS"])

    @pytest.mark.parametrize("name", ["ddp", "fsdp2", "zero-2"])
    def test_each_program_and_model_size_has_its_own(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_job_files(tmp_path / "plan", made(STRATEGIES[name]))
        for variables, root in (({}, "checkpoints"), ({"CHECKPOINTS": "/volume"}, "/volume")):
            found = [
                self.directory(tmp_path / "plan", script, monkeypatch, **variables, **tiny)
                for script in ("train.py", "train_accelerate.py")
                for tiny in ({}, {"TINY": "1"})
            ]
            names = ("", "tiny", "accelerate", "accelerate/tiny")
            assert found == [Path(root, name) for name in names]


class TestAccumulation:
    LINKS = Links(intra_gbps=20.0, inter_gbps=2.0)

    def weigh(self, gpu_memory_gib: float, links: Links | None, **strategy: Any) -> Any:
        train = TrainingOptions(micro_batch=1, grad_accum=8, dtype="bf16-mixed", act_ckpt="full", seq_len=512)
        layout = Strategy(kind="fsdp2", reshard_after_forward=True, **strategy)
        asked = TrainingSetup(
            model=MODEL, train=train, gpus=16, nodes=2, gpu="H100", gpu_memory_gib=gpu_memory_gib, strategy=layout
        )
        return weigh_accumulation(fill_defaults(asked)[0], links)

    def test_gradients_stay_unreduced_if_memory_allows_it_and_time_is_saved(self) -> None:
        more = f"{6.738e9 * 4 * 15 / 16 / 2**30:.1f} GiB more"
        kept = self.weigh(79.1, self.LINKS)
        assert kept.unreduced
        assert more in kept.reason
        for reduced in (self.weigh(30.0, self.LINKS), self.weigh(79.1, None)):
            assert not reduced.unreduced
            assert more in reduced.reason
        fast = Links(intra_gbps=90000.0, inter_gbps=90000.0)
        assert not self.weigh(79.1, fast).unreduced

    def test_a_choice_of_the_strategy_stays(self) -> None:
        assert self.weigh(30.0, None, sync_each_batch=False).unreduced
        assert not self.weigh(79.1, self.LINKS, sync_each_batch=True).unreduced

    def test_the_program_and_accelerate_do_the_same(self) -> None:
        content = made(Strategy(kind="fsdp2", sync_each_batch=False), grad_accum=4)
        assert "model.set_requires_gradient_sync(number == ACCUMULATION - 1)" in content["train.py"]
        assert "sync_each_batch=False" in content["train_accelerate.py"]
        content = made(Strategy(kind="fsdp2", sync_each_batch=True), grad_accum=4)
        assert "set_requires_gradient_sync" not in content["train.py"]
        assert "sync_each_batch=True" in content["train_accelerate.py"]


class TestOwnScript:
    SCRIPT = """\
import torch
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(64, 8)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=16, shuffle=True)
    for epoch in range(3):
        for features, target in loader:
            loss = torch.nn.functional.mse_loss(model(features), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
"""

    def files(self, kind: Kind, script: str, stage: int | None = None) -> Any:
        layout = msgspec.convert({"kind": kind, "stage": stage}, Strategy)
        asked = TrainingSetup(model=MODEL, train=TrainingOptions(micro_batch=1), gpus=2, gpu="H100", strategy=layout)
        return plan_job_files(fill_defaults(asked)[0], Path("plan"), script)

    @pytest.mark.parametrize(("kind", "call"), [("ddp", "DistributedDataParallel("), ("fsdp2", "fully_shard(")])
    def test_script_is_patched_for_the_layout_and_to_resume(
        self, kind: Kind, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("train.py").write_text(self.SCRIPT)
        made_files = self.files(kind, "train.py")
        assert "train.py" not in made_files.files
        assert " ../train.py" in made_files.files["launch.sh"]
        Path("train.py.patch").write_text(made_files.files["train.py.patch"])
        assert "patch -p1 < plan/train.py.patch" in made_files.notes[0]
        subprocess.run(["git", "apply", "train.py.patch"], check=True, timeout=60)
        after = Path("train.py").read_text()
        ast.parse(after)
        assert call in after
        assert "class Checkpoint:" in after

    def test_a_script_that_cannot_be_patched_gets_a_new_program(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("train.py").write_text(self.SCRIPT)
        made_files = self.files("deepspeed", "train.py", stage=2)
        assert "does not use DeepSpeed" in made_files.notes[0]
        assert "deepspeed.initialize" in made_files.files["train.py"]
        Path("train.py").write_text("print(1)\n")
        made_files = self.files("ddp", "train.py")
        assert re.match(r"train.py:\d+: ", made_files.notes[0])
        assert " train.py\n" in made_files.files["launch.sh"]

    def test_a_script_of_the_trainer_is_started_as_it_is(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("tune.py").write_text("from transformers import Trainer\n\nTrainer(model=None).train()\n")
        for kind, stage in (("fsdp2", None), ("deepspeed", 3)):
            made_files = self.files(kind, "tune.py", stage)  # type: ignore[arg-type]
            assert " ../tune.py" in made_files.files["launch.sh"]
            assert "train.py" not in made_files.files
            assert "the Trainer of transformers distributes it already" in made_files.notes[0]

    def test_a_missing_script_is_reported(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert self.files("ddp", "train.py").notes == []
        assert self.files("ddp", "other.py").notes == ["other.py does not exist: train.py is a new program"]


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

    def test_only_rank_0_builds_the_model(self) -> None:
        content = code(Strategy(kind="fsdp2"))
        assert 'torch.device("cpu" if dist.get_rank() == 0 else "meta")' in content
        assert "buffer.copy_(buffers[name])" in content
        assert "to_empty(" not in content

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
        assert "weight.data = weight.data.to(torch.bfloat16)" in pure


class TestContextParallelism:
    def test_pieces_of_all_ranks_are_the_sequence_and_attend_alike(self) -> None:
        """By the functions of the written file: each rank has an early and a late piece, and none is left out."""
        content = made(STRATEGIES["context"], micro_batch=3)
        assert "3 × 1 × 2 = 6 sequences" in content["train.py"]
        assert json.loads(content["manifest.json"])["data_parallel_ranks"] == 2
        functions = [node for node in ast.parse(content["sequence.py"]).body if isinstance(node, ast.FunctionDef)]
        chosen = [each for each in functions if each.name in ("own_pieces", "split_sequences")]
        parts, work = [], []
        for rank in range(8):
            scope: dict[str, Any] = {"torch": torch, "CONTEXT": 8}
            scope["dist"] = type("Dist", (), {"get_rank": staticmethod(lambda rank=rank: 8 + rank)})
            exec("\n".join(map(ast.unparse, chosen)), scope)  # noqa: S102
            parts.append(scope["split_sequences"](torch.arange(64)[None]))
            work.append(int((parts[-1] + 1).sum()))
        assert sorted(torch.cat(parts, dim=1)[0].tolist()) == list(range(64))
        assert len(set(work)) == 1
        assert "sequence.py" not in made(Strategy(kind="fsdp2"))


class TestExpertParallelism:
    def test_experts_are_split_over_a_group_and_sharded_over_the_groups(self) -> None:
        content = made(STRATEGIES["expert"], model=MIXTRAL, micro_batch=3)
        assert "3 × 1 × 16 = 48 sequences" in content["train.py"]  # all ranks have different data
        assert "EXPERT = 4  #" in content["experts.py"]
        assert "distribute_tensor(weight, mesh, [Shard(0)])" in content["parallel.py"]
        assert content["parallel.py"].count('mesh=meshes["dp_shard"],') == 1
        assert content["parallel.py"].count("mp_policy=precision") == 3
        assert "shard_placement_fn=lambda _: Shard(1)" in content["parallel.py"]
        assert "def placement" not in content["parallel.py"]
        assert "experts=4," in content["model.py"]  # of the small model: the ranks divide them
        assert "experts.py" not in made(Strategy(kind="fsdp2"), model=MIXTRAL)


class TestTensorParallelism:
    TENSOR = Strategy(kind="fsdp2", reshard_after_forward=True, tensor=8)

    def test_ranks_that_split_layers_share_data_and_count_once(self) -> None:
        content = made(self.TENSOR, micro_batch=3, grad_accum=4)
        assert "3 × 4 × 2 = 24 sequences in each optimizer step" in content["train.py"]
        assert "TENSOR = 8  #" in content["parallel.py"]
        assert '(groups, TENSOR), mesh_dim_names=("dp_shard", "tp")' in content["parallel.py"]
        assert "heads=16, kv_heads=8" in content["model.py"]  # of the small model: the ranks divide them
        manifest = json.loads(content["manifest.json"])
        assert (manifest["world_size"], manifest["data_parallel_ranks"], manifest["effective_batch"]) == (16, 2, 24)
        assert "data_parallel_ranks" not in json.loads(made(Strategy(kind="fsdp2"))["manifest.json"])

    @pytest.mark.parametrize("model", [MODEL, MODELS["pure"]], ids=["gated", "tied"])
    def test_every_module_with_weights_has_its_split(self, model: Model) -> None:
        """A weight outside the mesh of both dimensions could not be clipped with the others."""
        scope: dict[str, Any] = {}
        exec(made(Strategy(kind="ddp"), model=model)["model.py"], scope)  # noqa: S102
        with torch.device("meta"):
            built = scope["Decoder"](scope["TINY"])
        named = (name for name, each in built.named_modules() if [*each.parameters(recurse=False)])
        planned = made(self.TENSOR, model=model)["parallel.py"]
        splits = re.findall(r'^        "([\w.]+)": (?:Seq|Col|Row)', planned, re.MULTILINE)
        assert {re.sub(r"^blocks\.\d+\.", "", name) for name in named} == set(splits)

    def test_a_script_gets_a_new_program(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("train.py").write_text(TestOwnScript.SCRIPT)
        asked = TrainingSetup(model=MODEL, train=TrainingOptions(micro_batch=1), gpus=8, strategy=self.TENSOR)
        made_files = plan_job_files(fill_defaults(asked)[0], Path("plan"), "train.py")
        assert "needs changes in its model" in made_files.notes[0]
        assert "parallelize_module(" in made_files.files["parallel.py"]


class TestDdp:
    def test_autocast_and_no_sync(self) -> None:
        content = code(Strategy(kind="ddp"), dtype="bf16", grad_accum=4, micro_batch=3)
        assert "torch.autocast(tokens.device.type, dtype=torch.bfloat16)" in content
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
        assert "def make_optimizers(model: torch.nn.Module) -> list[torch.optim.Optimizer]:" in content

    def test_adapters_use_muon_alone(self) -> None:
        content = code(Strategy(kind="fsdp2"), optimizer="muon", lora={"r": 8})
        assert "return torch.optim.Muon(trained, lr=LEARNING_RATE, " in content
        assert "AdamW" not in content

    def test_deepspeed_json_names_deepspeeds_own_muon(self) -> None:
        for offload in (None, "cpu"):
            for stage in range(3):
                layout = msgspec.convert(
                    {"kind": "deepspeed", "stage": stage, "offload_optimizer": offload if stage else None}, Strategy
                )
                content = made(layout, optimizer="muon")
                for name, rate in (("ds_config.json", 1e-3), ("ds_config_auto.json", "auto")):
                    plain = json.loads(content[name])
                    torchs = {} if layout.offload_optimizer else {"torch_adam": True}
                    assert plain["optimizer"] == {"type": "Muon", "params": {"lr": rate} | torchs}
                    assert plain["zero_optimization"].get("reduce_scatter", True) is not bool(stage)
                    assert "zero_allow_untested_optimizer" not in plain
                assert "DummyOptim" in json.loads(content["ds_config_auto.json"])["_comment"]
                script = content["train.py"]
                assert "    model_parameters=model.parameters()," in script
                assert "make_optimizer" not in script

    def test_muon_is_refused_with_zero_3(self) -> None:
        with pytest.raises(UserError, match="Muon with ZeRO-3") as refused:
            made(Strategy(kind="deepspeed", stage=3), optimizer="muon")
        assert "ZeRO-2" in (refused.value.next_step or "")

    def test_deepspeed_json_has_the_learning_rate_of_the_reference_run(self) -> None:
        layout = msgspec.convert({"kind": "deepspeed", "stage": 2}, Strategy)
        asked = fill_defaults(
            TrainingSetup(model=MODEL, train=TrainingOptions(optimizer="muon"), gpus=4, strategy=layout)
        )[0]
        before = scale_batch(asked, reference_gpus=4, lr=3e-4)
        (text, automatic) = configurations.render_configs(
            asked, Machine(gpu_count=4, gpu_memory_bytes=0), before
        ).values()
        assert json.loads(text)["optimizer"]["params"]["lr"] == 3e-4
        assert json.loads(automatic)["optimizer"]["params"]["lr"] == "auto"

    def test_lion_on_the_host_is_deepspeeds_own(self) -> None:
        assert "class Lion(" in code(Strategy(kind="deepspeed", stage=2), optimizer="lion")
        content = made(Strategy(kind="deepspeed", stage=2, offload_optimizer="cpu"), optimizer="lion")
        assert "return DeepSpeedCPULion(model.parameters(), lr=LEARNING_RATE)" in content["train.py"]
        assert "class Lion(" not in content["train.py"]
        assert "zero_allow" not in content["ds_config.json"]

    def test_lion_step_matches_its_paper(self) -> None:
        """Algorithm 2 of arXiv 2302.06675, over three steps."""
        defined: dict[str, Any] = {"torch": torch}
        tree = ast.parse(code(Strategy(kind="ddp"), optimizer="lion"))
        lion_class = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Lion")
        exec(ast.unparse(lion_class), defined)  # noqa: S102
        weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
        lion = defined["Lion"]([weight], lr=0.1, weight_decay=0.5)
        wanted, mean = weight.detach().clone(), torch.zeros(3)
        for grad in torch.tensor([[1.0, -1.0, 0.0], [-0.05, 3.0, 1.0], [-4.0, -0.1, -0.1]]):
            weight.grad = grad.clone()
            lion.step()
            wanted -= 0.1 * ((0.9 * mean + 0.1 * grad).sign() + 0.5 * wanted)
            mean = 0.99 * mean + 0.01 * grad
            torch.testing.assert_close(weight.detach(), wanted)

    def test_optimizer_in_backward(self) -> None:
        for kind in ("fsdp2", "hsdp"):
            content = code(Strategy(kind=kind), optimizer_in_bwd=True)  # type: ignore[arg-type]
            assert "    optimizers = step_in_backward(model)" in content
            assert "optimizer.step()" not in content
            assert "clip_grad_norm_" not in content


class TestAdapters:
    @pytest.mark.parametrize("kind", ["ddp", "fsdp2", "deepspeed"])
    def test_adapters_have_rank_alpha_and_layers_of_the_plan(self, kind: Kind) -> None:
        strategy = Strategy(kind=kind, stage=2 if kind == "deepspeed" else None)
        content = code(strategy, lora={"r": 16, "alpha": 32, "target": "all-linear"})
        assert "LoraConfig(r=16, lora_alpha=32, target_modules=ADAPTED)" in content
        assert 'ADAPTED = "all-linear"' in content
        content = code(strategy, lora={"r": 4, "target": "q,v"})
        assert "LoraConfig(r=4, lora_alpha=8, target_modules=ADAPTED)" in content
        assert 'ADAPTED = ["q_proj", "v_proj"]' in content

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
        (assigned,) = ast.parse(line).body
        assert isinstance(assigned, ast.Assign)
        assert all(re.fullmatch(r"[\w.-]+", name) for name in ast.literal_eval(assigned.value))


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
    autocast, host = "torch.autocast(tokens.device.type, dtype=torch.bfloat16)", "save_on_cpu(pin_memory=True)"
    for strategy in (each for each in STRATEGIES.values() if not (each.tensor or each.expert)):
        content = code(strategy, act_offload=True)
        assert content.count(host) == 1
        assert (f"with {autocast}, torch.autograd.graph.{host}:" in content) is (
            strategy.replicates or strategy.kind == "single"
        )
        assert host not in code(strategy)


@pytest.mark.parametrize(
    ("strategy", "train", "part"),
    [
        (Strategy(kind="fsdp2"), {"optimizer": "adafactor"}, "the optimizer adafactor with fsdp2"),
        (Strategy(kind="ddp"), {"lora": {"r": 8}, "quant": "nf4"}, "frozen weights in nf4"),
        (Strategy(kind="ddp"), {"loss": "fused-linear"}, "a fused-linear loss"),
        (Strategy(kind="deepspeed", stage=2), {"frozen": 0.5}, "frozen weights with DeepSpeed"),
        (Strategy(kind="deepspeed", stage=2), {"compile": True}, "torch.compile with DeepSpeed"),
        (Strategy(kind="fsdp1"), {}, "fsdp1"),
        (STRATEGIES["context"], {"seq_len": 1000}, "1000 tokens in 16 parts"),
        (STRATEGIES["context"], {"compile": True}, "torch.compile with"),
        (Strategy(kind="fsdp2", context=4, tensor=2), {}, "tensor and context parallelism together"),
        (Strategy(kind="fsdp2", context=4, expert=2), {"model": MIXTRAL}, "context and expert parallelism together"),
        (STRATEGIES["tensor"], {"model": MIXTRAL}, "split layers with experts"),
        (STRATEGIES["expert"], {"model": MIXTRAL, "lora": {"r": 8}}, "adapters on split experts"),
        (STRATEGIES["expert"], {"model": MIXTRAL, "optimizer": "adamw-8bit"}, "adamw-8bit with split experts"),
        (STRATEGIES["expert"], {"model": MIXTRAL, "compile": True}, "experts that are split"),
        (Strategy(kind="fsdp2", reshard_after_forward=8, expert=4), {"model": MIXTRAL}, "resharding of split experts"),
        (STRATEGIES["tensor"], {"lora": {"r": 8}}, "adapters on split layers"),
        (STRATEGIES["tensor"], {"act_offload": True}, "activations of split layers on the host"),
        (STRATEGIES["tensor"], {"compile": True}, "torch.compile with layers"),
        (STRATEGIES["tensor"], {"loss": "compiled"}, "a compiled loss of split logits"),
        (STRATEGIES["tensor"], {"optimizer": "adamw-8bit"}, "adamw-8bit with split layers"),
        (STRATEGIES["tensor"], {"seq_len": 1001}, "1001 tokens in 8 parts"),
        (Strategy(kind="fsdp2"), {"optimizer_state_dtype": "bf16"}, "optimizer states in bf16"),
        (Strategy(kind="fsdp2"), {"optimizer": "muon", "optimizer_in_bwd": True}, "steps within the backward pass"),
        (Strategy(kind="fsdp2"), {"grad_accum": 2, "optimizer_in_bwd": True}, "steps within the backward pass"),
        (Strategy(kind="ddp"), {"optimizer_in_bwd": True}, "steps within the backward pass"),
    ],
)
def test_what_no_file_can_do_is_refused(strategy: Strategy, train: dict[str, Any], part: str) -> None:
    with pytest.raises(UserError, match="the files cannot do all of this plan") as refused:
        made(strategy, **train)
    assert part in refused.value.message
    assert refused.value.next_step


@pytest.fixture(scope="module")
def usual() -> dict[str, dict[str, list[str]]]:
    """The statements behind the docstring in the files of each strategy, for a model with a usual name."""
    return {kind: statements(strategy, MIXTRAL if strategy.expert else MODEL) for kind, strategy in STRATEGIES.items()}


def statements(strategy: Strategy, model: Model) -> dict[str, list[str]]:
    """Return the statements behind the docstring in each Python file of a project."""
    texts = {file: text for file, text in made(strategy, model=model).items() if file.endswith(".py")}
    return {file: [ast.dump(node) for node in ast.parse(text).body[1:]] for file, text in texts.items()}


@pytest.mark.parametrize("name", ['"""; import os', "a\nb", "x\\", "{{START}}"])
def test_model_name_cannot_inject_code(name: str, usual: dict[str, dict[str, list[str]]]) -> None:
    for kind, strategy in STRATEGIES.items():
        model = MIXTRAL if strategy.expert else MODEL
        assert statements(strategy, msgspec.structs.replace(model, name=name)) == usual[kind]


def test_launch_script_runs_from_any_directory(tmp_path: Path) -> None:
    where = tmp_path / "a plan"
    where.mkdir()
    write_job_files(where, made(Strategy(kind="ddp"), gpus=2, nodes=1))
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
    assert found.stdout == f"{where} 4 --standalone --nproc-per-node=2 --max-restarts=3 train.py\n"
