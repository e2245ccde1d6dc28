"""The command from its options to the setting that is computed, in real runs of it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ddpwizard.app.plan.memory.model_states import model_states
from ddpwizard.app.plan.model import catalog
from ddpwizard.app.plan.request import PlanRequest, request_from_options, request_from_spec
from ddpwizard.app.plan.strategies.search import plan_candidates
from ddpwizard.app.plan.timing.compute import matmul_flops

OPTIONS = {"gpus": 8, "gpu": "H100", "script": "train.py"}


def asked(**given: Any) -> PlanRequest:
    def no_child() -> str:
        raise AssertionError("nothing is built here")

    def no_look() -> Any:
        raise AssertionError("the box is not looked at")

    return request_from_options(OPTIONS | given, no_child, no_look, lambda line: None)


def run(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, "-m", "ddpwizard", "plan", *arguments]
    return subprocess.run(program, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


class TestSettings:
    def test_a_known_name(self) -> None:
        found = asked(model="meta-llama/Llama-3.2-1B", seq_len=4096)
        assert (found.setting.model.params, found.setting.train.seq_len) == (1_235_814_400, 4096)
        assert not found.factory
        assert json.loads(found.config)["hidden_size"] == 2048

    def test_sizes_that_are_given_take_the_place_of_those_found(self) -> None:
        assert asked(model="gpt2", vocab=1000, params=1e9).setting.model.vocab == 1000

    @pytest.mark.parametrize(
        ("given", "length", "says"),
        [
            ({"model": "gpt2"}, 1024, "seq_len: 1024, all positions that the model has"),
            (
                {"model": "gpt2", "seq_len": 4096},
                4096,
                "4096 tokens can be trained, though the model has 1024 positions",
            ),
            ({"model": "roberta-base", "seq_len": 513}, 513, "though the model has 512 positions"),
            ({"model": "bert-base"}, 512, "seq_len: 512"),
            ({"model": "Llama-2-7B"}, 2048, "seq_len: 2048"),
            ({"model": "vit-base", "seq_len": 4096}, 4096, "4096 tokens can be trained, though the model has 197"),
        ],
    )
    def test_no_more_tokens_than_positions_unless_that_is_said(
        self, given: dict[str, Any], length: int, says: str
    ) -> None:
        found = asked(**given)
        assert found.setting.train.seq_len == length
        assert [says in line for line in found.assumed].count(True) == 1

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
    def test_an_option_that_changes_nothing_is_told(self, given: dict[str, Any], option: str) -> None:
        told = [line for line in asked(model="gpt2", **given).assumed if "changes nothing" in line]
        assert [option in line for line in told] == [True]

    def test_without_a_word_several_kinds_of_checkpointing_are_tried(self) -> None:
        found = asked(model="gpt2")
        assert found.recompute is None
        assert not any("act_ckpt" in line for line in found.assumed)
        rows = plan_candidates(found.setting, found.links, recompute=found.recompute)
        assert {"none", "full"} <= {row.candidate.recompute for row in rows}

    @pytest.mark.parametrize("kind", ["none", "full", "selective-op", "selective-layer"])
    def test_one_that_is_said_is_the_only_one(self, kind: str) -> None:
        found = asked(model="gpt2", act_ckpt=kind)
        rows = plan_candidates(found.setting, found.links, recompute=found.recompute)
        assert {row.candidate.recompute for row in rows} == {kind}

    def test_and_in_a_specification(self) -> None:
        text = {"model": {"params": 1e9}, "train": {"act_ckpt": "full"}, "gpus": 8, "gpu": "H100"}
        assert request_from_spec(json.dumps(text).encode(), {}).recompute == "full"
        alone = text | {"strategy": {"kind": "ddp"}}
        assert request_from_spec(json.dumps(alone).encode(), {}).setting.train.act_ckpt == "full"

    def test_a_picture_has_its_own_length(self) -> None:
        found = asked(model="vit-large")
        assert found.setting.train.seq_len == 197
        assert not any(line.startswith("vocab") for line in found.assumed)
        assert asked(model="bert-base").setting.train.seq_len == 512

    def test_experts_cost_memory_but_little_time(self) -> None:
        sparse, dense = (asked(model=name).setting for name in ("Qwen3-30B-A3B", "Qwen3-32B"))
        assert matmul_flops(sparse) < matmul_flops(dense) / 8
        assert model_states(sparse).total == pytest.approx(model_states(dense).total, rel=0.1)


class TestSources:
    def test_a_checkpoint_of_transformers_by_its_directory(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(json.dumps(catalog.CONFIGS["gpt2"]))
        found = asked(model=str(tmp_path))
        assert found.setting.model.params == 124_439_808
        assert found.config == str(tmp_path / "config.json") or found.config == str(tmp_path)

    def test_the_script_here_is_asked_where_nothing_else_is(self, tmp_path: Path) -> None:
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


# Arguments, and what the one line says.
REFUSED = [
    ((), "which model?"),
    (("--script", "gone.py"), "gone.py: no such script"),
    (("--model", "abacus-9000"), "model abacus-9000: not known"),
    (("--model", ""), "model is empty: not known"),
    (("--model", "pipe.py"), "pipe.py is Python"),
    (("--model", "pipe"), "pipe is no regular file"),
    (("--config", "pipe"), "pipe is no regular file"),
    (("--checkpoint", "pipe"), "pipe is no regular file"),
    (("--box", "pipe", "--model", "gpt2"), "pipe is no regular file"),
    (("--script", "pipe"), "pipe is no regular file"),
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
    (("--spec", "setting.json", "--optimizer", "sgd"), "--optimizer beside --spec"),
    (("--spec", "setting.json", "--machine", "dgx-h100"), "--machine beside --spec"),
]


@pytest.mark.parametrize(("arguments", "says"), REFUSED, ids=[" ".join(each[0]) or "nothing" for each in REFUSED])
def test_nonsense_gets_one_line(
    arguments: tuple[str, ...],
    says: str,
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
    told = capfd.readouterr().err
    assert says in told
    assert told.count("\n") == 1
    assert len(told) < 700


def test_what_a_person_means_who_says_nothing_of_it() -> None:
    found = asked(model="t5-large", gpus=8, gpu="V100-32G")
    assert (found.setting.train.seq_len, found.setting.train.dtype) == (512, "fp16-mixed")
    assert "dtype: fp16, as V100-32G has no units for bf16" in found.assumed
    assert any("slower" in line for line in asked(model="gpt2", gpu="T4", dtype="bf16-mixed").assumed)


def test_adapters_without_a_shape_are_not_counted_and_that_is_told() -> None:
    found = asked(params=7e9, lora=16, gpus=4, gpu="A100-80G")
    rows = plan_candidates(found.setting, found.links)
    assert {row.candidate.fits for row in rows} == {None}
    assert any(line.startswith("adapters: not counted") for line in found.assumed)
