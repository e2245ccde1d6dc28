"""ds_config.json, read by DeepSpeed's own parser."""

import json
import shlex
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.hardware.machine import Machine
from ddpwizard.app.launchers import deepspeed as files
from helpers.machines import CPU_ONLY, EIGHT_GPUS, GIB

STAGES: tuple[files.Stage, ...] = (0, 1, 2, 3)


def read_by_deepspeed(path: Path, world: int, monkeypatch: pytest.MonkeyPatch):
    """DeepSpeed's own reading of the file in a job of ``world`` ranks."""
    config = pytest.importorskip("deepspeed.runtime.config", reason="deepspeed is not installed")
    monkeypatch.setattr(config.dist, "get_rank", lambda *_: 0)  # the numbers of a job this machine cannot start
    monkeypatch.setattr(config.dist, "get_world_size", lambda *_: world)
    return config.DeepSpeedConfig(str(path))


class TestRealParser:
    """The configuration as DeepSpeed parses it."""

    @pytest.mark.parametrize("stage", STAGES)
    def test_every_zero_stage_is_accepted_with_a_consistent_batch(
        self, stage: files.Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        path = tmp_path / files.FILE
        path.write_text(files.render_json(files.zero_config(EIGHT_GPUS, stage=stage, micro_batch=3, accumulation=5)))
        config = read_by_deepspeed(path, 8, monkeypatch)
        assert config.train_batch_size == 3 * 5 * 8
        assert config.zero_config.stage == stage
        assert config.zero_config.overlap_comm is True
        assert config.gradient_clipping == 1.0
        assert config.bfloat16_config.enabled
        assert not config.float16_config.enabled
        if stage == 3:
            assert config.zero_config.gather_16bit_weights_on_model_save

    def test_other_world_size_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        path = tmp_path / files.FILE
        path.write_text(files.render_json(files.zero_config(EIGHT_GPUS)))
        with pytest.raises(AssertionError, match="train_batch_size is not equal"):
            read_by_deepspeed(path, 7, monkeypatch)

    def test_generated_file_is_valid_for_several_nodes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        made = files.deepspeed_json(msgspec.structs.replace(EIGHT_GPUS, nodes=3), ["train.py"])
        path = tmp_path / files.FILE
        path.write_text(made.files[files.FILE])
        assert read_by_deepspeed(path, 24, monkeypatch).train_batch_size == files.MICRO_BATCH * 24

    def test_fp16_on_gpus_without_bf16(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        made = files.deepspeed_json(msgspec.structs.replace(EIGHT_GPUS, gpu_name="Tesla T4"), ["train.py"])
        path = tmp_path / files.FILE
        path.write_text(made.files[files.FILE])
        config = read_by_deepspeed(path, 8, monkeypatch)
        assert config.float16_config.enabled
        assert not config.bfloat16_config.enabled


class TestFile:
    """Content of the file."""

    def test_auto_values_only_on_request(self):
        assert "auto" not in files.deepspeed_json(EIGHT_GPUS, []).files[files.FILE]
        assert files.zero_config(EIGHT_GPUS, automatic=True)["train_batch_size"] == "auto"

    def test_batch_sizes_are_consistent(self):
        plain = json.loads(files.deepspeed_json(EIGHT_GPUS, []).files[files.FILE])
        micro, steps = plain["train_micro_batch_size_per_gpu"], plain["gradient_accumulation_steps"]
        assert plain["train_batch_size"] == micro * steps * 8

    @pytest.mark.parametrize(("gib", "elements"), [(80, 500_000_000), (24, 200_000_000), (8, 50_000_000)])
    def test_bucket_size_follows_gpu_memory(self, gib: int, elements: int):
        plain = files.zero_config(msgspec.structs.replace(EIGHT_GPUS, gpu_memory_bytes=gib * GIB))
        assert plain["zero_optimization"]["reduce_bucket_size"] == elements


class TestLine:
    """The deepspeed launcher's own parser."""

    def test_line_is_parsed_by_deepspeed(self):
        runner = pytest.importorskip("deepspeed.launcher.runner", reason="deepspeed is not installed")
        machine = msgspec.structs.replace(EIGHT_GPUS, free_port=30123)
        words = shlex.split(files.deepspeed_json(machine, ["my train.py", "--lr", "1"]).commands[0])
        arguments = runner.parse_args(words[1:])
        assert (arguments.num_gpus, arguments.master_port) == (8, 30123)
        assert arguments.user_script == "my train.py"
        assert arguments.user_args == ["--lr", "1", "--deepspeed", files.FILE]

    @pytest.mark.parametrize("machine", [CPU_ONLY, Machine()])
    def test_text_only_without_gpus(self, machine: Machine):
        made = files.deepspeed_json(machine, ["train.py"])
        assert (made.files, made.commands) == ({}, [])
        assert "GPU" in made.text
