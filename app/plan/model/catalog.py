"""Well-known models by their published shapes: the ``config.json`` next to the weights of each on huggingface.co.

``hf_config`` counts their parameters; a test compares them with the counts published with the weights.
"""

import re
from functools import lru_cache
from typing import Any

from ...text.suggestions import closest as nearest
from ..types import Model
from .hf_config import model_from_config

Config = dict[str, Any]


def _decoder(
    family: str, hidden: int, inner: int, layers: int, heads: int, keys: int, vocab: int, **more: object
) -> Config:
    """Build a decoder's config; the output head is not tied to the embedding."""
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


def _gpt2(hidden: int, layers: int, heads: int) -> Config:
    return {"model_type": "gpt2", "n_embd": hidden, "n_layer": layers, "n_head": heads, "vocab_size": 50257} | {
        "n_positions": 1024
    }


def _encoder(family: str, hidden: int, layers: int, heads: int, **more: int) -> Config:
    return {
        "model_type": family,
        "hidden_size": hidden,
        "intermediate_size": 4 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    } | more


def _t5(hidden: int, inner: int, head: int, heads: int, layers: int) -> Config:
    return {"model_type": "t5", "d_model": hidden, "d_ff": inner, "d_kv": head, "num_heads": heads} | {
        "num_layers": layers,
        "vocab_size": 32128,
    }


