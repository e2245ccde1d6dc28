"""Contradictions between the files of one job, with their arithmetic; the tools refuse the same settings."""

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddpwizard.app.errors import UserError
from ddpwizard.app.plan.job_files.write import render_job_files
from ddpwizard.app.plan.spec import fill_defaults
from ddpwizard.app.plan.types import Model, Strategy, TrainingOptions, TrainingSetup
from ddpwizard.app.review.launch_files.conflicts import SET_TWICE, find_conflicts
from ddpwizard.app.review.launch_files.read_files import parse_job_file, read_job_files
from helpers.command import ddpwizard

ZERO: dict[str, Any] = {
    "train_batch_size": 32,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
}
ACCELERATE: dict[str, Any] = {"distributed_type": "MULTI_GPU", "num_machines": 1, "num_processes": 4}
LAUNCH = "#!/bin/sh\nset -eu\nexec torchrun --standalone --nproc-per-node=4 train.py\n"
SLURM = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=h100:2
#SBATCH --ntasks-per-node=1
srun torchrun --nnodes=$SLURM_NNODES --nproc-per-node=2 --rdzv-backend=c10d \\
  --rdzv-endpoint=$HEAD:29400 train.py
"""


def zero(**changed: Any) -> str:
    return json.dumps({name: value for name, value in (ZERO | changed).items() if value is not None}, indent=1)


def accelerate(**changed: Any) -> str:
    return yaml.safe_dump(ACCELERATE | changed, sort_keys=False)


def conflicts(**files: str) -> list[str]:
    """The conflicts of files, ``ds_json`` standing for ``ds.json``."""
    parsed = [parse_job_file(name.replace("_", "."), text) for name, text in files.items()]
    return [f"{' '.join(each.where)}: {each.message}" for each in find_conflicts([file for file in parsed if file])]


class TestBatch:
    def test_batch_that_multiplies_out_is_no_conflict(self) -> None:
        assert conflicts(ds_json=zero(), go_sh=LAUNCH) == []

    def test_conflict_shows_the_arithmetic(self) -> None:
        assert conflicts(ds_json=zero(train_batch_size=64), go_sh=LAUNCH) == [
            "ds.json:2 ds.json:3 ds.json:4 go.sh:3: "
            "train_batch_size 64 ≠ 4 × 2 × 4 = 32 (micro-batch × accumulation × ranks)"
        ]

    def test_batch_without_a_launcher_must_divide(self) -> None:
        assert conflicts(ds_json=zero(train_batch_size=64)) == []
        (line,) = conflicts(ds_json=zero(train_batch_size=36))
        assert "train_batch_size 36 is no multiple of 4 × 2 = 8 (micro-batch × accumulation)" in line

    def test_missing_factor_is_computed_if_it_divides(self) -> None:
        assert conflicts(ds_json=zero(gradient_accumulation_steps=None), go_sh=LAUNCH) == []
        (line,) = conflicts(ds_json=zero(gradient_accumulation_steps=None, train_batch_size=40), go_sh=LAUNCH)
        assert "40 is no multiple of 4 × 4 = 16" in line

    def test_auto_is_not_compared(self) -> None:
        assert conflicts(ds_json=zero(train_batch_size="auto"), go_sh=LAUNCH) == []

    @pytest.mark.parametrize(
        ("changed", "ranks"),
        [
            ({}, 4),
            ({"train_batch_size": 64}, 4),
            ({}, 8),
            ({"gradient_accumulation_steps": None, "train_batch_size": 40}, 4),
            ({"train_micro_batch_size_per_gpu": None, "train_batch_size": 36}, 4),
            ({"train_micro_batch_size_per_gpu": None, "gradient_accumulation_steps": None, "train_batch_size": 30}, 4),
            ({"train_batch_size": None}, 4),
            ({"bf16": {"enabled": True}, "fp16": {"enabled": True}}, 4),
        ],
    )
    def test_deepspeed_refuses_the_same(
        self, changed: Any, ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config: Any = pytest.importorskip("deepspeed.runtime.config", reason="deepspeed is not installed")
        monkeypatch.setattr(config.dist, "get_rank", lambda *_: 0)
        monkeypatch.setattr(config.dist, "get_world_size", lambda *_: ranks)
        path = tmp_path / "ds.json"
        path.write_text(zero(**changed))
        refused = False
        try:
            config.DeepSpeedConfig(str(path))
        except AssertionError:
            refused = True
        launch = LAUNCH.replace("node=4", f"node={ranks}")
        assert bool(conflicts(ds_json=zero(**changed), go_sh=launch)) == refused

    def test_deepspeed_refuses_a_duplicate_key(self, tmp_path: Path) -> None:
        config: Any = pytest.importorskip("deepspeed.runtime.config", reason="deepspeed is not installed")
        twice = zero().replace('"train_batch_size": 32,', '"train_batch_size": 32,\n "train_batch_size": 64,')
        (tmp_path / "ds.json").write_text(twice)
        with pytest.raises(ValueError, match="uplicate"):
            config.DeepSpeedConfig(str(tmp_path / "ds.json"))
        assert "ds.json:3: train_batch_size is set twice; DeepSpeed refuses the file" in conflicts(ds_json=twice)


class TestLaunchers:
    def test_ranks(self) -> None:
        (line,) = conflicts(a_yaml=accelerate(num_processes=8), go_sh=LAUNCH)
        assert line == "go.sh:3 a.yaml:3: ranks: torchrun starts 1 × 4 = 4 ranks ≠ num_processes 8"

    def test_slurm_and_torchrun(self) -> None:
        assert conflicts(a_slurm=SLURM) == []
        (line,) = conflicts(a_slurm=SLURM.replace("node=2 --rdzv", "node=4 --rdzv"))
        assert line == ("a.slurm:3 a.slurm:5: Slurm gives 2 × 2 = 4 GPUs ≠ 8 (torchrun starts 2 × 4 = 8 ranks)")

    def test_torchrun_per_gpu_is_a_conflict(self) -> None:
        (line,) = conflicts(a_slurm=SLURM.replace("tasks-per-node=1", "tasks-per-node=2"))
        assert "--ntasks-per-node=2 starts torchrun 2 times on each node" in line

    def test_a_hostfile(self) -> None:
        hosts = "# ours\nn1 slots=2\nn2 slots=1\n"
        (line,) = conflicts(hostfile=hosts, ds_json=zero())
        assert "train_batch_size 32 ≠ 4 × 2 × 3 = 24" in line
        assert line.startswith("ds.json:2 ds.json:3 ds.json:4 hostfile:2")

    def test_kubernetes(self) -> None:
        setting = TrainingSetup(
            model=Model(params=1e9), train=TrainingOptions(), gpus=16, nodes=2, strategy=Strategy(kind="ddp")
        )
        made = render_job_files(fill_defaults(setting)[0])
        job, jobset = made["pytorchjob.yaml"], made["jobset.yaml"]
        assert conflicts(job_yaml=job, jobset_yaml=jobset) == []
        changed = job.replace("nprocPerNode: '8'", "nprocPerNode: '4'").replace(
            "nvidia.com/gpu: 8", "nvidia.com/gpu: 4"
        )
        (line,) = conflicts(job_yaml=changed, jobset_yaml=jobset)
        assert line.endswith("ranks: 2 pods × 8 = 16 ranks ≠ 2 pods × 4 = 8 ranks")

    @pytest.mark.parametrize("file", ["pytorchjob.yaml", "jobset.yaml"])
    def test_gpus_and_processes_of_a_pod(self, file: str) -> None:
        setting = TrainingSetup(
            model=Model(params=1e9), train=TrainingOptions(), gpus=16, nodes=2, strategy=Strategy(kind="ddp")
        )
        made = render_job_files(fill_defaults(setting)[0])[file]
        (line,) = conflicts(job_yaml=made.replace("nvidia.com/gpu: 8", "nvidia.com/gpu: 4"))
        assert line.endswith("8 processes in a pod that gets nvidia.com/gpu 4")
        if file == "jobset.yaml":
            (line,) = conflicts(job_yaml=made.replace("parallelism: 2", "parallelism: 1"))
            assert line.endswith("parallelism 1 starts 1 of 2 pods at a time, and each waits for all")

    def test_processes_must_divide_by_machines(self) -> None:
        (line,) = conflicts(a_yaml=accelerate(num_machines=3))
        assert "4 / 3 = 1.33 is no whole number" in line

    def test_files_without_numbers_are_not_compared(self) -> None:
        elastic = LAUNCH.replace("--standalone --nproc-per-node=4", "--nnodes=1:4 --nproc-per-node=gpu")
        assert conflicts(ds_json=zero(), go_sh=elastic) == []
        assert conflicts(go_sh="#!/bin/sh\necho \"it's\n") == []

    def test_count_of_accelerate_launch_overrides_its_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        launch = pytest.importorskip("accelerate.commands.launch", reason="accelerate is not installed")
        (tmp_path / "a.yaml").write_text(accelerate(num_processes=8))
        line = f"accelerate launch --config_file {tmp_path}/a.yaml --num_processes 4 train.py"
        arguments = launch.launch_command_parser().parse_args(line.split()[2:])
        assert launch._validate_launch_command(arguments)[0].num_processes == 4
        assert "--num_processes 4 ≠ num_processes 8" in conflicts(a_yaml=accelerate(num_processes=8), go_sh=line)[0]


class TestAccelerate:
    @pytest.mark.parametrize("name", SET_TWICE)
    def test_accelerate_refuses_keys_of_the_deepspeed_file(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("deepspeed", reason="Accelerate's DeepSpeed plugin needs deepspeed itself")
        from accelerate import DeepSpeedPlugin

        (tmp_path / "ds.json").write_text(zero())
        monkeypatch.setenv("ACCELERATE_CONFIG_DS_FIELDS", f"deepspeed_config_file,{name}")
        monkeypatch.setenv("ACCELERATE_DEEPSPEED_CONFIG_FILE", str(tmp_path / "ds.json"))
        with pytest.raises(ValueError, match="will be ignored"):
            DeepSpeedPlugin()
        section = {"deepspeed_config_file": "ds.json"} | ({} if name == "mixed_precision" else {name: 1})
        repeated = {"mixed_precision": "bf16"} if name == "mixed_precision" else {}
        (line,) = conflicts(a_yaml=accelerate(deepspeed_config=section, **repeated))
        assert f"{name} together with deepspeed_config_file" in line

    def test_accelerate_refuses_a_mesh_of_another_size(self, monkeypatch: pytest.MonkeyPatch) -> None:
        accelerate_itself = pytest.importorskip("accelerate", "1.10", reason="Accelerate has it since 1.10")
        sizes = {"parallelism_config_dp_replicate_size": 2, "parallelism_config_dp_shard_size": 4}
        (line,) = conflicts(a_yaml=accelerate(parallelism_config=sizes))
        assert "num_processes 4 ≠ 2 (dp_replicate) × 4 (dp_shard) = 8" in line
        assert accelerate_itself.ParallelismConfig(dp_replicate_size=2, dp_shard_size=4).total_size == 8

    def test_stage_and_precision(self) -> None:
        other = accelerate(deepspeed_config={"zero_stage": 3}, mixed_precision="fp16")
        found = conflicts(ds_json=zero(), a_yaml=other)
        assert found == [
            "a.yaml:5 ds.json:9: ZeRO stage: zero_stage 3 ≠ stage 2",
            "a.yaml:6 ds.json:5: precision: mixed_precision fp16 ≠ bf16 precision",
        ]

    def test_bare_no_in_yaml_is_a_word(self) -> None:
        text = accelerate().replace("num_processes", "mixed_precision: no\nnum_processes")
        assert "mixed_precision no ≠ bf16 precision" in conflicts(ds_json=zero(), a_yaml=text)[0]


class TestCommand:
    def test_a_directory(self, tmp_path: Path) -> None:
        (tmp_path / "ds.json").write_text(zero(train_batch_size=64))
        (tmp_path / "launch.sh").write_text(LAUNCH)
        (tmp_path / "notes.json").write_text('["other"]')
        done = ddpwizard("review", "--launch-files", str(tmp_path))
        assert done.returncode == 1
        assert done.stdout == (
            f"{tmp_path}/ds.json:2: train_batch_size 64 ≠ 4 × 2 × 4 = 32 (micro-batch × accumulation × ranks) "
            f"({tmp_path}/ds.json:3, {tmp_path}/ds.json:4, {tmp_path}/launch.sh:3)\n"
        )

    def test_other_options_are_refused(self, tmp_path: Path) -> None:
        done = ddpwizard("review", "--launch-files", "--fix", str(tmp_path))
        assert done.returncode == 2
        assert "--launch-files goes with PATH and --json only" in done.stderr

    def test_files_of_no_job_are_skipped(self, tmp_path: Path) -> None:
        (tmp_path / "tokenizer.json").write_text(json.dumps({"vocab": "x" * 3_000_000}))
        (tmp_path / "data.json").write_text('{"text": "a"}\n{"text": "b"}\n')
        (tmp_path / "ds.json").write_text(zero())
        (tmp_path / "go.sh").write_text(LAUNCH)
        result = ddpwizard("review", "--launch-files", str(tmp_path))
        assert (result.returncode, result.stdout) == (0, "These agree: ds.json, go.sh.\n")

    def test_files_of_the_same_name_are_named_with_their_directories(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "go.sh").write_text(LAUNCH)
        (tmp_path / "ds.json").write_text(zero())
        result = ddpwizard("review", "--launch-files", "a", "b", "ds.json", cwd=tmp_path)
        assert (result.returncode, result.stdout) == (0, "These agree: a/go.sh, b/go.sh, ds.json.\n")

    def test_deepspeed_launcher_starts_the_ranks_of_its_hostfile(self, tmp_path: Path) -> None:
        (tmp_path / "go.sh").write_text("deepspeed --hostfile=./hostfile train.py\n")
        (tmp_path / "hostfile").write_text("a slots=4\nb slots=4\n")
        (tmp_path / "accelerate.yaml").write_text(accelerate(num_processes=8, num_machines=2))
        assert find_conflicts(read_job_files([tmp_path])) == []
        assert [file.compares for file in read_job_files([tmp_path])] == [True, True, True]
        (tmp_path / "accelerate.yaml").write_text(accelerate(num_processes=4, num_machines=2))
        assert any("go.sh:1" in " ".join(each.where) for each in find_conflicts(read_job_files([tmp_path])))

    def test_script_with_variables_only_is_not_compared(self, tmp_path: Path) -> None:
        (tmp_path / "go.sh").write_text("torchrun --nnodes=$N --nproc-per-node=$G train.py\n")
        result = ddpwizard("review", "--launch-files", str(tmp_path))
        assert result.returncode == 2
        assert "there are no numbers to compare" in result.stderr

    def test_json_and_no_conflict(self, tmp_path: Path) -> None:
        (tmp_path / "ds.json").write_text(zero())
        done = ddpwizard("review", "--launch-files", str(tmp_path / "ds.json"), "--json")
        body = json.loads(done.stdout)
        assert (done.returncode, body["schema"], body["conflicts"]) == (0, "ddpwizard.agreement/1", [])
        assert body["files"] == [{"path": f"{tmp_path}/ds.json", "kind": "deepspeed"}]

    def test_broken_file_with_the_name_of_a_job_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "ds_config.json").write_text("{")
        done = ddpwizard("review", "--launch-files", str(tmp_path))
        assert done.returncode == 2
        assert "ds_config.json" in done.stderr
        assert "describes how a job is started" not in done.stderr

    @pytest.mark.parametrize("content", ["{", "[1, 2", "{" * 100_000, '{"a": ' * 100_000])
    def test_broken_file_is_refused_in_one_line(self, content: str, tmp_path: Path) -> None:
        (tmp_path / "ds.json").write_text(content)
        done = ddpwizard("review", "--launch-files", str(tmp_path))
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) <= 2
        assert "Traceback" not in done.stderr

    def test_nothing_to_check(self, tmp_path: Path) -> None:
        done = ddpwizard("review", "--launch-files", str(tmp_path))
        assert done.returncode == 2
        assert "describes how a job is started" in done.stderr

    @pytest.mark.parametrize("piece", ["\n", " ", "a ", "\\\n", "torchrun \\\n", "'", "#SBATCH\n", "{", "- "])
    def test_large_file_is_read_quickly(self, piece: str) -> None:
        text = piece * (200_000 // len(piece))
        started = time.thread_time()
        for name in ("a.sh", "hostfile", "b.json", "c.yaml"):
            with contextlib.suppress(UserError):
                parse_job_file(name, text)
        assert time.thread_time() - started < 20

    def test_strange_values_are_data_or_refused(self, tmp_path: Path) -> None:
        for number, value in enumerate([None, [], {}, True, -1, 1e400, "x" * 1000, "9" * 400]):
            where = tmp_path / str(number)
            where.mkdir()
            (where / "ds.json").write_text(json.dumps(ZERO | dict.fromkeys(ZERO, value)))
            (where / "a.yaml").write_text(yaml.safe_dump(dict.fromkeys([*ACCELERATE, "deepspeed_config"], value)))
            (where / "k.yaml").write_text(yaml.safe_dump({"kind": "PyTorchJob", "spec": value}))
            with contextlib.suppress(UserError):
                find_conflicts(read_job_files([where]))
        os.mkfifo(tmp_path / "0" / "pipe.json")
        find_conflicts(read_job_files([tmp_path / "0"]))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"zero_optimization": [1]}, "zero_optimization is not an object"),
        ({"fp16": 5}, "fp16 is not an object"),
        ({"train_batch_size": [32]}, "train_batch_size is not a number"),
    ],
)
def test_value_of_another_type_is_refused(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        parse_job_file("zero.json", zero(**changed))
