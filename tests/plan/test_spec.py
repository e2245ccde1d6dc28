"""Specifications of a plan: rejected values, unknown names, the nearest fit, the next step."""

import os
import subprocess
from pathlib import Path

import pytest
from ddpwizard.app.diagnosis.given_text import classify_given
from ddpwizard.app.errors import UserError
from ddpwizard.app.plan import spec
from ddpwizard.app.plan.batch_scaling import describe_scaling, scale_batch
from ddpwizard.app.plan.memory.peak import SPARE, peak_parts_text
from ddpwizard.app.plan.timing.communication import Links
from ddpwizard.app.plan.types import Model, TrainingOptions, TrainingSetup
from ddpwizard.app.system.files import expand_user, read_regular_file
from ddpwizard.app.text.units import GIB
from helpers.command import ddpwizard
from helpers.planned import plan_candidates

LLAMA = Model(params=8.03e9, layers=32, hidden=4096, heads=32, kv_heads=8, intermediate=14336, vocab=128256)
LINKS = Links(370, 90)


def setting(model: Model = LLAMA, memory_gib: float = 79.1, gpus: int = 8, **train: int) -> TrainingSetup:
    asked = TrainingSetup(model=model, train=TrainingOptions(**train), gpus=gpus, gpu="H100", gpu_memory_gib=memory_gib)  # type: ignore[arg-type]
    return spec.fill_defaults(asked)[0]


def run(*arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    return ddpwizard("plan", *arguments, stdin=given)


class TestFiles:
    @pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
    def test_devices_are_not_read(self, path: str) -> None:
        with pytest.raises(UserError, match="is not a regular file"):
            read_regular_file(Path(path), 10, "")

    def test_pipe_does_not_block(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(UserError, match="is not a regular file"):
            read_regular_file(tmp_path / "pipe", 10, "")

    def test_unknown_home_is_refused(self) -> None:
        with pytest.raises(UserError, match="no home directory is known for ~nouser"):
            expand_user("~nouser/x")
        with pytest.raises(UserError, match="no home"):
            classify_given("~nouser/x")
        assert classify_given("~nouser is what it means") == ("text", "~nouser is what it means")


class TestRanking:
    def test_candidates_with_room_come_first(self) -> None:
        signs: set[bool | str | None] = set()
        for memory_gib in range(60, 100, 4):
            rows = [row.candidate for row in plan_candidates(setting(memory_gib=memory_gib, seq_len=4096), LINKS)]
            assert rows[0].fits is True
            for each in rows:
                if each.fits is True:
                    assert each.device_used_bytes_per_gpu <= memory_gib * GIB * (1 - SPARE)
            signs |= {each.fits for each in rows}
        assert "tight" in signs

    def test_smallest_shortage_comes_first_if_nothing_fits(self) -> None:
        rows = [row.candidate for row in plan_candidates(setting(memory_gib=4.0, seq_len=4096), LINKS)]
        assert not any(each.fits for each in rows)
        used = [each.device_used_bytes_per_gpu for each in rows]
        assert used == sorted(used)

    def test_fits_is_unknown_without_a_shape(self) -> None:
        rows = [row.candidate for row in plan_candidates(setting(Model(params=3e9)), LINKS)]
        assert {each.fits for each in rows} == {None}
        assert all(each.largest_micro_batch is None and "at least" in each.why for each in rows)

    @pytest.mark.parametrize("seq_len", [128, 4096, 32768])
    @pytest.mark.parametrize("gpus", [1, 8])
    def test_advice_suits_the_strategy(self, seq_len: int, gpus: int) -> None:
        for found, asked in plan_candidates(setting(seq_len=seq_len, gpus=gpus), LINKS):
            kind = asked.strategy.kind if asked.strategy else ""
            assert "gradient_as_bucket_view" not in found.lever or kind in ("ddp", "zero-optimizer")
            assert "shard the" not in found.lever or (kind not in ("fsdp2", "hsdp") and gpus > 1)
            assert "recompute" not in found.lever or found.recompute != "full"

    def test_shown_parts_add_up_to_the_figure(self) -> None:
        for found, _ in plan_candidates(setting(), LINKS):
            shown, _, whole = peak_parts_text(found).rpartition(" = ")
            assert sum(float(part.split()[1]) for part in shown.split(" · ")) == pytest.approx(float(whole))
            assert float(whole) == pytest.approx(found.device_used_bytes_per_gpu / GIB, abs=0.06)


class TestSpec:
    def test_unknown_keys_are_found(self) -> None:
        text = b'{"model": {"params": 1e9, "x": 1}, "train": {"lora": {"r": 8, "q": 1}, "bs": 2}, "gpus": 1, "y": {}}'
        spec.parse_spec(text)
        assert spec.unknown_keys(text) == ["y", "model.x", "train.bs", "train.lora.q"]

    def test_kv_heads_divide_heads(self) -> None:
        with pytest.raises(UserError, match="no multiple of kv_heads"):
            spec.check_setting(
                TrainingSetup(model=Model(params=1e9, heads=32, kv_heads=7), train=TrainingOptions(), gpus=1)
            )

    @pytest.mark.parametrize(("text", "value"), [("7B", 7e9), ("350m", 3.5e8), ("1.5T", 1.5e12), ("7e9", 7e9)])
    def test_counts(self, text: str, value: float) -> None:
        assert spec.parse_count(text) == pytest.approx(value)

    @pytest.mark.parametrize("text", ["", "B", "7BB", "nan", "inf", "seven"])
    def test_invalid_counts(self, text: str) -> None:
        with pytest.raises(ValueError):
            spec.parse_count(text)

    @pytest.mark.parametrize(("gpus", "nodes"), [(1, 1), (8, 1), (12, 2), (16, 2), (64, 8), (10**30, 1)])
    def test_nodes(self, gpus: int, nodes: int) -> None:
        assert spec.nodes_for(gpus) == nodes


def test_batch_that_cannot_be_kept_is_described() -> None:
    train = TrainingOptions(micro_batch=4, grad_accum=2)
    asked = spec.fill_defaults(TrainingSetup(model=Model(params=1e9), train=train, gpus=5))[0]
    assert "A batch of 32 cannot be kept on 5 GPUs: the closest is 30" in "\n".join(
        describe_scaling(scale_batch(asked, 4))
    )


class TestCommand:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--params", "7B", "--gpus", "8", "--gpu", "H1000"], "--gpu-memory"),
            (["--params", "7B", "--gpus", "8", "--gpu", "A100"], "A100-80G or A100-40G"),
            (["--params", "7B", "--gpus", "8", "--intra-gbps", "0"], "--intra-gbps is 0"),
            (["--params", "seven"], "--params is seven"),
            (["--spec", "-", "--gpus", "4"], "--gpus cannot be combined with --spec"),
            (["--spec", "/dev/stdin"], "/dev/stdin is not a regular file"),
        ],
    )
    def test_invalid_command_is_refused_in_one_line(self, arguments: list[str], message: str) -> None:
        done = run(*arguments, given="{}")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert message in done.stderr

    def test_assumptions_are_listed(self) -> None:
        shape = ("--params", "7B", "--layers", "32", "--hidden", "4096")
        done = run(*shape, "--gpus", "16", "--gpu", "H1000", "--gpu-memory", "80GB")
        for words in ("a guess: H1000 is not known", "nodes: 2, 8 GPUs each", "between nodes: 90", "more, all of"):
            assert words in done.stdout
        assert "memory in GiB" in done.stdout

    def test_help_shows_a_specification(self) -> None:
        assert '"micro_batch": 1' in run("--help").stdout