TIED = {"tie_word_embeddings": True}
GATED_T5 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}  # T5 1.1, on which FLAN-T5 is based
BERT = {"vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2}
ROBERTA = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}
DEEPSEEK_V3 = (
    _decoder("deepseek_v3", 7168, 18432, 61, 128, 128, 129280)
    | {"moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8}
    | {"first_k_dense_replace": 3, "q_lora_rank": 1536, "kv_lora_rank": 512}
    | {"qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
)
QWEN = {
    "Qwen2.5-0.5B": _decoder("qwen2", 896, 4864, 24, 14, 2, 151936) | TIED,
    "Qwen2.5-1.5B": _decoder("qwen2", 1536, 8960, 28, 12, 2, 151936) | TIED,
    "Qwen2.5-3B": _decoder("qwen2", 2048, 11008, 36, 16, 2, 151936) | TIED,
    "Qwen2.5-7B": _decoder("qwen2", 3584, 18944, 28, 28, 4, 152064),
    "Qwen2.5-14B": _decoder("qwen2", 5120, 13824, 48, 40, 8, 152064),
    "Qwen2.5-32B": _decoder("qwen2", 5120, 27648, 64, 40, 8, 152064),
    "Qwen2.5-72B": _decoder("qwen2", 8192, 29568, 80, 64, 8, 152064),
}
QWEN_2 = ("Qwen2.5-0.5B", "Qwen2.5-1.5B", "Qwen2.5-7B", "Qwen2.5-72B")  # with the sizes of Qwen2
LLAMA_8B = _decoder("llama", 4096, 14336, 32, 32, 8, 128256)
LLAMA_70B = _decoder("llama", 8192, 28672, 80, 64, 8, 128256)
CONFIGS: dict[str, Config] = {
    "Llama-2-7B": _decoder("llama", 4096, 11008, 32, 32, 32, 32000),
    "Llama-2-13B": _decoder("llama", 5120, 13824, 40, 40, 40, 32000),
    "Llama-2-70B": _decoder("llama", 8192, 28672, 80, 64, 8, 32000),
    "Llama-3-8B": LLAMA_8B,
    "Llama-3-70B": LLAMA_70B,
    "Llama-3.1-8B": LLAMA_8B,
    "Llama-3.1-70B": LLAMA_70B,
    "Llama-3.1-405B": _decoder("llama", 16384, 53248, 126, 128, 8, 128256),
    "Llama-3.2-1B": _decoder("llama", 2048, 8192, 16, 32, 8, 128256) | TIED,
    "Llama-3.2-3B": _decoder("llama", 3072, 8192, 28, 24, 8, 128256) | TIED,
    "Llama-3.3-70B": LLAMA_70B,
    "Mistral-7B": _decoder("mistral", 4096, 14336, 32, 32, 8, 32000),
    "Mixtral-8x7B": _decoder("mixtral", 4096, 14336, 32, 32, 8, 32000, num_local_experts=8, num_experts_per_tok=2),
    "Mixtral-8x22B": _decoder("mixtral", 6144, 16384, 56, 48, 8, 32000, num_local_experts=8, num_experts_per_tok=2),
    **{name.replace("2.5", "2"): shape for name, shape in QWEN.items() if name in QWEN_2},
    **{name.replace("2.5", "2.5-Coder"): shape for name, shape in QWEN.items() if "72B" not in name},
    **QWEN,
    "Qwen3-0.6B": _decoder("qwen3", 1024, 3072, 28, 16, 8, 151936, head_dim=128) | TIED,
    "Qwen3-1.7B": _decoder("qwen3", 2048, 6144, 28, 16, 8, 151936, head_dim=128) | TIED,
    "Qwen3-4B": _decoder("qwen3", 2560, 9728, 36, 32, 8, 151936, head_dim=128) | TIED,
    "Qwen3-8B": _decoder("qwen3", 4096, 12288, 36, 32, 8, 151936, head_dim=128),
    "Qwen3-14B": _decoder("qwen3", 5120, 17408, 40, 40, 8, 151936, head_dim=128),
    "Qwen3-32B": _decoder("qwen3", 5120, 25600, 64, 64, 8, 151936, head_dim=128),
    "Qwen3-30B-A3B": _decoder("qwen3_moe", 2048, 6144, 48, 32, 4, 151936, head_dim=128)
    | {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
    "Qwen3-235B-A22B": _decoder("qwen3_moe", 4096, 12288, 94, 64, 4, 151936, head_dim=128)
    | {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1536},
    "Gemma-2B": _decoder("gemma", 2048, 16384, 18, 8, 1, 256000, head_dim=256) | TIED,
    "Gemma-7B": _decoder("gemma", 3072, 24576, 28, 16, 16, 256000, head_dim=256) | TIED,
    "Gemma-2-2B": _decoder("gemma2", 2304, 9216, 26, 8, 4, 256000, head_dim=256) | TIED,
    "Gemma-2-9B": _decoder("gemma2", 3584, 14336, 42, 16, 8, 256000, head_dim=256) | TIED,
    "Gemma-2-27B": _decoder("gemma2", 4608, 36864, 46, 32, 16, 256000, head_dim=128) | TIED,
    "Phi-3-mini": _decoder("phi3", 3072, 8192, 32, 32, 32, 32064),
    "Phi-3.5-mini": _decoder("phi3", 3072, 8192, 32, 32, 32, 32064),
    "Phi-3-medium": _decoder("phi3", 5120, 17920, 40, 40, 10, 32064),
    "Phi-4": _decoder("phi3", 5120, 17920, 40, 40, 10, 100352),
    "gpt-oss-20b": _decoder("gpt_oss", 2880, 2880, 24, 64, 8, 201088, head_dim=64)
    | {"num_local_experts": 32, "num_experts_per_tok": 4},
    "gpt-oss-120b": _decoder("gpt_oss", 2880, 2880, 36, 64, 8, 201088, head_dim=64)
    | {"num_local_experts": 128, "num_experts_per_tok": 4},
    "DeepSeek-V3": DEEPSEEK_V3,
    "DeepSeek-R1": DEEPSEEK_V3,
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1024, 24, 16),
    "gpt2-large": _gpt2(1280, 36, 20),
    "gpt2-xl": _gpt2(1600, 48, 25),
    "bert-base": _encoder("bert", 768, 12, 12, **BERT),
    "bert-large": _encoder("bert", 1024, 24, 16, **BERT),
    "roberta-base": _encoder("roberta", 768, 12, 12, **ROBERTA),
    "roberta-large": _encoder("roberta", 1024, 24, 16, **ROBERTA),
    "vit-base": _encoder("vit", 768, 12, 12, image_size=224, patch_size=16),
    "vit-large": _encoder("vit", 1024, 24, 16, image_size=224, patch_size=16),
    "flan-t5-xl": _t5(2048, 5120, 64, 32, 24) | GATED_T5,
    "flan-t5-xxl": _t5(4096, 10240, 64, 64, 24) | GATED_T5,
    "t5-small": _t5(512, 2048, 64, 8, 6),
    "t5-base": _t5(768, 3072, 64, 12, 12),
    "t5-large": _t5(1024, 4096, 64, 16, 24),
    "t5-3b": _t5(1024, 16384, 128, 32, 24),
    "t5-11b": _t5(1024, 65536, 128, 128, 24),
}
FAMOUS = ["Llama-3.1-8B", "Qwen2.5-7B", "gpt2"]
MODELS: dict[str, Model] = {name.lower(): model_from_config(config, name)[0] for name, config in CONFIGS.items()}


def find_known_model(name: str) -> Model | None:
    """Return the model of a name in any case, with or without its maker (``meta-llama/Llama-3.1-8B-Instruct``), or
    None.
    """
    plain = name.strip().lower().rpartition("/")[2].removeprefix("meta-")
    if "distill" in plain:  # a model of another shape, named after its teacher
        return None
    fitting = [key for key in MODELS if plain == key or (plain.startswith(key) and not plain[len(key)].isalnum())]
    if fitting:
        return MODELS[max(fitting, key=len)]
    return next((model for key, model in MODELS.items() if _words(key) == _words(plain)), None)


@lru_cache(maxsize=256)
def _words(name: str) -> list[str]:
    """Return the words and numbers of a name, however they are separated: ``llama 3.1 8b``, ``llama3.1-8b``."""
    return re.findall(r"[a-z]+|[0-9.]+", name)


def closest_models(name: str) -> list[str]:
    """Return the known names closest to an unknown one, or some famous ones if none is close."""
    return nearest(name.strip().rpartition("/")[2].removeprefix("Meta-"), CONFIGS) or FAMOUS
