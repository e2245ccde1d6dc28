"""accelerate.yaml, read by Accelerate's own loader, launcher and plugins."""

import argparse
import os
import shlex
import warnings
from pathlib import Path

import msgspec
import pytest
import yaml
from ddpwizard.app.hardware.machine import Machine
from ddpwizard.app.launchers import accelerate as files
from ddpwizard.app.launchers import deepspeed as json_file
from ddpwizard.app.launchers.types import GeneratedFix
from helpers.machines import CPU_ONLY, EIGHT_GPUS

pytest.importorskip("accelerate", reason="Accelerate reads the files here: pip install -c constraints.txt accelerate")
from accelerate.commands import launch
from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
from accelerate.utils import launch as environments

TWO_NODES = msgspec.structs.replace(EIGHT_GPUS, nodes=2, free_port=29777)


def written(made: GeneratedFix, directory: Path) -> Path:
    for name, content in made.files.items():
        (directory / name).write_text(content)
    return directory / files.FILE


def launched(made: GeneratedFix, directory: Path, monkeypatch: pytest.MonkeyPatch, line: int = 0) -> argparse.Namespace:
    """The arguments of the generated line as the launcher has them after it read the file."""
    written(made, directory)
    monkeypatch.chdir(directory)
    words = shlex.split(made.commands[line])
    words = words[words.index("launch") + 1 :]
    arguments = launch._validate_launch_command(launch.launch_command_parser().parse_args(words))[0]
    if arguments.use_deepspeed:  # as launch_command does
        plain = yaml.safe_load(made.files[files.FILE])
        fields = [*plain["deepspeed_config"], *(["mixed_precision"] if "mixed_precision" in plain else [])]
        arguments.deepspeed_fields_from_accelerate_config = ",".join(fields)
    return arguments


