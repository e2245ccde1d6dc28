"""Blocks of transformers (5.23) by family: the classes that its models repeat, and layouts as far as they change the
tensors saved for backward.

``tests/plan/memory/test_activations_by_family.py`` compares with its modules.
"""

from typing import Any

import msgspec

from ..types import BlockLayout
from .hf_fields import Config, first_nonzero

# Classes of the layers that models repeat.
_DECODERS = {
    "llama": "Llama",
    "mistral": "Mistral",
    "mixtral": "Mixtral",
    "qwen2": "Qwen2",
    "qwen2_moe": "Qwen2Moe",
    "qwen3": "Qwen3",
    "qwen3_moe": "Qwen3Moe",
    "gemma": "Gemma",
    "gemma2": "Gemma2",
    "gemma3_text": "Gemma3",
    "phi": "Phi",
    "phi3": "Phi3",
    "olmo2": "Olmo2",
    "olmoe": "Olmoe",
    "glm4": "Glm4",
    "deepseek_v2": "DeepseekV2",
    "deepseek_v3": "DeepseekV3",
    "gpt_oss": "GptOss",
    "opt": "OPT",
    "falcon": "Falcon",
    "starcoder2": "Starcoder2",
    "stablelm": "StableLm",
    "cohere": "Cohere",
}
BLOCKS = {family: f"{name}DecoderLayer" for family, name in _DECODERS.items()} | {
    "gpt2": "GPT2Block",
    "gptj": "GPTJBlock",
    "gpt_neox": "GPTNeoXLayer",
    "bloom": "BloomBlock",
    "bert": "BertLayer",
    "roberta": "RobertaLayer",
    "xlm-roberta": "XLMRobertaLayer",
    "camembert": "CamembertLayer",
    "electra": "ElectraLayer",
    "distilbert": "TransformerBlock",
    "bart": "BartEncoderLayer,BartDecoderLayer",
    "t5": "T5Block",
    "mt5": "MT5Block",
    "umt5": "UMT5Block",
    "vit": "ViTLayer",
    "dinov2": "Dinov2Layer",
    "clip_vision_model": "CLIPEncoderLayer",
    "siglip_vision_model": "SiglipEncoderLayer",
}

_LLAMA = BlockLayout(norm="rms", wide_softmax=True)
_PLAIN = BlockLayout(norm="layer")  # with a softmax in the compute precision
_WIDE = BlockLayout(norm="layer", wide_softmax=True)
_T5 = BlockLayout(norm="rms-t5")
_PARALLEL: dict[str, Any] = {"norms": 1, "products": 1}  # attention and feed-forward part use the same input


def _of(base: BlockLayout, **more: Any) -> BlockLayout:
    return msgspec.structs.replace(base, **more)


