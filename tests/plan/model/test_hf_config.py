"""Models from Hugging Face configs; ``test_catalog`` compares well-known ones with published counts."""

import json
from pathlib import Path
from typing import Any

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.plan.model import catalog
from ddpwizard.app.plan.model.hf_config import model_from_config, read_config

LLAMA = catalog.CONFIGS["Llama-2-7B"]
LLAMA_PARAMS = 6_738_415_616


@pytest.mark.parametrize("name", catalog.CONFIGS)
def test_published_configs_need_no_assumptions(name: str) -> None:
    assert model_from_config(catalog.CONFIGS[name])[1] == []


def test_unknown_family_is_noted() -> None:
    model, assumed = model_from_config(LLAMA | {"model_type": "brand_new"})
    assert model.params == LLAMA_PARAMS
    assert len(assumed) == 1
    assert assumed[0].startswith("model_type brand_new: counted as a Llama-like decoder, which may be inaccurate")


def test_unknown_fields_are_noted() -> None:
    config = LLAMA | {"frobnicate": 3, "memory_layers": [1], "unused": None, "off": False}
    assert model_from_config(config)[1] == ["frobnicate, memory_layers: unknown fields of the config, ignored"]


GLM = {"hidden_size": 4096, "intermediate_size": 10944, "num_hidden_layers": 46, "num_attention_heads": 96}
GLM |= {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151552, "attention_bias": True}
GLM |= {"model_type": "glm4_moe", "tie_word_embeddings": False, "num_experts_per_tok": 8}
GLM |= {"n_routed_experts": 128, "n_shared_experts": 1, "moe_intermediate_size": 1408, "first_k_dense_replace": 1}
ERNIE = {"hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 28, "num_attention_heads": 20}
ERNIE |= {"num_key_value_heads": 4, "vocab_size": 103424, "tie_word_embeddings": True, "model_type": "ernie4_5_moe"}
ERNIE |= {"moe_num_experts": 64, "moe_k": 6, "moe_intermediate_size": 1536, "moe_num_shared_experts": 2}
ERNIE |= {"moe_layer_start_index": 1}
KIMI = catalog.CONFIGS["DeepSeek-V3"] | {"n_routed_experts": 384, "num_attention_heads": 64, "num_key_value_heads": 64}
KIMI |= {"vocab_size": 163840, "first_k_dense_replace": 1, "model_type": "kimi_k2"}


@pytest.mark.parametrize(
    ("config", "params", "active"),
    [(GLM, 106.9e9, 12e9), (ERNIE, 21.9e9, 3e9), (KIMI, 1.03e12, 32e9)],
    ids=["glm-4.5-air", "ernie-4.5-21b-a3b", "kimi-k2"],
)
def test_experts_of_an_unknown_family_are_counted(config: dict[str, Any], params: float, active: float) -> None:
    """Sizes as the makers' model cards have them."""
    model, notes = model_from_config(config)
    assert model.params == pytest.approx(params, rel=0.01)
    assert model.active_params == pytest.approx(active, rel=0.15)
    assert len(notes) == 1 and "counted as" in notes[0]


def test_known_class_gives_the_family() -> None:
    of_class = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "other"}
    model, notes = model_from_config(catalog.CONFIGS["DeepSeek-V3"] | of_class)
    assert model.params == catalog.MODELS["deepseek-v3"].params
    assert notes == ["model_type other: counted as deepseek_v3, which is similar"]


def test_unknown_non_decoder_is_refused() -> None:
    with pytest.raises(UserError, match="model_type whisper is not known, and the config has no") as refusal:
        model_from_config(
            {"model_type": "whisper", "d_model": 768, "encoder_layers": 12, "encoder_attention_heads": 12}
        )
    assert "--params" in (refusal.value.next_step or "")


def test_a_config_without_a_model_type_is_refused_by_that_name() -> None:
    with pytest.raises(UserError, match=r"^no model_type is given, and the config has no num_attention_heads"):
        model_from_config({"hidden_size": 64})


