"""From a question to ranked candidates: what is refused, what is assumed, what comes first, and the command."""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.hardware import gpu_catalog
from ddpwizard.app.plan import spec
from ddpwizard.app.plan.strategies.search import layouts_to_try
from ddpwizard.app.plan.timing.communication import Links
from ddpwizard.app.plan.timing.step_time import communication_bytes
from ddpwizard.app.plan.types import Candidate, Model, Strategy, TrainingOptions, TrainingSetup
from helpers.command import ddpwizard, refused
from helpers.planned import plan_candidates as rows

LLAMA = {"params": 6.738e9, "layers": 32, "hidden": 4096, "heads": 32, "intermediate": 11008, "vocab": 32000}
MACHINE = {"gpus": 8, "gpu": "H100", "gpu_memory_gib": 79.1}
LINKS = Links(370, 90)


def whole(**given: Any) -> TrainingSetup:
    return completed(**given)[0]


def assumed(**given: Any) -> list[str]:
    return completed(**given)[1]


def completed(**given: Any) -> tuple[TrainingSetup, list[str]]:
    return spec.fill_defaults(spec.parse_spec(json.dumps({"model": LLAMA, "train": {}, **MACHINE} | given).encode()))


def plan(setting: TrainingSetup, links: Links, host_bytes: float | None = None) -> list[Candidate]:
    return [row.candidate for row in rows(setting, links, host_bytes)]


class TestSpec:
    def test_defaults_are_listed(self) -> None:
        _, assumed = spec.fill_defaults(spec.parse_spec(json.dumps({"model": LLAMA, "train": {}, "gpus": 1}).encode()))
        assert assumed == ["dtype: bf16", "optimizer: adamw", "micro_batch: 1", "seq_len: 2048", "act_ckpt: none"]

    def test_quantized_weights_get_adapters(self) -> None:
        text = {"model": LLAMA, "train": {"quant": "nf4"}, "gpus": 1}
        setting, assumed = spec.fill_defaults(spec.parse_spec(json.dumps(text).encode()))
        assert setting.train.lora is not None
        assert "lora: rank 16 on all linear layers, as weights in nf4 cannot be trained" in assumed

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"gpus": 0}, "gpus is 0"),
            ({"train": {"frozen": 1.0}}, "train.frozen is 1: nothing would be trained"),
            ({"train": {"micro_batch": 10**14}}, "train.micro_batch is 100,000,000,000,000"),
            ({"train": {"frozen": -0.5}}, "train.frozen is -0.5"),
            ({"model": LLAMA | {"experts": -8}}, "model.experts is -8"),
            ({"gpus": 7, "nodes": 2}, "no multiple of nodes"),
            ({"model": LLAMA | {"params": -1}}, "model.params is -1"),
            ({"model": LLAMA | {"heads": 33}}, "no multiple of heads"),
            ({"train": {"seq_len": 0}}, "train.seq_len is 0"),
            ({"train": {"dtype": "int3"}}, "dtype"),
            ({"train": {"dtype": "fp8"}}, "it is one of fp32, bf16-mixed"),
            ({"strategy": {"kind": "zero"}}, "it is one of single, ddp"),
            ({"strategy": {"kind": "deepspeed", "stage": 4}}, "it is one of 0, 1, 2, 3"),
            ({"strategy": {"kind": "magic"}}, "kind"),
            ({"gpu_memory_gib": -2}, "gpu_memory_gib is -2"),
            ({"gpus": 10**12}, "gpus is 1,000,000,000,000"),
            ({"gpus": 10**7, "nodes": 10**7}, "is 10,000,000"),
            ({"train": {"lora": {"r": -3}}}, "train.lora.r is -3"),
            ({"model": LLAMA | {"layers": 10**20}}, "model.layers is 1e+20"),
            ({"model": LLAMA | {"largest_layer": -1}}, "model.largest_layer is -1"),
            ({"strategy": {"kind": "hsdp", "shard_size": 0}}, "strategy.shard_size is 0"),
            ({"strategy": {"kind": "deepspeed", "stage": 2, "reduce_bucket_size": -5}}, "reduce_bucket_size is -5"),
        ],
    )
    def test_invalid_specification_is_refused_in_one_line(self, change: dict[str, Any], message: str) -> None:
        with pytest.raises(UserError) as refusal:
            whole(**change)
        assert message in str(refusal.value)
        assert "\n" not in refusal.value.message

    @pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
    def test_invalid_number_is_refused(self, number: str) -> None:
        with pytest.raises(UserError) as refusal:
            spec.parse_spec(b'{"model": {"params": %s}, "train": {}, "gpus": 1}' % number.encode())
        assert "\n" not in refusal.value.message
        assert len(refusal.value.message) < 200

    @pytest.mark.parametrize("layers", [10**9, 10**15])
    def test_absurd_sizes_cost_no_time(self, layers: int) -> None:
        absurd = LLAMA | {"layers": layers, "hidden": 10**15, "heads": 10, "intermediate": 10**15, "vocab": 10**15}
        began = time.thread_time()
        found = plan(whole(model=absurd, gpus=10**6, nodes=10**6), LINKS)
        assert time.thread_time() - began < 5
        assert not any(each.fits for each in found)

    @pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b"x" * 2_000_000, b'{"gpus": 1}'])
    def test_invalid_json_is_refused(self, text: bytes) -> None:
        with pytest.raises(UserError):
            spec.parse_spec(text)