LAYOUTS: dict[str, BlockLayout] = dict.fromkeys(("llama", "mistral", "mixtral", "qwen2"), _LLAMA)
LAYOUTS |= {
    "qwen2_moe": _of(_LLAMA, others=1),  # the product that the gate of its shared expert weights
    "qwen3": _of(_LLAMA, normed_heads=True),
    "qwen3_moe": _of(_LLAMA, normed_heads=True),
    "gemma": _of(_LLAMA, norm="rms-fp32"),
    "gemma2": _of(_LLAMA, norm="rms-fp32", norms=4, capped=True, fused=False),
    "gemma3_text": _of(_LLAMA, norm="rms-fp32", norms=4, normed_heads=True),
    "phi3": _of(_LLAMA, joint=True, copied=True),
    "olmo2": _of(_LLAMA, norm="rms-fp32", normed_heads=True),
    "olmoe": _of(_LLAMA, normed_heads=True),
    "glm4": _of(_LLAMA, norms=4, copied=True),
    "deepseek_v2": _of(_LLAMA, others=2),  # an fp32 cast for the router
    "deepseek_v3": _of(_LLAMA, others=2),
    "gpt_oss": BlockLayout(norm="rms-fp32", inner=3, fused=False),
    "gpt2": _PLAIN,
    "gptj": _of(_WIDE, **_PARALLEL, others=2, fused=False),  # queries and keys, in fp32
    "gpt_neox": _of(_WIDE, joint=True, copied=True),
    "opt": _of(_WIDE, drops_scores=False),
    "bart": _of(_PLAIN, drops_scores=False),
    "bloom": _of(_WIDE, fused=False),
    "falcon": _of(_PLAIN, joint=True),
    "starcoder2": _WIDE,
    "stablelm": _of(_WIDE, copied=True),
    "phi": _of(_WIDE, **_PARALLEL, copied=True),
    "cohere": _of(_WIDE, norm="layer-fp32", **_PARALLEL),
    "vit": _WIDE,
    "dinov2": _of(_PLAIN, others=2),  # products that are scaled after both parts
    "clip_vision_model": _WIDE,
    "siglip_vision_model": _WIDE,
    "idefics2_vision": _WIDE,
    "idefics3_vision": _WIDE,
    "smolvlm_vision": _WIDE,
    "mllama_vision_model": _PLAIN,
    "pixtral": _LLAMA,
    "qwen2_vl_vision": _of(_WIDE, joint=True, copied=True),
    "qwen2_5_vl_vision": _of(_LLAMA, joint=True, copied=True),
    "qwen3_vl_vision": _of(_WIDE, joint=True, copied=True),
}
LAYOUTS |= dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert"), _PLAIN)
LAYOUTS |= dict.fromkeys(("t5", "mt5", "umt5"), _T5)
# Activation functions that transformers writes in elementary operations (``activations.py``): saved tensors in addition
# to their input.
WRITTEN_OUT = {"gelu_new": 3, "quick_gelu": 1}
# Activation functions of families whose config does not name one.
ACTIVATIONS = {"gpt2": "gelu_new", "gptj": "gelu_new", "phi": "gelu_new"}
ACTIVATIONS |= {"mt5": "gated-gelu", "umt5": "gated-gelu"}
ACTIVATIONS |= {"clip_vision_model": "quick_gelu", "qwen2_vl_vision": "quick_gelu"}


def family_layout(config: Config, family: str) -> BlockLayout:
    """Return the layout of a family with the changes of its config; that of Llama for an unknown family."""
    found = LAYOUTS.get(family, _LLAMA)
    written = WRITTEN_OUT.get(_activation(config, family), 0)
    more: dict[str, Any] = {"inner": found.inner + written, "inner_fp32": written == WRITTEN_OUT["gelu_new"]}
    if family == "cohere" and config.get("use_qk_norm"):
        more["normed_heads"] = True
    if family == "gpt_neox" and config.get("use_parallel_residual", True):
        more["norms"] = 1
    if family == "stablelm" and config.get("use_parallel_residual"):
        more |= _PARALLEL
    if family == "falcon" and (config.get("new_decoder_architecture") or config.get("parallel_attn", True)):
        of_two = config.get("new_decoder_architecture") and config.get("num_ln_in_parallel_attn") != 1
        more |= _PARALLEL | ({"products": 2} if of_two else {})
    if latent := first_nonzero(config, "kv_lora_rank"):
        share = first_nonzero(config, "v_head_dim") / (latent_head_size(config) or 1)
        more |= {"latent": latent + first_nonzero(config, "q_lora_rank"), "value_share": share}
    return _of(found, **more)


def latent_head_size(config: Config) -> int:
    """Return the size of a head's queries and keys under latent attention (arXiv 2405.04434), or 0 without it."""
    return (
        first_nonzero(config, "qk_nope_head_dim") + first_nonzero(config, "qk_rope_head_dim")
        if config.get("kv_lora_rank")
        else 0
    )


def _activation(config: Config, family: str) -> str:
    names = ("feed_forward_proj", "activation_function", "hidden_act", "hidden_activation", "activation")
    named = str(next((config[name] for name in names if config.get(name)), ACTIVATIONS.get(family, "")))
    return "gelu_new" if named == "gated-gelu" else named.removeprefix("gated-")