def test_quantised_weights_are_noted() -> None:
    quantised = LLAMA | {"quantization_config": {"quant_method": "bitsandbytes"}}
    model, notes = model_from_config(quantised)
    assert model.params == LLAMA_PARAMS
    assert notes[0].startswith("quantization_config: ignored")


def test_grouped_queries_and_wide_heads() -> None:
    model, _ = model_from_config(catalog.CONFIGS["Qwen3-0.6B"])
    assert (model.heads, model.kv_heads, model.head_dim) == (16, 8, 128)
    assert model_from_config(LLAMA)[0].head_dim is None


def test_experts_of_known_families() -> None:
    model, _ = model_from_config(catalog.CONFIGS["Mixtral-8x7B"])
    assert (model.experts, model.experts_per_token, model.active_params) == (8, 2, 12_879_925_248)
    assert model.intermediate == 2 * 14336  # what a token passes through


@pytest.mark.parametrize(("name", "kind"), [("bert-base", "encoder"), ("t5-3b", "encoder-decoder")])
def test_kind_of_model(name: str, kind: str) -> None:
    assert model_from_config(catalog.CONFIGS[name])[0].kind == kind


def test_vision_model_has_as_many_tokens_as_patches() -> None:
    model, _ = model_from_config(catalog.CONFIGS["vit-base"])
    assert (model.kind, model.positions, model.vocab) == ("vision", 197, None)


# As published: what is as in its class is left out of a part of a config.
LLAVA = {
    "model_type": "llava",
    "text_config": {"model_type": "llama", "vocab_size": 32064, "rms_norm_eps": 1e-05},
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 1024,
        "image_size": 336,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "patch_size": 14,
        "projection_dim": 768,
        "vocab_size": 32000,
    },
}


def test_vision_language_model() -> None:
    model, notes = model_from_config(LLAVA)
    assert model.params == pytest.approx(7_063_427_072, rel=0.003)  # with the projector, which is not counted
    assert (model.layers, model.hidden, model.vocab, model.kind) == (32, 4096, 32064, "decoder")
    assert notes[0].startswith("vision tower: 304 M parameters; an image has 577 patches")
    assert "hidden_size 4096" in notes[1]


def test_unknown_vision_tower_is_noted() -> None:
    model, notes = model_from_config(LLAVA | {"vision_config": {"model_type": "eagle_eye"}})
    assert model.params == pytest.approx(6_738_939_904)
    assert notes[0] == "vision_config (eagle_eye): not known, so it is not counted"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_key_value_heads": 5}, "not a multiple of num_key_value_heads 5"),
        ({"hidden_size": -1}, "hidden_size is -1"),
        ({"hidden_size": "big"}, "hidden_size is 'big'"),
        ({"num_attention_heads": 33}, "not a multiple"),
        ({"num_hidden_layers": None}, "no num_hidden_layers"),
        ({"hidden_size": 1e30}, "hidden_size is 1e+30"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"num_key_value_heads": float("nan")}, "num_key_value_heads is nan"),
        ({"vocab_size": float("inf")}, "vocab_size is inf"),
        ({"num_experts_per_tok": "many"}, "num_experts_per_tok is 'many'"),
        ({"intermediate_size": ["x" * 10**6]}, "intermediate_size is ['xxx"),
    ],
)
def test_invalid_fields_are_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refusal:
        model_from_config(LLAMA | change)
    assert message in refusal.value.message
    assert len(refusal.value.message) < 200


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b"{}",
        b'{"text_config": [1]}',
        b'{"text_config":' * 900 + b"1" + b"}" * 900,
        b'{"a":' * 100_000,
    ],
)
def test_file_that_is_not_a_config_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(UserError):
        read_config(tmp_path)


def test_oversized_config_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"x": "y" * 10_000_000}))
    with pytest.raises(UserError, match="too many"):
        read_config(tmp_path / "config.json")


def test_directory_with_a_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(catalog.CONFIGS["gpt2"]))
    assert read_config(tmp_path)[0].layers == 12
