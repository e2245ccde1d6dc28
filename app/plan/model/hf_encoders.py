"""Parameters of encoders, encoder-decoders and vision models, by family; ``hf_counts`` lists them."""

from .hf_fields import Config, first_present, is_tied, ungated_block, ungated_mlp


def bert(config: Config) -> int:
    """Count BERT and RoBERTa: the encoder with its pooler."""
    hidden, layers = first_present(config, "hidden_size"), first_present(config, "num_hidden_layers")
    tables = first_present(config, "vocab_size") + first_present(config, "max_position_embeddings", default=512)
    tables += first_present(config, "type_vocab_size", default=2)
    blocks = layers * ungated_block(hidden, first_present(config, "intermediate_size"))
    return tables * hidden + 2 * hidden + blocks + hidden * hidden + hidden


def electra(config: Config) -> int:
    hidden, layers = first_present(config, "hidden_size"), first_present(config, "num_hidden_layers")
    narrow = first_present(config, "embedding_size", default=hidden)
    tables = first_present(config, "vocab_size") + first_present(config, "max_position_embeddings", default=512)
    tables += first_present(config, "type_vocab_size", default=2)
    wider = narrow * hidden + hidden if narrow != hidden else 0
    return (
        tables * narrow
        + 2 * narrow
        + wider
        + layers * ungated_block(hidden, first_present(config, "intermediate_size"))
    )


def distilbert(config: Config) -> int:
    hidden = first_present(config, "dim", "hidden_size")
    tables = first_present(config, "vocab_size") + first_present(config, "max_position_embeddings", default=512)
    block = ungated_block(hidden, first_present(config, "hidden_dim", default=4 * hidden))
    return tables * hidden + 2 * hidden + first_present(config, "n_layers", "num_hidden_layers") * block


def t5(config: Config) -> int:
    hidden, inner = first_present(config, "d_model"), first_present(config, "d_ff")
    inside = first_present(config, "d_kv", default=64) * first_present(config, "num_heads")
    feed_forward = (3 if has_gated_t5_mlp(config) else 2) * hidden * inner
    attention, layers = 4 * hidden * inside, first_present(config, "num_layers")
    decoders = first_present(config, "num_decoder_layers", default=layers)
    encoder = layers * (attention + feed_forward + 2 * hidden)
    decoder = decoders * (2 * attention + feed_forward + 3 * hidden)
    each = first_present(config, "relative_attention_num_buckets", default=32) * first_present(config, "num_heads")
    umt5 = config.get("model_type") == "umt5"  # each layer has a table of relative positions, not only the first
    biases = each * (layers + decoders if umt5 else 2)
    table = first_present(config, "vocab_size") * hidden
    return encoder + decoder + biases + 2 * hidden + table * (1 if is_tied(config, "t5") else 2)


def has_gated_t5_mlp(config: Config) -> bool:
    """Return whether T5's feed-forward part has a gate (T5 1.1, Flan-T5); mT5 and UMT5 have one by default."""
    usual = "relu" if config.get("model_type") == "t5" else "gated-gelu"
    return "gated" in str(config.get("feed_forward_proj", usual))


def bart(config: Config) -> int:
    hidden = first_present(config, "d_model")
    encoder = first_present(config, "encoder_layers") * ungated_block(hidden, first_present(config, "encoder_ffn_dim"))
    decoder = first_present(config, "decoder_layers") * (
        ungated_block(hidden, first_present(config, "decoder_ffn_dim")) + 4 * hidden * hidden + 4 * hidden + 2 * hidden
    )
    positions = 2 * (first_present(config, "max_position_embeddings", default=1024) + 2) * hidden
    return encoder + decoder + positions + 4 * hidden + first_present(config, "vocab_size") * hidden


def vit(config: Config) -> int:
    """Count the encoder with its pooler, without a classifier."""
    hidden, layers = first_present(config, "hidden_size"), first_present(config, "num_hidden_layers")
    block = ungated_block(hidden, first_present(config, "intermediate_size"))
    if not config.get("qkv_bias", True):
        block -= 3 * hidden
    pooler = first_present(config, "pooler_output_size", default=hidden)
    tables = (patch_count(config) + 2) * hidden  # positions of patches and class token, and the class token
    return _patch(config, True) + tables + layers * block + 2 * hidden + hidden * pooler + pooler


def dinov2(config: Config) -> int:
    hidden, layers = first_present(config, "hidden_size"), first_present(config, "num_hidden_layers")
    inner = hidden * first_present(config, "mlp_ratio", default=4)
    if config.get("use_swiglu_ffn", False):
        inner = (inner * 2 // 3 + 7) // 8 * 8
        feed_forward = hidden * 2 * inner + 2 * inner + inner * hidden + hidden
    else:
        feed_forward = ungated_mlp(hidden, inner)
    block = 4 * hidden * hidden + (4 if config.get("qkv_bias", True) else 1) * hidden + feed_forward
    block += 4 * hidden + 2 * hidden  # norms, and the scales of its layers
    return _patch(config, True) + (patch_count(config) + 3) * hidden + layers * block + 2 * hidden  # with a mask token


def clip_vision(config: Config) -> int:
    hidden, layers = first_present(config, "hidden_size"), first_present(config, "num_hidden_layers")
    block = ungated_block(hidden, first_present(config, "intermediate_size"))
    return _patch(config, False) + (patch_count(config) + 2) * hidden + layers * block + 4 * hidden


def siglip_vision(config: Config) -> int:
    hidden, layers = first_present(config, "hidden_size"), first_present(config, "num_hidden_layers")
    block = ungated_block(hidden, first_present(config, "intermediate_size"))
    pooling = block - 2 * hidden + hidden if config.get("vision_use_head", True) else 0  # one norm, and the query
    return _patch(config, True) + patch_count(config) * hidden + layers * block + 2 * hidden + pooling


def _patch(config: Config, bias: bool) -> int:
    hidden, patch = first_present(config, "hidden_size"), first_present(config, "patch_size")
    return first_present(config, "num_channels", default=3) * patch * patch * hidden + (hidden if bias else 0)


def patch_count(config: Config) -> int:
    """Return the number of patches of an image."""
    return (first_present(config, "image_size", default=224) // first_present(config, "patch_size")) ** 2