class TestAssumed:
    def test_strategies_are_compared_with_the_same_step(self) -> None:
        compared, alone = whole(), whole(strategy={"kind": "fsdp2"})
        assert (compared.train.optimizer_impl, alone.train.optimizer_impl) == ("fused", "foreach")
        assert whole(train={"optimizer_impl": "foreach"}).train.optimizer_impl == "foreach"
        assert whole(train={"optimizer": "lion"}).train.optimizer_impl == "foreach"

    @pytest.mark.parametrize(("packed", "notes"), [(False, 1), (True, 0)])
    def test_adapters_are_trained_on_sequences_of_different_length(self, packed: bool, notes: int) -> None:
        lines = assumed(train={"lora": {"r": 8}, "packed": packed})
        assert sum("of different length" in line for line in lines) == notes

    @pytest.mark.parametrize(("params", "notes"), [(1e9, 1), (6.7e9, 0), (1e11, 1)])
    def test_implausible_parameter_count_is_noted(self, params: float, notes: int) -> None:
        lines = assumed(model=LLAMA | {"params": params})
        assert sum("is mistyped" in line for line in lines) == notes


class TestRanking:
    def test_fastest_fitting_candidate_comes_first(self) -> None:
        found = plan(whole(), LINKS)
        fitting = [each for each in found if each.fits]
        assert found[: len(fitting)] == fitting
        whole_gpu = [each.step_seconds or 0 for each in fitting if not each.host_bytes]
        assert whole_gpu[0] <= 1.03 * min(whole_gpu)
        assert found[-1].fits is False

    def test_a_small_model_needs_no_sharding(self) -> None:
        small = LLAMA | {"params": 1.2e8, "layers": 12, "hidden": 768, "heads": 12, "intermediate": 3072}
        assert "CPU" not in plan(whole(model=small), LINKS)[0].strategy
        assert all(each.fits for each in plan(whole(model=small), LINKS))

    def test_nothing_fits(self) -> None:
        huge = LLAMA | {"params": 7e11, "layers": 160, "hidden": 16384, "heads": 128, "intermediate": 53248}
        found = plan(whole(model=huge, gpu_memory_gib=23.6), LINKS, host_bytes=64e9)
        assert not any(each.fits for each in found)
        assert "missing" in found[0].why

    def test_a_given_strategy_is_the_only_candidate(self) -> None:
        (only,) = plan(whole(strategy={"kind": "ddp"}), LINKS)
        assert only.strategy == "DDP"

    def test_several_nodes_are_offered_hybrid_sharding(self) -> None:
        assert "hsdp" in [each.kind for each in layouts_to_try(16, 2)]
        assert "hsdp" not in [each.kind for each in layouts_to_try(8, 1)]

    def test_every_candidate_has_a_reason_and_advice(self) -> None:
        assert all(each.why and each.lever for each in plan(whole(), LINKS))

    def test_is_quick(self) -> None:
        question = whole()
        plan(question, LINKS)
        began = time.thread_time()
        plan(question, LINKS)
        assert time.thread_time() - began < 0.5  # 5 ms on an idle machine; make bench holds the bar


