"""The command from its options to the setting that is computed, in real runs of it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.plan import form_fields, plan_answer
from ddpwizard.app.plan.memory.model_states import model_states
from ddpwizard.app.plan.model import catalog
from ddpwizard.app.plan.request import PlanRequest, request_from_spec, resolve_request
from ddpwizard.app.plan.timing.compute import matmul_flops
from helpers.command import ddpwizard
from helpers.planned import plan_candidates

OPTIONS = {"gpus": 8, "gpu": "H100", "script": "train.py"}


def asked(**given: Any) -> PlanRequest:
    return resolve_request(OPTIONS | given, build_nothing, detect_nothing)


def build_nothing(*_: object) -> Any:
    raise AssertionError("no model is built here")


def detect_nothing() -> Any:
    raise AssertionError("this machine is not probed")


def run(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return ddpwizard("plan", *arguments, cwd=cwd)


class TestSettings:
    def test_known_model_name(self) -> None:
        found = asked(model="meta-llama/Llama-3.2-1B", seq_len=4096)
        assert (found.setting.model.params, found.setting.train.seq_len) == (1_235_814_400, 4096)
        assert not found.source.factory
        assert json.loads(found.source.config)["hidden_size"] == 2048

    def test_given_sizes_replace_those_of_the_model(self) -> None:
        assert asked(model="gpt2", vocab=1000, params=1e9).setting.model.vocab == 1000

    @pytest.mark.parametrize(
        ("given", "length", "message"),
        [
            ({"model": "gpt2"}, 1024, "seq_len: 1024, all positions that the model has"),
            (
                {"model": "gpt2", "seq_len": 4096},
                4096,
                "seq_len: 4096 as given, though the model has 1024 positions",
            ),
            ({"model": "roberta-base", "seq_len": 513}, 513, "though the model has 512 positions"),
            ({"model": "bert-base"}, 512, "seq_len: 512"),
            ({"model": "Llama-2-7B"}, 2048, "seq_len: 2048"),
            ({"model": "vit-base", "seq_len": 4096}, 4096, "seq_len: 4096 as given, though the model has 197"),
        ],
    )
    def test_default_length_is_limited_to_the_positions(self, given: dict[str, Any], length: int, message: str) -> None:
        found = asked(**given)
        assert found.setting.train.seq_len == length
        assert [message in line for line in found.assumed].count(True) == 1

    @pytest.mark.parametrize(
        ("given", "option"),
        [
            ({"inter_gbps": 90.0}, "--inter-gbps"),
            ({"gpus": 1, "intra_gbps": 90.0}, "--intra-gbps"),
            ({"optimizer": "sgd", "optimizer_impl": "fused"}, "--optimizer-impl"),
            ({"images": 4}, "--images"),
            ({"target_len": 64}, "--target-len"),
        ],
    )
    def test_option_without_effect_is_noted(self, given: dict[str, Any], option: str) -> None:
        notes = [line for line in asked(model="gpt2", **given).assumed if "has no effect" in line]
        assert [option in line for line in notes] == [True]

    def test_several_kinds_of_checkpointing_are_compared_by_default(self) -> None:
        found = asked(model="gpt2")
        assert found.recompute is None
        assert not any("act_ckpt" in line for line in found.assumed)
        rows = plan_candidates(found.setting, found.links, recompute=found.recompute)
        assert {"none", "full"} <= {row.candidate.recompute for row in rows}

    @pytest.mark.parametrize("kind", ["none", "full", "selective-op", "selective-layer"])
    def test_given_checkpointing_is_the_only_one(self, kind: str) -> None:
        found = asked(model="gpt2", act_ckpt=kind)
        rows = plan_candidates(found.setting, found.links, recompute=found.recompute)
        assert {row.candidate.recompute for row in rows} == {kind}

    def test_checkpointing_of_a_specification(self) -> None:
        text = {"model": {"params": 1e9}, "train": {"act_ckpt": "full"}, "gpus": 8, "gpu": "H100"}
        assert request_from_spec(json.dumps(text).encode(), {}).recompute == "full"
        alone = text | {"strategy": {"kind": "ddp"}}
        assert request_from_spec(json.dumps(alone).encode(), {}).setting.train.act_ckpt == "full"

    def test_picture_has_its_own_length(self) -> None:
        found = asked(model="vit-large")
        assert found.setting.train.seq_len == 197
        assert not any(line.startswith("vocab") for line in found.assumed)
        assert asked(model="bert-base").setting.train.seq_len == 512

    def test_experts_cost_memory_but_little_time(self) -> None:
        sparse, dense = (asked(model=name).setting for name in ("Qwen3-30B-A3B", "Qwen3-32B"))
        assert matmul_flops(sparse) < matmul_flops(dense) / 8
        assert model_states(sparse).total == pytest.approx(model_states(dense).total, rel=0.1)


# Models of each kind with GPUs of each generation; a model as four numbers is --params and the like.
MODELS = (
    *(
        "bert-base-uncased",
        "roberta-large",
        "gpt2",
        "gpt2-xl",
        "Llama-3.1-8B",
        "Qwen2.5-7B",
        "Mixtral-8x7B",
        "vit-base",
    ),
    *("t5-large", "flan-t5-xl", "Gemma-2-9B", "DeepSeek-V3", "7b 32 4096 32000"),
)
GPUS = ("H100", "A100-80G", "V100-32G", "T4", "RTX4090", "MI300X")
NO_MACHINE = form_fields.FormMachine()


def from_form(**values: str) -> PlanRequest:
    fields = form_fields.initial_values(NO_MACHINE, Path("nowhere")) | values
    return form_fields.request_from_form(fields, NO_MACHINE)


@pytest.mark.parametrize(
    ("name", "word"), [(name, word) for name in form_fields.ALL for word in form_fields.ALL[name].choices]
)
def test_each_word_of_a_field_is_planned(name: str, word: str) -> None:
    """The words of the form's table are those of the training options."""
    train = from_form(lora="16", **{name: word}).setting.train
    meant = {form_fields.ANY: None, form_fields.SIXTEEN_BIT: None, "yes": True, form_fields.NO: False}.get(word, word)
    found = getattr(train, name, None) if name != "lora_target" else train.lora and train.lora.target
    assert found == meant or (name == "act_ckpt" and meant is None)


