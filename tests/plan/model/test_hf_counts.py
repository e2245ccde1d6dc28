"""Parameters by family, against the modules that transformers itself builds, on the meta device."""

from typing import Any, NamedTuple

import pytest
from ddpwizard.app.plan.model.families import FAMILIES
from ddpwizard.app.plan.model.hf_config import model_from_config
from helpers.reference_figures import BOTH, figures, run_script

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
GQA = SMALL | {"num_key_value_heads": 2, "vocab_size": 1000}
EXPERTS = GQA | {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
WHOLE = {name: family for name, family in FAMILIES.items() if not family.is_part}
# Each family as its config class has it, and what changes its count.
CONFIGS: dict[str, dict[str, Any]] = {family: {"model_type": family} for family in WHOLE} | {
    "grouped heads": {"model_type": "llama", **GQA},
    "tied, with biases": {
        "model_type": "llama",
        **GQA,
        "tie_word_embeddings": True,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "wide heads": {"model_type": "qwen3", **GQA, "head_dim": 48},
    "sparse in part": {
        "model_type": "qwen3_moe",
        **EXPERTS,
        "num_experts": 5,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [1],
    },
    "shared experts": {
        "model_type": "qwen2_moe",
        **EXPERTS,
        "num_experts": 5,
        "shared_expert_intermediate_size": 48,
    },
    "queries at full rank": {"model_type": "deepseek_v3", "q_lora_rank": None, "first_k_dense_replace": 1, **GQA}
    | {"num_key_value_heads": 4, "n_routed_experts": 8, "moe_intermediate_size": 32, "n_group": 2, "topk_group": 1},
    "grouped falcon": {"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 8}
    | {"hidden_size": 1024, "num_attention_heads": 64},
    "falcon with biases": {"model_type": "falcon", "bias": True, "multi_query": False, "parallel_attn": False},
    "narrow embedding": {"model_type": "opt", "word_embed_proj_dim": 512, "hidden_size": 1024}
    | {"num_attention_heads": 16, "ffn_dim": 4096, "do_layer_norm_before": False},
    "gated T5": {"model_type": "t5", "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "few decoders": {"model_type": "t5", "num_decoder_layers": 2},
    "swiglu picture": {"model_type": "dinov2", "use_swiglu_ffn": True, "qkv_bias": False},
    "picture without biases": {"model_type": "vit", "qkv_bias": False, "image_size": 384},
    "no pooling": {"model_type": "siglip_vision_model", "vision_use_head": False},
    "parallel": {"model_type": "stablelm", "use_parallel_residual": True, "use_qkv_bias": True},
    "plain neox": {"model_type": "gpt_neox", "attention_bias": False, "tie_word_embeddings": True},
    "norms of keys": {"model_type": "cohere", "use_qk_norm": True, **GQA, "tie_word_embeddings": False},
}
BUILD = """
import json, logging, sys
logging.disable(logging.WARNING)
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM
configs, pairs, whole = json.load(sys.stdin)
built = {}
for name, given in configs.items():
    family = given["model_type"]
    kind = AutoModelForSeq2SeqLM if family in pairs else AutoModel if family in whole else AutoModelForCausalLM
    config = AutoConfig.for_model(**given)
    with torch.device("meta"):
        model = kind.from_config(config)
    saved, usual = (json.loads(config.to_json_string(use_diff=each)) for each in (True, False))
    classes = sorted({type(module).__name__ for module in model.modules()})
    params = sum(p.numel() for p in model.parameters())
    built[name] = {"params": params, "saved": saved, "usual": usual, "classes": classes}
json.dump(built, sys.stdout)
"""


class Reference(NamedTuple):
    """Reference from transformers: parameters, the saved config, the config with every default, the classes."""

    params: int
    saved: dict[str, Any]
    usual: dict[str, Any]
    classes: list[str]


Built = dict[str, Reference]


@pytest.fixture(scope="module", params=BOTH)
def built(request: pytest.FixtureRequest) -> Built:
    pairs, headless = (
        [name for name, family in WHOLE.items() if family.kind in kinds]
        for kinds in (["encoder-decoder"], ["encoder", "vision"])
    )
    found = figures("transformers_models", request.param, lambda: run_script(BUILD, [CONFIGS, pairs, headless]))
    return {name: Reference(**each) for name, each in found.items()}


def test_parameter_counts_match_transformers(built: Built) -> None:
    counted = {name: model_from_config(each.saved)[0].params for name, each in built.items()}
    assert counted == {name: each.params for name, each in built.items()}


def test_every_config_field_of_transformers_is_known(built: Built) -> None:
    notes = {name: model_from_config(each.usual)[1] for name, each in built.items()}
    assert notes == {name: [] for name in built}


@pytest.mark.calibration
@pytest.mark.slow
def test_defaults_match_transformers() -> None:
    from transformers import CONFIG_MAPPING

    for family, usual in ((name, each.defaults) for name, each in FAMILIES.items()):
        own = CONFIG_MAPPING[family]()
        assert usual == {field: getattr(own, field) for field in usual}, family


def test_block_classes_exist_in_transformers(built: Built) -> None:
    missing = {
        family: names
        for family, each in WHOLE.items()
        if not (names := set(each.block.split(","))) <= set(built[family].classes)
    }
    assert missing == {}


@pytest.mark.calibration
@pytest.mark.slow
def test_class_default_heads_match_transformers() -> None:
    from transformers import CONFIG_MAPPING

    for field in ("num_key_value_heads", "head_dim"):
        own = {family: getattr(CONFIG_MAPPING[family], field, None) for family in WHOLE}
        values = {family: number for family, each in WHOLE.items() if (number := getattr(each, field))}
        assert values == {family: number for family, number in own.items() if isinstance(number, int)}