class TestVolume:
    """Bytes sent by a rank relative to DDP (arXiv 1910.02054, section 7; arXiv 2304.11277)."""

    @pytest.mark.parametrize(
        ("strategy", "times"),
        [
            (Strategy(kind="deepspeed", stage=1), 1.0),
            (Strategy(kind="deepspeed", stage=2), 1.0),
            (Strategy(kind="deepspeed", stage=3), 1.5),
        ],
    )
    def test_volume_of_zero_over_ddp(self, strategy: Strategy, times: float) -> None:
        def sent(each: Strategy) -> float:
            train = TrainingOptions(dtype="bf16-deepspeed", micro_batch=1, seq_len=2048, grad_accum=1)
            return communication_bytes(TrainingSetup(model=Model(params=1e9), train=train, gpus=8, strategy=each))

        assert sent(strategy) / sent(Strategy(kind="ddp")) == pytest.approx(times)

    def test_one_gpu_sends_nothing(self) -> None:
        assert communication_bytes(whole(gpus=1)) == 0


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-80g"),
        ("A100-40G", "a100-40g"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("Tesla V100-SXM2-32GB", "v100-32g"),
        ("RTX3090-24G", "rtx3090"),
    ],
)
def test_gpu_is_found_by_name(name: str, key: str) -> None:
    assert gpu_catalog.find_gpu(name) == gpu_catalog.GPUS[key]
    assert gpu_catalog.find_gpu("abacus") is None