def from_command_line(arguments: list[str]) -> PlanRequest:
    from ddpwizard.app.commands.plan import command

    return asked(**command.make_context("plan", arguments).params)


def from_spec(found: PlanRequest, train: dict[str, Any]) -> PlanRequest:
    """Read the same request from a specification that names the model by its sizes."""
    setting = found.setting
    text = {"model": msgspec.to_builtins(found.source.model), "train": train, "gpus": setting.gpus, "gpu": setting.gpu}
    return request_from_spec(json.dumps(text).encode(), {})


class TestReaders:
    """The form, the command line and a specification give the same request for the same input."""

    @staticmethod
    def assert_same(found: PlanRequest, other: PlanRequest) -> None:
        assert other.setting == found.setting
        assert (other.links, other.recompute, other.host_bytes) == (found.links, found.recompute, found.host_bytes)
        assert (other.per_node, other.more_gpus, other.scaled_links) == (
            found.per_node,
            found.more_gpus,
            found.scaled_links,
        )

    @staticmethod
    def model_options(model: str) -> list[str]:
        sizes = model.split()
        if len(sizes) == 1:
            return ["--model", model]
        return [
            word for pair in zip(("--params", "--layers", "--hidden", "--vocab"), sizes, strict=True) for word in pair
        ]

    @pytest.mark.parametrize("gpu", GPUS)
    @pytest.mark.parametrize("model", MODELS)
    def test_defaults_agree(self, model: str, gpu: str) -> None:
        found = from_command_line([*self.model_options(model), "--gpus", "8", "--gpu", gpu])
        self.assert_same(found, from_form(model=model, gpu=gpu))
        self.assert_same(found, from_spec(found, {}))
        assert from_form(model=model, gpu=gpu).assumed == found.assumed

    @pytest.mark.parametrize(
        ("values", "arguments", "train"),
        [
            (
                {"seq_len": "4k", "micro_batch": "2"},
                ["--seq-len", "4096", "--micro-batch", "2"],
                {"seq_len": 4096, "micro_batch": 2},
            ),
            ({"optimizer": "sgd"}, ["--optimizer", "sgd"], {"optimizer": "sgd"}),
            ({"dtype": "bf16-pure"}, ["--dtype", "bf16-pure"], {"dtype": "bf16-pure"}),
            (
                {"act_ckpt": "full", "compile": "yes"},
                ["--act-ckpt", "full", "--compile"],
                {"act_ckpt": "full", "compile": True},
            ),
            ({"lora": "16"}, ["--lora", "16"], {"lora": {"r": 16}}),
            (
                {"lora": "8", "lora_target": "all-linear", "quant": "nf4"},
                ["--lora", "8", "--lora-target", "all-linear", "--quant", "nf4"],
                {"lora": {"r": 8, "target": "all-linear"}, "quant": "nf4"},
            ),
            (
                {"loss": "chunked", "attention": "eager"},
                ["--loss", "chunked", "--attention", "eager"],
                {"loss": "chunked", "attention": "eager"},
            ),
        ],
    )
    def test_given_values_agree(self, values: dict[str, str], arguments: list[str], train: dict[str, Any]) -> None:
        found = from_command_line(["--model", "Llama-3.1-8B", "--gpus", "16", "--gpu", "A100-80G", *arguments])
        self.assert_same(found, from_form(gpus="16", gpu="A100-80G", **values))
        self.assert_same(found, from_spec(found, train))

    def test_machines_agree(self) -> None:
        found = from_command_line(["--model", "gpt2", "--machine", "p4d.24xlarge", "--nodes", "2"])
        self.assert_same(found, from_form(model="gpt2", gpu="p4d.24xlarge", gpus="16", nodes="2"))
        given = ["--gpus", "4", "--gpu", "H100", "--gpu-memory", "40GB", "--host-memory", "1TB", "--inter-gbps", "50"]
        found = from_command_line(["--model", "gpt2", *given])
        sizes = {"gpu_memory": "40GB", "host_memory": "1TB", "inter_gbps": "50"}
        self.assert_same(found, from_form(model="gpt2", gpus="4", gpu="H100", **sizes))

    @pytest.mark.parametrize(
        "model", ["bert-base-uncased", "t5-large", "gpt2", "Llama-3.1-8B", "Mixtral-8x7B", "vit-base"]
    )
    def test_candidates_agree(self, model: str) -> None:
        found = from_command_line(["--model", model, "--gpus", "8", "--gpu", "V100-32G"])
        rows = plan_candidates(found.setting, found.links, found.host_bytes, found.recompute, found.nvme_bytes)
        for other in (from_form(model=model, gpu="V100-32G"), from_spec(found, {})):
            assert plan_answer.explain_rows(plan_answer.make_answer(other)) == rows

    @pytest.mark.parametrize(
        ("model", "gpu", "seq_len", "dtype", "attention"),
        [
            ("bert-base-uncased", "H100", 512, "bf16-mixed", "flash"),
            ("t5-large", "A100-80G", 512, "bf16-mixed", "eager"),
            ("gpt2", "H100", 1024, "bf16-mixed", "flash"),
            ("Llama-3.1-8B", "V100-32G", 2048, "fp16-mixed", "flash"),
        ],
    )
    def test_defaults_fit_the_model_and_the_gpu(
        self, model: str, gpu: str, seq_len: int, dtype: str, attention: str
    ) -> None:
        found = from_command_line(["--model", model, "--gpus", "8", "--gpu", gpu])
        for each in (found, from_form(model=model, gpu=gpu), from_spec(found, {})):
            train = each.setting.train
            assert (train.seq_len, train.dtype, train.attention) == (seq_len, dtype, attention)
        shown = form_fields.placeholders(found)
        assert (shown["seq_len"], shown["dtype"], shown["attention"]) == (str(seq_len), dtype, attention)

    @pytest.mark.parametrize(("strategy", "seq_len"), [(None, 512), ({"kind": "ddp"}, 64)])
    def test_specification_with_a_strategy_keeps_the_length_of_measurements(
        self, strategy: dict[str, str] | None, seq_len: int
    ) -> None:
        model = {"params": 7.4e8, "layers": 48, "hidden": 1024, "heads": 16, "kind": "encoder-decoder"}
        text = {"model": model, "train": {}, "strategy": strategy, "gpus": 8, "gpu": "H100"}
        assert request_from_spec(json.dumps(text).encode(), {}).setting.train.seq_len == seq_len

    @pytest.mark.parametrize(
        ("train", "micro_batch", "grad_accum", "is_open"),
        [
            ({"global_batch": 64}, 1, 8, True),
            ({"global_batch": 64, "micro_batch": 4}, 4, 2, False),
            ({"micro_batch": 4}, 4, 1, False),
        ],
    )
    def test_specification_with_the_batch_of_a_step(
        self, train: dict[str, int], micro_batch: int, grad_accum: int, is_open: bool
    ) -> None:
        text = {"model": {"params": 1e9}, "train": train, "gpus": 8, "gpu": "H100"}
        found = request_from_spec(json.dumps(text).encode(), {})
        whole = found.setting.train
        assert (whole.micro_batch, whole.grad_accum, found.chooses_micro_batch) == (micro_batch, grad_accum, is_open)
        assert not any("no key" in line for line in found.assumed)

    @pytest.mark.parametrize("batch", ["64", True, 6.5, 60])
    def test_batch_of_a_step_that_makes_no_sense(self, batch: object) -> None:
        text = {"model": {"params": 1e9}, "train": {"global_batch": batch}, "gpus": 8, "gpu": "H100"}
        with pytest.raises(UserError, match="batch"):
            request_from_spec(json.dumps(text).encode(), {})

    def test_specification_without_nodes_has_as_many_as_its_gpus_need(self) -> None:
        text = {"model": {"params": 1e9}, "train": {}, "gpus": 16, "gpu": "H100"}
        found = request_from_spec(json.dumps(text).encode(), {})
        assert found.setting.nodes == 2
        assert "nodes: 2, 8 GPUs each" in found.assumed
        assert request_from_spec(json.dumps(text | {"nodes": 1}).encode(), {}).setting.nodes == 1


