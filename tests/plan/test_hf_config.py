"""Parameters counted from a Hugging Face config, against the counts the authors publish with the weights."""

import json
from pathlib import Path
from typing import Any

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.plan.model.hf_config import model_of, read


def decoder(
    family: str, hidden: int, inner: int, layers: int, heads: int, keys: int, vocab: int, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": family,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "vocab_size": vocab,
        "tie_word_embeddings": False,
    } | more


PUBLISHED = {
    "Llama-2-7B": (decoder("llama", 4096, 11008, 32, 32, 32, 32000), 6_738_415_616),
    "Llama-3.1-8B": (decoder("llama", 4096, 14336, 32, 32, 8, 128256), 8_030_261_248),
    "Mistral-7B": (decoder("mistral", 4096, 14336, 32, 32, 8, 32000), 7_241_732_096),
    "Mixtral-8x7B": (
        decoder("mixtral", 4096, 14336, 32, 32, 8, 32000, num_local_experts=8, num_experts_per_tok=2),
        46_702_792_704,
    ),
    "Qwen2.5-7B": (decoder("qwen2", 3584, 18944, 28, 28, 4, 152064), 7_615_616_512),
    "Qwen3-8B": (decoder("qwen3", 4096, 12288, 36, 32, 8, 151936, head_dim=128), 8_190_735_360),
    "gpt2": (
        {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024},
        124_439_808,
    ),
    "bert-base-uncased": (
        {
            "model_type": "bert",
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "vocab_size": 30522,
            "max_position_embeddings": 512,
            "type_vocab_size": 2,
        },
        109_482_240,
    ),
    "t5-3b": (
        {
            "model_type": "t5",
            "d_model": 1024,
            "d_ff": 16384,
            "d_kv": 128,
            "num_heads": 32,
            "num_layers": 24,
            "vocab_size": 32128,
        },
        2_851_598_336,
    ),
    "vit-base-patch16-224-in21k": (
        {
            "model_type": "vit",
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "patch_size": 16,
            "image_size": 224,
        },
        86_389_248,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_count_is_exact(name: str) -> None:
    config, published = PUBLISHED[name]
    model, assumed = model_of(config)
    assert model.params == published
    assert assumed == []


def test_an_unknown_family_is_told() -> None:
    model, assumed = model_of(decoder("brand_new", 4096, 11008, 32, 32, 32, 32000))
    assert model.params == 6_738_415_616
    assert assumed == ["model_type brand_new: counted as a Llama-like decoder"]


def test_a_field_that_nothing_is_made_of_is_told() -> None:
    config = decoder("llama", 4096, 11008, 32, 32, 32, 32000, frobnicate=3, memory_layers=[1], unused=None, off=False)
    assert model_of(config)[1] == ["nothing of frobnicate, memory_layers: no known field of a config"]


def test_weights_that_are_quantised_are_told() -> None:
    quantised = decoder("llama", 4096, 11008, 32, 32, 32, 32000, quantization_config={"quant_method": "bitsandbytes"})
    model, told = model_of(quantised)
    assert model.params == 6_738_415_616
    assert told[0].startswith("quantization_config: left aside")


def test_grouped_queries_and_wide_heads() -> None:
    model, _ = model_of(decoder("qwen3", 1024, 3072, 28, 16, 8, 151936, head_dim=128))
    assert (model.heads, model.kv_heads, model.head_dim) == (16, 8, 128)
    assert model_of(decoder("llama", 4096, 11008, 32, 32, 32, 32000))[0].head_dim is None


def test_experts() -> None:
    config = decoder("mixtral", 4096, 14336, 32, 32, 8, 32000, num_local_experts=8, num_experts_per_tok=2)
    model, _ = model_of(config)
    assert (model.experts, model.experts_per_token, model.active_params) == (8, 2, 12_879_925_248)
    assert model.intermediate == 2 * 14336  # what a token passes through


@pytest.mark.parametrize(("name", "kind"), [("bert-base-uncased", "encoder"), ("t5-3b", "encoder-decoder")])
def test_kinds(name: str, kind: str) -> None:
    assert model_of(PUBLISHED[name][0])[0].kind == kind


def test_a_picture_is_as_long_as_its_patches() -> None:
    model, _ = model_of(PUBLISHED["vit-base-patch16-224-in21k"][0])
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


def test_text_and_pictures() -> None:
    model, told = model_of(LLAVA)
    assert model.params == pytest.approx(7_063_427_072, rel=0.003)  # with the projector, which is not counted
    assert (model.layers, model.hidden, model.vocab, model.kind) == (32, 4096, 32064, "decoder")
    assert told[0].startswith("vision tower: 304 M parameters, counted")
    assert "hidden_size 4096" in told[1]


def test_a_vision_tower_that_is_not_known_is_told() -> None:
    model, told = model_of(LLAVA | {"vision_config": {"model_type": "eagle_eye"}})
    assert model.params == pytest.approx(6_738_939_904)
    assert told[0] == "vision_config (eagle_eye): not known, so its parameters are not counted"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_key_value_heads": 5}, "no multiple of num_key_value_heads 5"),
        ({"hidden_size": -1}, "hidden_size is -1"),
        ({"hidden_size": "big"}, "hidden_size is 'big'"),
        ({"num_attention_heads": 33}, "no multiple"),
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
def test_nonsense_is_refused_in_one_line(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as refusal:
        model_of(decoder("llama", 4096, 11008, 32, 32, 32, 32000) | change)
    assert says in refusal.value.message
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
def test_a_file_that_is_no_config(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(UserError):
        read(tmp_path)


def test_a_config_of_ten_megabytes(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"x": "y" * 10_000_000}))
    with pytest.raises(UserError, match="too many"):
        read(tmp_path / "config.json")


def test_a_directory_with_a_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED["gpt2"][0]))
    assert read(tmp_path)[0].layers == 12