class TestCommand:
    def run(self, *arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        return ddpwizard("plan", *arguments, stdin=given)

    def test_names_the_gpus_that_are_enough_only_if_these_are_not(self) -> None:
        large = ("--model", "Llama-3.1-405B", "--gpu", "H100", "--json", "--gpus")
        few, many = (json.loads(self.run(*large, count).stdout) for count in ("8", "1024"))
        assert few["more_gpus"].startswith("With 8 more GPUs: what fits is too slow; ")
        assert "GPUs are enough (" in few["more_gpus"]
        assert "more_gpus" not in many

    def test_help_lists_options_in_groups(self) -> None:
        shown = self.run("--help").stdout
        groups = {}
        for block in shown.split("\n\n"):
            title, _, body = block.partition("\n")
            groups[title.strip()] = body
        for title, options in (
            ("Model:", ("--model NAME", "--spec FILE", "--script FILE", "--params N")),
            ("Training:", ("--dtype", "--seq-len N", "--lora R", "--reference-gpus N")),
            ("Machine:", ("--gpus N", "--gpu-memory GB", "--machine NAME", "--machine-snapshot FILE")),
            ("Output:", ("--curve", "--write DIR", "--exact")),
            ("General:", ("--python", "--plain")),
        ):
            for option in options:
                assert option in groups[title], (title, option)

    def test_spec_from_standard_input(self) -> None:
        done = self.run("--spec", "-", "--json", given=json.dumps({"model": LLAMA, "train": {}, **MACHINE}))
        document = msgspec.json.decode(done.stdout)
        assert (done.returncode, document["schema"]) == (0, "ddpwizard.plan/1")
        assert "dtype: bf16" in document["inputs"]["assumed"]
        assert document["candidates"][0]["fits"] is True

    def test_table_of_a_config(self, tmp_path: Path) -> None:
        config = {
            "model_type": "llama",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "intermediate_size": 11008,
            "vocab_size": 32000,
        }
        (tmp_path / "config.json").write_text(json.dumps(config))
        done = self.run("--config", str(tmp_path), "--gpus", "8", "--gpu", "A100-80G", "--seq-len", "4096")
        assert done.returncode == 0
        assert "6.74 B parameters · 8 GPUs of 79 GiB" in done.stdout
        assert "FSDP2" in done.stdout

    def test_split_strategies_are_not_written_and_say_what_they_need(self, tmp_path: Path) -> None:
        where = tmp_path / "job"
        asked = ("--model", "Llama-3.1-8B", "--gpus", "16", "--gpu", "H100", "--fp8", "--compile")
        done = self.run(*asked, "--strategy", "FSDP2 + TP 8 + PP 2", "--write", str(where))
        assert done.returncode == 1
        assert "Use FSDP2 + tensor parallel 8 + pipeline parallel 2: " in done.stdout
        assert "init_device_mesh" in done.stderr
        assert not where.exists()

    @pytest.mark.parametrize(
        ("more", "part", "instead"),
        [
            (("--fp8", "--compile"), "products in fp8", "leave out --fp8"),
            (("--lora", "16", "--quant", "nf4"), "frozen weights in nf4", "plan without --quant"),
        ],
    )
    def test_plan_that_no_files_can_do_is_shown_and_not_written(
        self, tmp_path: Path, more: tuple[str, ...], part: str, instead: str
    ) -> None:
        where = tmp_path / "job"
        asked = ("--model", "Llama-3.1-8B", "--gpus", "8", "--gpu", "H100", *more)
        done = self.run(*asked, "--write", str(where))
        assert done.returncode == 1
        assert f"nothing is written to {where}: the files cannot do all of this plan: {part}; {instead}" in done.stderr
        assert done.stdout == self.run(*asked).stdout
        assert not where.exists()

    def test_nothing_fits(self) -> None:
        done = self.run(
            "--params",
            "7e11",
            "--layers",
            "160",
            "--hidden",
            "16384",
            "--heads",
            "128",
            "--gpu-memory",
            "16GB",
            "--host-memory",
            "64GB",
        )
        assert done.returncode == 1
        assert "Nothing fits" in done.stdout

    def test_reference_gpus_show_the_batch(self) -> None:
        arguments = ("--params", "1e9", "--gpus", "8", "--grad-accum", "4", "--reference-gpus", "4", "--lr", "1e-3")
        plain = msgspec.json.decode(self.run(*arguments, "--json").stdout)
        assert (plain["batch"]["batch"], plain["batch"]["reference_batch"]) == (32, 16)
        assert plain["inputs"]["train"]["grad_accum"] == 4
        kept = msgspec.json.decode(self.run(*arguments, "--keep-global-batch", "--json").stdout)
        assert kept["inputs"]["train"]["grad_accum"] == 2
        assert "another experiment" in self.run(*arguments).stdout

    def test_a_batch_without_a_division_is_divided_by_each_strategy(self) -> None:
        batch = ("--model", "bert-base", "--gpus", "8", "--gpu", "A100-40G", "--global-batch", "1024")
        plain = msgspec.json.decode(self.run(*batch, "--json").stdout)
        best, train = plain["candidates"][0], plain["inputs"]["train"]
        assert best["micro_batch"] * best["grad_accum"] * 8 == 1024
        assert best["micro_batch"] >= 8
        assert (train["micro_batch"], train["grad_accum"]) == (best["micro_batch"], best["grad_accum"])
        assert any(line.startswith(f"batch: {best['micro_batch']} per GPU") for line in plain["inputs"]["assumed"])
        assert all(each["why_not"] for each in plain["candidates"][1:])
        shown = self.run(*batch).stdout
        assert f"{best['micro_batch']} x {best['grad_accum']}" in shown
        assert "Why not another, compared with" in shown
        fixed = msgspec.json.decode(self.run(*batch, "--micro-batch", "1", "--json").stdout)
        assert {each["grad_accum"] for each in fixed["candidates"]} >= {128}
        assert {each["micro_batch"] for each in fixed["candidates"]} == {1}

    @pytest.mark.parametrize(("word", "option"), [("single.py", "--script"), ("Llama-3.1-8B", "--model")])
    def test_word_without_an_option_names_the_option(self, word: str, option: str) -> None:
        line = refused(self.run(word, "--gpus", "8"), 2)
        assert line.endswith(f"ddpwizard plan {option} {word} reads the model from it")

    def test_table_says_why_a_faster_strategy_is_below_and_what_times_are_compared_with(self) -> None:
        shown = self.run("--model", "Llama-3.1-8B", "--gpus", "8", "--gpu", "H100").stdout
        rows = [line for line in shown.splitlines() if line.startswith("  ✓ ") and "  " in line[4:]]
        below = next(number for number, row in enumerate(rows) if "TP 2" in row)
        assert any(row.endswith(" x") for row in rows[:below]), "a slower one is above"
        assert "they need a plan for your modules, and come after the others with the same sign" in shown
        best = shown.partition("Use ")[2].partition(":")[0]
        assert f"Why not another, compared with {best}:" in shown
        assert "times slower" not in shown

    def test_scaling_curve(self) -> None:
        arguments = ("--params", "1e9", "--gpus", "8", "--gpu", "H100", "--curve")
        plain = msgspec.json.decode(self.run(*arguments, "--json").stdout)
        assert [each["gpus"] for each in plain["curve"]] == [1, 2, 4, 8, 16, 32, 64]
        plot = self.run(*arguments, "--ascii").stdout
        assert "tokens/s" in plot
        assert "####" in plot
        assert "link between nodes: 360 GB/s, where the curve has several" in plot

    def test_one_strategy_of_the_table_is_written(self, tmp_path: Path) -> None:
        arguments = ("--params", "1e9", "--gpus", "16", "--nodes", "2", "--gpu", "H100", "--json")
        for name, expected, file in (
            ("fsdp2", {"FSDP2"}, "parallel.py"),
            ("FSDP2, no reshard", {"FSDP2 without resharding"}, "parallel.py"),
            ("zero3", {"ZeRO-3"}, "ds_config.json"),
        ):
            where = tmp_path / name
            document = msgspec.json.decode(self.run(*arguments, "--strategy", name, "--write", str(where)).stdout)
            assert {row["strategy"] for row in document["candidates"]} == expected
            assert (where / file).exists()

    @pytest.mark.parametrize(
        ("asked", "starts"),
        [
            ("--strategy ddp", {"torchrun": "train.py", "sbatch": "job.slurm", "accelerate": "accelerate.yaml"}),
            ("--strategy fsdp2 --compile", {"torchrun": "train.py", "sbatch": "job.slurm"}),  # not by Accelerate
            ("--strategy zero-3", {"torchrun": "train.py", "accelerate": "train_accelerate.py"}),
            ("--strategy fsdp2 --nodes 2", {"torchrun": "train.py", "kubectl": "pytorchjob.yaml"}),
        ],
    )
    def test_written_files_come_with_the_commands_that_start_them(
        self, tmp_path: Path, asked: str, starts: dict[str, str]
    ) -> None:
        """The lines run in a shell whose launchers show their directory and words instead of starting a job."""
        where, programs = tmp_path / "my job", tmp_path / "bin"
        programs.mkdir()
        for name in ("torchrun", "sbatch", "accelerate", "kubectl"):
            (programs / name).write_text('#!/bin/sh\necho "$(basename "$0") $(pwd) $*"\n')
            (programs / name).chmod(0o755)
        sizes = ("--params", "1e9", "--layers", "20", "--hidden", "2048", "--gpus", "8", "--gpu", "H100")
        done = self.run(*sizes, *asked.split(), "--write", str(where), "--json")
        written = msgspec.json.decode(done.stdout)["candidates"][0]["files"]
        assert sorted(written) == sorted(map(str, where.iterdir()))
        lines = dict(line.split(": ", 1) for line in done.stderr.splitlines() if ": " in line)
        commands = [line for name, line in lines.items() if name.startswith(("start", "with "))]
        ran = [subprocess.run(["sh", "-c", f"PATH={programs}:$PATH; {each}"], capture_output=True) for each in commands]
        shown = {each.stdout.decode().split()[0]: each.stdout.decode() for each in ran}
        assert ("accelerate" in shown) == ("--compile" not in asked)
        assert {"torchrun", "sbatch", "kubectl", *starts} <= shown.keys()
        for launcher, file in starts.items():
            assert (where / file).is_file()
            assert f"{launcher} {where} " in shown[launcher] and file in shown[launcher]
        assert ("first" in lines) == ("--nodes" in asked)
        assert lines["start"].startswith(f"sh '{where}'/launch.sh")

    @pytest.mark.parametrize(("given", "tokens"), [("4k", 4096), ("8,192", 8192), ("100", 100)])
    def test_sequence_length_with_units(self, given: str, tokens: int) -> None:
        done = self.run("--model", "gpt2-xl", "--gpus", "1", "--gpu", "H100", "--seq-len", given, "--json")
        assert msgspec.json.decode(done.stdout)["inputs"]["train"]["seq_len"] == tokens

    @pytest.mark.parametrize(("name", "text"), [("zero-4", "did you mean ZeRO-"), ("", "one of: "), ("x", "one of: ")])
    def test_unknown_strategy_is_refused(self, name: str, text: str) -> None:
        done = self.run("--params", "1e9", "--gpus", "8", "--gpu", "H100", "--strategy", name)
        assert (done.returncode, done.stdout) == (2, "")
        assert text in done.stderr and done.stderr.count("\n") == 1

    @pytest.mark.parametrize(
        "wrong", [["--lr", "1e-3"], ["--keep-global-batch"], ["--reference-gpus", "0"], ["--gpus", "1" + "0" * 30]]
    )
    def test_invalid_reference_run_is_refused_in_one_line(self, wrong: list[str]) -> None:
        done = self.run("--params", "1e9", *(["--gpus", "1"] if "--gpus" not in wrong else []), *wrong)
        assert (done.returncode, done.stdout) == (2, "")
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize(
        "wrong",
        [
            ["--params", "-3"],
            [],
            ["--params", "7e9", "--gpu-memory", "lots"],
            ["--config", "/no"],
            ["--seq-len", "4kk"],
        ],
    )
    def test_invalid_options_are_refused_in_one_line(self, wrong: list[str]) -> None:
        done = self.run(*wrong)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
