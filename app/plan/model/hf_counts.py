"""Number of parameters of the model that a Hugging Face config describes.

Those of transformers' modules (5.23; ``tests/plan/model/test_hf_counts.py`` builds them on the meta device and
compares): decoders and encoder-decoders with their language-model head, encoders and vision models without a task head.
Decoders differ in what ``families.json`` says; other families have a function each.
"""

from collections.abc import Callable
from typing import NamedTuple

from ..types import BlockLayout
from .families import (
    FAMILIES,
    Config,
    Family,
    family_of,
    first_nonzero,
    first_present,
    is_on,
    is_tied,
    ungated_block,
    ungated_mlp,
)


class ParameterCount(NamedTuple):
    """Parameters, and those that one token passes through: fewer with experts."""

    params: int
    active: int


class TransformerSizes(NamedTuple):
    """Sizes that all families have."""

    hidden: int
    layers: int
    heads: int
    keys: int
    head: int

    @property
    def queries(self) -> int:
        return self.heads * self.head


def transformer_sizes(config: Config, name: str) -> TransformerSizes:
    """Return the sizes of a model by the names of its family; an unknown one has those of Llama.

    Raises:
        UserError: A field is missing or no sensible number.
    """
    known, pair = name in FAMILIES, family_of(name).kind == "encoder-decoder"
    hidden = first_present(config, "hidden_size", "n_embd", "n_embed", "d_model", "dim")
    heads = ("num_attention_heads", "n_head", "num_heads", "n_heads")[: None if known else 1]
    layers = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")[: None if known else 1]
    count = first_present(config, *heads, *(("encoder_attention_heads",) if pair else ()))
    keys = first_present(config, "num_key_value_heads", "num_kv_heads", default=count)
    if name == "falcon" and config.get("multi_query", True) and not config.get("new_decoder_architecture"):
        keys = 1
    return TransformerSizes(
        hidden,
        first_present(config, *layers, *(("encoder_layers",) if pair else ())),
        count,
        keys,
        first_present(config, "head_dim", "d_kv", default=hidden // count),
    )


def count_parameters(config: Config, name: str, layout: BlockLayout) -> ParameterCount:
    """Count the parameters of a family whose blocks have a layout.

    Raises:
        UserError: A field is missing or no sensible number.
    """
    family = family_of(name)
    if family.count != "decoder":
        found = COUNTS[family.count](config, family)
        return ParameterCount(found, found)
    sizes = transformer_sizes(config, name)
    hidden, norm = sizes.hidden, sizes.hidden * (2 if layout.norm == "layer" else 1)
    fixed = _attention(config, sizes, family) + max(layout.norms, layout.products) * norm
    each, sparse = _feed_forward(config, sizes, family)
    dense = _mlp(config, family, hidden, inner_width(config, hidden))
    vocab, width = first_present(config, "vocab_size"), first_present(config, "word_embed_proj_dim", default=hidden)
    outside = vocab * width * (1 if is_tied(config, name) else 2) + family.head_bias * vocab
    outside += 2 * hidden * width if width != hidden else 0
    has_last_norm = config.get("do_layer_norm_before", True) and not config.get("_remove_final_layer_norm")
    outside += norm * (family.embedding_norm + bool(has_last_norm))
    if family.position_rows is not None:
        names = ("n_positions", "max_position_embeddings")
        outside += (first_present(config, *names, default=family.positions) + family.position_rows) * hidden
    plain = sizes.layers * fixed + (sizes.layers - sparse) * dense + outside
    return ParameterCount(*(plain + sparse * of_layer for of_layer in each))


def _attention(config: Config, sizes: TransformerSizes, family: Family) -> int:
    """Count attention, with its biases and the norms of queries and keys."""
    if config.get("kv_lora_rank"):
        return _latent_attention(config, sizes)
    kept = 2 * sizes.keys * sizes.head
    count = 2 * sizes.hidden * sizes.queries + sizes.hidden * kept
    count += (sizes.queries + kept) * is_on(config, family.qkv_bias)
    count += sizes.hidden * is_on(config, family.qkv_bias if family.out_bias is None else family.out_bias)
    count += 2 * sizes.head * is_on(config, family.head_norms) + sizes.heads * family.has_sinks
    return count + (sizes.queries + sizes.keys * sizes.head) * is_on(config, family.joint_head_norms)


def _latent_attention(config: Config, sizes: TransformerSizes) -> int:
    """Count latent attention (arXiv 2405.04434)."""
    hidden, heads = sizes.hidden, sizes.heads
    rope, nope = first_present(config, "qk_rope_head_dim"), first_present(config, "qk_nope_head_dim")
    value, latent = first_present(config, "v_head_dim"), first_present(config, "kv_lora_rank")
    rank = first_nonzero(config, "q_lora_rank")
    queries = hidden * rank + rank + rank * heads * (nope + rope) if rank else hidden * heads * (nope + rope)
    return queries + hidden * (latent + rope) + latent + latent * heads * (nope + value) + heads * value * hidden


def _mlp(config: Config, family: Family, hidden: int, inner: int) -> int:
    bias = is_on(config, family.mlp_bias)
    return 3 * hidden * inner + (2 * inner + hidden) * bias if family.gated else ungated_mlp(hidden, inner, bias)


def _feed_forward(config: Config, sizes: TransformerSizes, family: Family) -> tuple[ParameterCount, int]:
    """Count the experts of a layer with their router and what all tokens pass through, and the layers with experts."""
    experts, used = expert_counts(config, family)
    if not experts:
        return ParameterCount(0, 0), 0
    hidden, inner = sizes.hidden, first_present(config, "moe_intermediate_size", "intermediate_size")
    each = _mlp(config, family, hidden, inner)
    always = experts * (hidden + family.has_sinks)
    if shared := first_nonzero(config, "shared_expert_intermediate_size"):
        always += _mlp(config, family, hidden, shared) + hidden  # and its gate
    if shared := first_nonzero(config, "n_shared_experts"):
        always += _mlp(config, family, hidden, inner * shared)
    return ParameterCount(always + experts * each, always + used * each), sparse_layers(config, sizes.layers)


def expert_counts(config: Config, family: Family) -> tuple[int, int]:
    """Return the experts of a layer, and how many of them a token passes through; 0 without experts."""
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    experts = first_present(config, *names) if family.is_sparse else first_nonzero(config, *names)
    used = first_present(config, "num_experts_per_tok", "experts_per_token", default=family.experts_per_token)
    return (experts, min(used, experts)) if experts > 1 else (0, 0)


def inner_width(config: Config, hidden: int, *first: str) -> int:
    """Return the width of the feed-forward part, or of one expert if ``first`` names its field."""
    names = ("intermediate_size", "n_inner", "d_ff", "ffn_dim", "ffn_hidden_size", "encoder_ffn_dim", "hidden_dim")
    return first_present(config, *first, *names, default=4 * hidden)


def sparse_layers(config: Config, layers: int) -> int:
    """Return how many of the layers have experts.

    Qwen's MoE: each ``decoder_sparse_step``-th, without ``mlp_only_layers``; others: all but the first ones.
    """
    layers = max(0, layers - first_nonzero(config, "first_k_dense_replace"))
    step, dense = first_present(config, "decoder_sparse_step", default=1), config.get("mlp_only_layers") or []
    if layers > 10_000 or not isinstance(dense, list):
        return layers
    return sum((layer + 1) % step == 0 and layer not in dense for layer in range(layers))


# -- encoders, encoder-decoders and vision models


def _encoder(config: Config, family: Family) -> int:
    """Count BERT and similar models: tables of tokens, positions and types, blocks, and the pooler if they have one."""
    hidden, layers, *_ = transformer_sizes(config, str(config.get("model_type")))
    narrow = first_present(config, "embedding_size", default=hidden)
    tables = first_present(config, "vocab_size") + first_present(config, "max_position_embeddings", default=512)
    tables += first_present(config, "type_vocab_size", default=2) if family.has_token_types else 0
    wider = narrow * hidden + hidden if narrow != hidden else 0
    pooler = hidden * hidden + hidden if family.pooler else 0
    return (tables + 2) * narrow + wider + layers * ungated_block(hidden, inner_width(config, hidden)) + pooler


def _picture_encoder(config: Config, family: Family) -> int:
    """Count ViT and similar models: patches, positions, blocks, last norms, and the pooler without a classifier."""
    hidden, layers = first_present(config, "hidden_size"), first_present(config, "num_hidden_layers")
    inner = dinov2_inner_width(config, hidden) if family.scales_layers else first_present(config, "intermediate_size")
    block = ungated_block(hidden, inner) + 2 * hidden * family.scales_layers
    block += (hidden * inner + inner) * bool(config.get("use_swiglu_ffn"))
    block -= 0 if config.get("qkv_bias", True) else 3 * hidden
    rows = patch_count(config) + family.extra_rows
    found = _patch(config, family.patch_bias) + rows * hidden + layers * block + family.outer_norms * 2 * hidden
    if family.pooler == "dense":
        pooler = first_present(config, "pooler_output_size", default=hidden)
        found += hidden * pooler + pooler
    elif family.pooler == "attention" and config.get("vision_use_head", True):
        found += block - hidden  # one norm, and the query
    return found


def _t5(config: Config, family: Family) -> int:
    hidden, inner = first_present(config, "d_model"), first_present(config, "d_ff")
    inside = first_present(config, "d_kv", default=64) * first_present(config, "num_heads")
    feed_forward = (3 if has_gated_t5_mlp(config, family) else 2) * hidden * inner
    attention, layers = 4 * hidden * inside, first_present(config, "num_layers")
    decoders = first_present(config, "num_decoder_layers", default=layers)
    encoder = layers * (attention + feed_forward + 2 * hidden)
    decoder = decoders * (2 * attention + feed_forward + 3 * hidden)
    each = first_present(config, "relative_attention_num_buckets", default=32) * first_present(config, "num_heads")
    umt5 = config.get("model_type") == "umt5"  # each layer has a table of relative positions, not only the first
    biases = each * (layers + decoders if umt5 else 2)
    table = first_present(config, "vocab_size") * hidden
    return (
        encoder + decoder + biases + 2 * hidden + table * (1 if config.get("tie_word_embeddings", family.tied) else 2)
    )


def has_gated_t5_mlp(config: Config, family: Family) -> bool:
    """Return whether T5's feed-forward part has a gate (T5 1.1, Flan-T5); mT5 and UMT5 have one by default."""
    return "gated" in str(config.get("feed_forward_proj", family.activation))


def _bart(config: Config, family: Family) -> int:
    hidden = first_present(config, "d_model")
    encoder = first_present(config, "encoder_layers") * ungated_block(hidden, first_present(config, "encoder_ffn_dim"))
    decoder = first_present(config, "decoder_layers") * (
        ungated_block(hidden, first_present(config, "decoder_ffn_dim")) + 4 * hidden * hidden + 4 * hidden + 2 * hidden
    )
    positions = 2 * (first_present(config, "max_position_embeddings", default=1024) + 2) * hidden
    return encoder + decoder + positions + 4 * hidden + first_present(config, "vocab_size") * hidden


def dinov2_inner_width(config: Config, hidden: int) -> int:
    """Return the width of its feed-forward part: with a gate two thirds, a multiple of 8."""
    inner = hidden * first_present(config, "mlp_ratio", default=4)
    return (inner * 2 // 3 + 7) // 8 * 8 if config.get("use_swiglu_ffn") else inner


def _patch(config: Config, bias: bool) -> int:
    hidden, patch = first_present(config, "hidden_size"), first_present(config, "patch_size")
    return first_present(config, "num_channels", default=3) * patch * patch * hidden + (hidden if bias else 0)


def patch_count(config: Config) -> int:
    """Return the number of patches of an image."""
    return (first_present(config, "image_size", default=224) // first_present(config, "patch_size")) ** 2


def _qwen(config: Config, family: Family) -> int:
    hidden, inner = first_present(config, "hidden_size"), first_present(config, "intermediate_size")
    out = first_present(config, "out_hidden_size")
    feed_forward = 3 * hidden * inner + 2 * inner + hidden if family.gated else ungated_mlp(hidden, inner)
    norm = hidden if family.gated else 2 * hidden
    block = 4 * hidden * hidden + 4 * hidden + feed_forward + 2 * norm
    four = first_present(config, "spatial_merge_size", default=2) ** 2 * hidden
    merging = four * four + four + four * out + out
    patch = first_present(config, "patch_size") ** 2 * first_present(config, "temporal_patch_size", default=2) * 3
    merged = merging + norm
    if config.get("model_type") == "qwen3_vl_vision":
        deep = config.get("deepstack_visual_indexes")
        merged += (len(deep) if isinstance(deep, list) else 3) * (merging + 2 * four)
        merged += first_present(config, "num_position_embeddings", default=2304) * hidden + hidden
    return first_present(config, "num_hidden_layers") * block + patch * hidden + merged


def _mllama(config: Config, family: Family) -> int:
    hidden, layers = first_present(config, "hidden_size"), first_present(config, "num_hidden_layers")
    block = ungated_block(hidden, first_present(config, "intermediate_size")) - 4 * hidden
    tiles, seen = first_present(config, "max_num_tiles", default=4), patch_count(config) + 1
    ratios = config.get("supported_aspect_ratios")
    kinds = (len(ratios) if isinstance(ratios, list) else 8) + 1
    places = 1 + seen * hidden + kinds * tiles * seen * hidden + 2 * (1 + kinds * tiles * hidden)
    gates = 2 * first_nonzero(config, "num_global_layers")
    return layers * block + gates + hidden + _patch(config, False) + places + 4 * hidden


def _pixtral(config: Config, family: Family) -> int:
    hidden, inner = first_present(config, "hidden_size"), first_present(config, "intermediate_size")
    block = 4 * hidden * hidden + 3 * hidden * inner + 2 * hidden
    return _patch(config, False) + hidden + first_present(config, "num_hidden_layers") * block


COUNTS: dict[str, Callable[[Config, Family], int]] = {
    "encoder": _encoder,
    "pictures": _picture_encoder,
    "t5": _t5,
    "bart": _bart,
    "qwen": _qwen,
    "mllama": _mllama,
    "pixtral": _pixtral,
}
