"""Number of parameters of the model that a Hugging Face config describes, by family.

Each function counts the parameters of transformers' modules (5.23; ``tests/plan/model/test_hf_counts.py`` builds them
on the meta device and compares): decoders and encoder-decoders with their language-model head, encoders and vision
models without a task head.
"""

from collections.abc import Callable
from typing import NamedTuple

from . import hf_encoders, hf_vision
from .hf_fields import Config, first_nonzero, first_present, is_tied, ungated_block, ungated_mlp


class ParameterCount(NamedTuple):
    """Parameters, and those that one token passes through: fewer with experts."""

    params: int
    active: int


def count_parameters(config: Config, family: str) -> ParameterCount:
    """Count the parameters of a family; an unknown one is counted as a Llama-like decoder.

    Raises:
        UserError: A field is missing or no sensible number.
    """
    found = (FAMILIES.get(family) or hf_vision.COUNTS.get(family, _llama))(config)
    return found if isinstance(found, ParameterCount) else ParameterCount(found, found)


# -- decoders with a gated feed-forward part


class DecoderSizes(NamedTuple):
    """Sizes that all decoders have."""

    hidden: int
    layers: int
    heads: int
    keys: int
    head: int
    vocab: int

    @property
    def queries(self) -> int:
        return self.heads * self.head