def environment_of_ranks(made: GeneratedFix, directory: Path, monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    """Put what the launcher gives its ranks into this environment, as a rank would find it."""
    arguments = launched(made, directory, monkeypatch)
    if arguments.use_deepspeed:
        _, env = environments.prepare_deepspeed_cmd_env(arguments)
    else:
        env = environments.prepare_multi_gpu_env(arguments)
    for name, value in env.items():
        if os.environ.get(name) != value:
            monkeypatch.setenv(name, value)
    return arguments


class TestDdp:
    """Plain DDP."""

    def test_ddp_config_is_loaded_by_accelerate(self, tmp_path: Path):
        config = load_config_from_file(str(written(files.accelerate_ddp(EIGHT_GPUS, ["train.py"]), tmp_path)))
        assert isinstance(config, ClusterConfig)
        assert config.distributed_type == "MULTI_GPU"
        assert (config.num_processes, config.num_machines) == (8, 1)
        assert config.mixed_precision == "no"  # what a launch fix must not change

    def test_launcher_takes_a_free_port(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        arguments = environment_of_ranks(files.accelerate_ddp(EIGHT_GPUS, ["train.py"]), tmp_path, monkeypatch)
        assert arguments.multi_gpu
        assert arguments.nproc_per_node == "8"
        assert int(arguments.master_port) > 1024

    @pytest.mark.parametrize("rank", [0, 1])
    def test_num_processes_is_the_total_over_nodes(self, rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        arguments = launched(files.accelerate_ddp(TWO_NODES, ["train.py"]), tmp_path, monkeypatch, line=rank)
        assert (arguments.num_processes, arguments.num_machines, arguments.machine_rank) == (16, 2, rank)
        assert (arguments.main_process_ip, arguments.main_process_port) == ("10.0.0.5", 29777)
        environments.prepare_multi_gpu_env(arguments)
        assert (arguments.nproc_per_node, arguments.node_rank) == ("8", rank)
        assert (arguments.rdzv_backend, arguments.rdzv_endpoint) == ("static", "10.0.0.5:29777")

    def test_line_without_gpus_sets_use_cpu(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        made = files.accelerate_ddp(CPU_ONLY, ["train.py"])
        assert shlex.split(made.commands[0])[:2] == ["env", "ACCELERATE_USE_CPU=true"]
        assert launched(made, tmp_path, monkeypatch).num_processes == 2


class TestFsdp2:
    """FSDP2, whose plugin refuses keys and types of FSDP1."""

    def test_fsdp2_config_loads_without_a_warning(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        from accelerate import FullyShardedDataParallelPlugin

        environment_of_ranks(files.accelerate_fsdp2(EIGHT_GPUS, ["train.py"]), tmp_path, monkeypatch)
        assert os.environ["ACCELERATE_USE_FSDP"] == "true"
        assert os.environ["ACCELERATE_MIXED_PRECISION"] == "bf16"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            plugin = FullyShardedDataParallelPlugin()
        assert plugin.fsdp_version == 2
        assert plugin.reshard_after_forward is True
        assert str(plugin.state_dict_type).endswith("SHARDED_STATE_DICT")
        assert plugin.min_num_params == files.WRAP_FROM_PARAMETERS

    def test_config_has_only_fsdp2_keys(self):
        section = yaml.safe_load(files.accelerate_fsdp2(EIGHT_GPUS, []).files[files.FILE])["fsdp_config"]
        removed = {
            "fsdp_sharding_strategy",
            "fsdp_backward_prefetch",
            "fsdp_use_orig_params",
            "fsdp_sync_module_states",
        }
        assert not (removed | {"fsdp_forward_prefetch"}) & set(section)
        assert section["fsdp_reshard_after_forward"] is True

    def test_no_bf16_on_gpus_without_it(self):
        machine = msgspec.structs.replace(EIGHT_GPUS, gpu_name="Tesla V100-SXM2-32GB")
        made = files.accelerate_fsdp2(machine, [])
        assert yaml.safe_load(made.files[files.FILE])["mixed_precision"] == "no"
        assert "V100" in made.text

    @pytest.mark.parametrize("machine", [CPU_ONLY, Machine(), msgspec.structs.replace(EIGHT_GPUS, torch=(2, 5))])
    def test_text_only_if_fsdp2_cannot_run(self, machine: Machine):
        made = files.accelerate_fsdp2(machine, ["train.py"])
        assert (made.files, made.commands) == ({}, [])
        assert made.text


class TestDeepspeed:
    """The YAML that names a DeepSpeed file must have none of the fields of that file."""

    def test_deepspeed_plugin_loads_both_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        pytest.importorskip("deepspeed", reason="Accelerate's DeepSpeed plugin needs deepspeed itself")
        from accelerate import DeepSpeedPlugin

        environment_of_ranks(files.accelerate_deepspeed(EIGHT_GPUS, ["train.py"]), tmp_path, monkeypatch)
        plugin = DeepSpeedPlugin()
        assert plugin.zero_stage == 2
        assert plugin.deepspeed_config["gradient_clipping"] == 1.0
        assert plugin.get_value("bf16.enabled") is True

    def test_forbidden_field_is_refused_by_the_plugin(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        pytest.importorskip("deepspeed", reason="Accelerate's DeepSpeed plugin needs deepspeed itself")
        from accelerate import DeepSpeedPlugin

        made = files.accelerate_deepspeed(EIGHT_GPUS, ["train.py"])
        wrong = made.files | {files.FILE: made.files[files.FILE] + "mixed_precision: bf16\n"}
        environment_of_ranks(msgspec.structs.replace(made, files=wrong), tmp_path, monkeypatch)
        with pytest.raises(ValueError, match="deepspeed_config_file"):
            DeepSpeedPlugin()

    def test_multi_node_start_uses_torch_not_ssh(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        arguments = launched(files.accelerate_deepspeed(TWO_NODES, ["train.py"]), tmp_path, monkeypatch, line=1)
        command, _ = environments.prepare_deepspeed_cmd_env(arguments)
        assert command is None
        assert (arguments.nnodes, arguments.node_rank, arguments.nproc_per_node) == ("2", 1, "8")

    def test_named_deepspeed_file_is_generated(self):
        made = files.accelerate_deepspeed(EIGHT_GPUS, [])
        section = yaml.safe_load(made.files[files.FILE])["deepspeed_config"]
        assert section["deepspeed_config_file"] == json_file.FILE
        assert json_file.FILE in made.files

    def test_text_only_without_gpus(self):
        assert files.accelerate_deepspeed(CPU_ONLY, []).files == {}


class TestNames:
    """Hosts and scripts come back from YAML and shell as they went in."""

    @pytest.mark.parametrize("host", ["no", "1.10", "a: b", "#x", "'", "fd00::5", "{x}"])
    def test_host_name_stays_text_in_yaml(self, host: str):
        machine = msgspec.structs.replace(TWO_NODES, head=host)
        assert yaml.safe_load(files.accelerate_ddp(machine, []).files[files.FILE])["main_process_ip"] == host

    def test_script_name_stays_one_word_in_the_shell(self):
        assert shlex.split(files.accelerate_ddp(EIGHT_GPUS, ["my train;.py"]).commands[0])[-1] == "my train;.py"