class TestSources:
    def test_a_checkpoint_of_transformers_by_its_directory(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(json.dumps(catalog.CONFIGS["gpt2"]))
        found = asked(model=str(tmp_path))
        assert found.setting.model.params == 124_439_808
        assert found.source.config == str(tmp_path / "config.json") or found.source.config == str(tmp_path)

    def test_script_names_the_model_if_nothing_else_does(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text('model = AutoModel.from_pretrained("gpt2-medium")')
        found = asked(script=str(tmp_path / "train.py"))
        assert found.setting.model.params == 354_823_168
        assert found.assumed[0].startswith("model: gpt2-medium, as ")
        assert found.assumed[0].endswith("train.py:1 loads it")

    @pytest.mark.slow
    def test_a_script_that_builds_its_model(self, tmp_path: Path) -> None:
        (tmp_path / "net.py").write_text("from torch import nn\ndef net(n): return nn.Linear(n, n, bias=False)")
        (tmp_path / "train.py").write_text("from net import net\nmodel = net(1000).cuda()\nmodel(open('never'))")
        done = run("--gpus", "2", "--gpu", "H100", "--json", cwd=tmp_path)
        assert json.loads(done.stdout)["inputs"]["model"]["params"] == 1e6
        assert f"importing net in {tmp_path} with" in done.stderr
        assert "as train.py:2 does" in done.stderr


# Arguments, and what the one line message.
REFUSED = [
    ((), "which model?"),
    (("--script", "gone.py"), "gone.py: no such script"),
    (("--model", "abacus-9000"), "model abacus-9000: not known"),
    (("--model", ""), "model is empty: not known"),
    (("--model", "pipe.py"), "pipe.py is Python"),
    (("--model", "pipe"), "pipe is not a regular file"),
    (("--config", "pipe"), "pipe is not a regular file"),
    (("--checkpoint", "pipe"), "pipe is not a regular file"),
    (("--machine-snapshot", "pipe", "--model", "gpt2"), "pipe is not a regular file"),
    (("--script", "pipe"), "pipe is not a regular file"),
    (("--config", "."), "cannot read config.json"),
    (("--config", "large.json"), "too many"),
    (("--model", "gpt2", "--config", "."), "which model?"),
    (("--model", "gpt2", "--layers", "-3"), "model.layers is -3"),
    (("--model", "gpt2", "--heads", "7"), "is no multiple of heads (7)"),
    (("--model", "gpt2", "--lora", "-1"), "--lora is -1"),
    (("--model", "gpt2", "--seq-len", "0"), "train.seq_len is 0"),
    (("--model", "gpt2", "--reference-gpus", "1", "--keep-global-batch", "--global-batch", "8"), "which batch?"),
    (("--params", "many"), "--params is many"),
    (("--params", "-7B"), "model.params is -7e+09"),
    (("--model", "gpt2", "--machine", "box"), "machine box: not known"),
    (("--spec", "setting.json", "--optimizer", "sgd"), "--optimizer cannot be combined with --spec"),
    (("--spec", "setting.json", "--machine", "dgx-h100"), "--machine cannot be combined with --spec"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[" ".join(each[0]) or "nothing" for each in REFUSED])
def test_invalid_options_are_refused_in_one_line(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from ddpwizard.cli import main

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipe.py").write_text("")
    (tmp_path / "large.json").write_text(json.dumps({"x": "y" * 10_000_000}))
    (tmp_path / "setting.json").write_text('{"model": {"params": 1e9}, "train": {}, "gpus": 1}')
    monkeypatch.chdir(tmp_path)
    given = [*arguments] if "--spec" in arguments or "--machine" in arguments else [*arguments, "--gpus", "1"]
    with pytest.raises(SystemExit) as end:
        sys.exit(main(["plan", *given]))
    assert end.value.code == 2
    notes = capfd.readouterr().err
    assert message in notes
    assert notes.count("\n") == 1
    assert len(notes) < 700


def test_defaults_without_bf16_units() -> None:
    found = asked(model="t5-large", gpus=8, gpu="V100-32G")
    assert (found.setting.train.seq_len, found.setting.train.dtype) == (512, "fp16-mixed")
    assert "dtype: fp16, as V100-32G has no units for bf16" in found.assumed
    assert any("slower" in line for line in asked(model="gpt2", gpu="T4", dtype="bf16-mixed").assumed)


def test_adapters_without_a_shape_are_noted() -> None:
    found = asked(params=7e9, lora=16, gpus=4, gpu="A100-80G")
    rows = plan_candidates(found.setting, found.links)
    assert {row.candidate.fits for row in rows} == {None}
    assert any(line.startswith("adapters: not counted") for line in found.assumed)