def _sizes(config: Config, head: int = 0) -> DecoderSizes:
    hidden, heads = first_present(config, "hidden_size", "d_model"), first_present(config, "num_attention_heads")
    return DecoderSizes(
        hidden,
        first_present(config, "num_hidden_layers"),
        heads,
        first_present(config, "num_key_value_heads", default=heads),
        first_present(config, "head_dim", default=head or hidden // heads),
        first_present(config, "vocab_size"),
    )


def _attention(sizes: DecoderSizes, bias: bool = False, out_bias: bool = False) -> int:
    kept = 2 * sizes.keys * sizes.head
    weights = 2 * sizes.hidden * sizes.queries + sizes.hidden * kept
    return weights + (sizes.queries + kept if bias else 0) + (sizes.hidden if out_bias else 0)


def _gated(hidden: int, inner: int, bias: bool = False) -> int:
    return 3 * hidden * inner + (2 * inner + hidden if bias else 0)


def _with_head(sizes: DecoderSizes, layers: int, last_norm: int, config: Config, family: str) -> int:
    return layers + last_norm + sizes.vocab * sizes.hidden * (1 if is_tied(config, family) else 2)


def _llama(config: Config) -> ParameterCount:
    """Count Llama and similar models: no biases unless configured; experts with a router, if any."""
    family = str(config.get("model_type", ""))
    sizes = _sizes(config, HEAD.get(family, 0))
    hidden = sizes.hidden
    bias = bool(config.get("attention_bias", False))
    asks_bias = bias or family == "qwen2" or (family == "qwen2_moe" and bool(config.get("qkv_bias", True)))
    fixed = _attention(sizes, asks_bias, bias and family != "glm4")
    fixed += {"gemma2": 4, "gemma3_text": 4, "glm4": 4}.get(family, 2) * hidden
    if family in ("qwen3", "qwen3_moe", "gemma3_text"):
        fixed += 2 * sizes.head  # norms of queries and keys
    if family in ("olmo2", "olmoe"):
        fixed += sizes.queries + sizes.keys * sizes.head
    dense = _gated(hidden, first_present(config, "intermediate_size", default=4 * hidden), bool(config.get("mlp_bias")))
    experts = first_nonzero(config, "num_local_experts", "num_experts")
    if experts < 2:
        each = ParameterCount(dense, dense)
        layers = sizes.layers
    else:
        each = _experts(config, hidden, experts)
        layers = sparse_layers(config, sizes.layers)
    plain = (sizes.layers - layers) * dense + sizes.layers * fixed
    return ParameterCount(
        *(_with_head(sizes, plain + layers * of_layer, hidden, config, family) for of_layer in each),
    )


def _experts(config: Config, hidden: int, experts: int) -> ParameterCount:
    """Count the feed-forward part of a layer with experts: experts, router, and what all tokens pass through."""
    inner = first_present(config, "moe_intermediate_size", "intermediate_size")
    always = experts * hidden
    if shared := first_nonzero(config, "shared_expert_intermediate_size"):
        always += _gated(hidden, shared) + hidden  # and its gate
    always += _gated(hidden, inner * first_nonzero(config, "n_shared_experts"))
    used = min(experts, first_present(config, "num_experts_per_tok", default=1))
    return ParameterCount(always + experts * _gated(hidden, inner), always + used * _gated(hidden, inner))


def sparse_layers(config: Config, layers: int) -> int:
    """Return how many of the layers have experts.

    Qwen's MoE: each ``decoder_sparse_step``-th, without ``mlp_only_layers``; others: all but the first ones.
    """
    layers = max(0, layers - first_nonzero(config, "first_k_dense_replace"))
    step, dense = first_present(config, "decoder_sparse_step", default=1), config.get("mlp_only_layers") or []
    if layers > 10_000 or not isinstance(dense, list):
        return layers
    return sum((layer + 1) % step == 0 and layer not in dense for layer in range(layers))


def _deepseek(config: Config) -> ParameterCount:
    """Count DeepSeek V2 and V3: latent attention (arXiv 2405.04434), dense first layers.

    The extra layer that predicts one more token is not counted; transformers leaves it out.
    """
    sizes = _sizes(config, 64)
    hidden, heads = sizes.hidden, sizes.heads
    rope, nope = first_present(config, "qk_rope_head_dim"), first_present(config, "qk_nope_head_dim")
    value, latent = first_present(config, "v_head_dim"), first_present(config, "kv_lora_rank")
    per_head = nope + rope
    if rank := first_nonzero(config, "q_lora_rank"):
        attention = hidden * rank + rank + rank * heads * per_head
    else:
        attention = hidden * heads * per_head
    attention += hidden * (latent + rope) + latent + latent * heads * (nope + value) + heads * value * hidden
    experts, inner = first_present(config, "n_routed_experts"), first_present(config, "moe_intermediate_size")
    always = experts * hidden
    if shared := first_nonzero(config, "n_shared_experts"):
        always += _gated(hidden, inner * shared)
    used = first_present(config, "num_experts_per_tok", default=1)
    dense_layers = first_nonzero(config, "first_k_dense_replace")
    dense = _gated(hidden, first_present(config, "intermediate_size"))
    plain = sizes.layers * (attention + 2 * hidden) + min(dense_layers, sizes.layers) * dense
    sparse = max(0, sizes.layers - dense_layers)
    return ParameterCount(
        *(
            _with_head(sizes, plain + sparse * (always + n * _gated(hidden, inner)), hidden, config, "deepseek")
            for n in (experts, used)
        )
    )


def _gpt_oss(config: Config) -> ParameterCount:
    sizes = _sizes(config, 64)
    hidden, inner = sizes.hidden, first_present(config, "intermediate_size")
    experts = first_present(config, "num_local_experts")
    bias = bool(config.get("attention_bias", True))
    fixed = _attention(sizes, bias, bias) + sizes.heads + 2 * hidden + experts * (hidden + 1)  # sinks; router
    each = 3 * hidden * inner + 2 * inner + hidden
    used = first_present(config, "num_experts_per_tok", "experts_per_token", default=4)
    return ParameterCount(
        *(
            _with_head(sizes, sizes.layers * (fixed + n * each), hidden, config, "gpt_oss")
            for n in (experts, min(experts, used))
        )
    )


# -- decoders with a plain feed-forward part and biases


def _gpt2(config: Config) -> int:
    hidden, layers = (
        first_present(config, "n_embd", "hidden_size"),
        first_present(config, "n_layer", "num_hidden_layers"),
    )
    block = ungated_block(hidden, first_present(config, "n_inner", default=4 * hidden))
    table = first_present(config, "vocab_size") * hidden * (1 if is_tied(config, "gpt2") else 2)
    return layers * block + 2 * hidden + table + first_present(config, "n_positions", default=1024) * hidden


def _gptj(config: Config) -> int:
    hidden, layers = first_present(config, "n_embd"), first_present(config, "n_layer")
    block = 4 * hidden * hidden + ungated_mlp(hidden, first_present(config, "n_inner", default=4 * hidden)) + 2 * hidden
    vocab = first_present(config, "vocab_size")
    return layers * block + 2 * hidden + vocab * hidden * 2 + vocab


def _gpt_neox(config: Config) -> int:
    sizes = _sizes(config)
    block = ungated_block(sizes.hidden, first_present(config, "intermediate_size"))
    if not config.get("attention_bias", True):
        block -= 4 * sizes.hidden
    return _with_head(sizes, sizes.layers * block, 2 * sizes.hidden, config, "gpt_neox")


def _opt(config: Config) -> int:
    sizes = _sizes(config)
    hidden, bias = sizes.hidden, bool(config.get("enable_bias", True))
    block = ungated_block(hidden, first_present(config, "ffn_dim"), bias)
    width = first_present(config, "word_embed_proj_dim", default=hidden)
    projections = 2 * hidden * width if width != hidden else 0
    last = 0 if not config.get("do_layer_norm_before", True) or config.get("_remove_final_layer_norm") else 2 * hidden
    tables = sizes.vocab * width * (1 if is_tied(config, "opt") else 2)
    positions = (first_present(config, "max_position_embeddings") + 2) * hidden
    return sizes.layers * block + last + tables + positions + projections


def _bloom(config: Config) -> int:
    hidden = first_present(config, "hidden_size", "n_embed")
    layers, vocab = first_present(config, "n_layer", "num_hidden_layers"), first_present(config, "vocab_size")
    return (
        layers * ungated_block(hidden, 4 * hidden)
        + 4 * hidden
        + vocab * hidden * (1 if is_tied(config, "bloom") else 2)
    )


def _falcon(config: Config) -> int:
    sizes = _sizes(config)
    hidden, new = sizes.hidden, bool(config.get("new_decoder_architecture", False))
    keys = first_present(config, "num_kv_heads", default=sizes.heads) if new else sizes.heads
    keys = 1 if config.get("multi_query", True) and not new else keys
    inner = first_present(config, "ffn_hidden_size", default=4 * hidden)
    bias = bool(config.get("bias", False))
    block = _attention(sizes._replace(keys=keys, head=hidden // sizes.heads), bias, bias) + ungated_mlp(
        hidden, inner, bias
    )
    parallel = bool(config.get("parallel_attn", True))
    norms = first_present(config, "num_ln_in_parallel_attn", default=2) if new else 1 if parallel else 2
    return _with_head(sizes, sizes.layers * (block + norms * 2 * hidden), 2 * hidden, config, "falcon")


def _starcoder2(config: Config) -> int:
    sizes, bias = _sizes(config), bool(config.get("use_bias", True))
    block = _attention(sizes, bias, bias) + ungated_mlp(sizes.hidden, first_present(config, "intermediate_size"), bias)
    return _with_head(sizes, sizes.layers * (block + 4 * sizes.hidden), 2 * sizes.hidden, config, "starcoder2")


def _stablelm(config: Config) -> int:
    sizes = _sizes(config)
    block = _attention(sizes, bool(config.get("use_qkv_bias", False)))
    block += _gated(sizes.hidden, first_present(config, "intermediate_size"))
    norms = 2 if config.get("use_parallel_residual", False) else 4
    return _with_head(sizes, sizes.layers * (block + norms * sizes.hidden), 2 * sizes.hidden, config, "stablelm")


def _phi(config: Config) -> int:
    sizes = _sizes(config)
    block = (
        _attention(sizes, True, True)
        + ungated_mlp(sizes.hidden, first_present(config, "intermediate_size"))
        + 2 * sizes.hidden
    )
    return _with_head(sizes, sizes.layers * block, 2 * sizes.hidden, config, "phi") + sizes.vocab


def _cohere(config: Config) -> int:
    sizes, bias = _sizes(config), bool(config.get("attention_bias", False))
    block = (
        _attention(sizes, bias, bias) + _gated(sizes.hidden, first_present(config, "intermediate_size")) + sizes.hidden
    )
    if config.get("use_qk_norm", False):
        block += sizes.queries + sizes.keys * sizes.head
    return _with_head(sizes, sizes.layers * block, sizes.hidden, config, "cohere")


LLAMA_LIKE = (
    *("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text"),
    *("phi3", "olmo2", "olmoe", "glm4"),
)
ENCODERS = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert")
PAIRS = ("t5", "mt5", "umt5", "bart")
VISION = ("vit", "dinov2", "clip_vision_model", "siglip_vision_model")
FAMILIES: dict[str, Callable[[Config], ParameterCount | int]] = dict.fromkeys(LLAMA_LIKE, _llama)
FAMILIES |= {"deepseek_v2": _deepseek, "deepseek_v3": _deepseek, "gpt_oss": _gpt_oss}
FAMILIES |= {"gpt2": _gpt2, "gptj": _gptj, "gpt_neox": _gpt_neox, "opt": _opt, "bloom": _bloom, "falcon": _falcon}
FAMILIES |= {"starcoder2": _starcoder2, "stablelm": _stablelm, "phi": _phi, "cohere": _cohere}
FAMILIES |= dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert"), hf_encoders.bert)
FAMILIES |= {"electra": hf_encoders.electra, "distilbert": hf_encoders.distilbert, "bart": hf_encoders.bart}
FAMILIES |= dict.fromkeys(("t5", "mt5", "umt5"), hf_encoders.t5)
FAMILIES |= {
    "vit": hf_encoders.vit,
    "dinov2": hf_encoders.dinov2,
    "clip_vision_model": hf_encoders.clip_vision,
    "siglip_vision_model": hf_encoders.siglip_vision,
}
# By the name that transformers' classes begin with, in lower case: ``qwen3moe`` for ``Qwen3MoeConfig``.
OF_CLASS_NAME = {family.replace("_", ""): family for family in FAMILIES}
PLAIN_MLP = (
    *("gpt2", "gptj", "gpt_neox", "opt", "bloom", "falcon", "starcoder2", "phi", "bart", "dinov2"),
    *(*ENCODERS, "vit", "clip_vision_model", "siglip_vision_model", "mllama_vision_model"),
    *("qwen2_vl_vision", "qwen3_vl_vision", "idefics2_vision", "idefics3_vision", "smolvlm_vision"),
)
# Defaults of a family's config class (transformers 5.23), for parts of a config that leave them out.
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
DEFAULTS: dict[str, dict[str, int]] = {
    "llama": dict(zip((*SIZES, "vocab_size"), (4096, 11008, 32, 32, 32000), strict=True)),
    "mistral": dict(zip((*SIZES, "vocab_size"), (4096, 14336, 32, 32, 32000), strict=True)),
    "gemma3_text": dict(zip((*SIZES, "vocab_size"), (2304, 9216, 26, 8, 262208), strict=True)),
    "clip_vision_model": dict(zip((*SIZES, "patch_size"), (768, 3072, 12, 12, 32), strict=True)),
    "siglip_vision_model": dict(zip((*SIZES, "patch_size"), (768, 3072, 12, 12, 16), strict=True)),
} | hf_vision.DEFAULTS
# Defaults that do not depend on other sizes. Otherwise there are as many key-value heads as heads, and heads share the
# hidden size.
KEYS = {"mistral": 8, "mixtral": 8, "qwen2": 32, "qwen2_moe": 16, "qwen3": 32, "qwen3_moe": 4, "gemma": 16}
KEYS |= {"gemma2": 4, "gemma3_text": 4, "glm4": 2, "deepseek_v3": 128, "gpt_oss": 8, "starcoder2": 2, "stablelm": 32}
HEAD = {"qwen3": 128, "gemma": 256, "gemma2": 256, "gemma3_text": 256, "glm4": 128, "gpt_oss": 64}
OF_CLASS = {"num_key_value_heads": KEYS, "head_dim": HEAD}
