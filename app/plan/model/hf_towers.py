"""Parameters of encoders, encoder-decoders and vision models, by family; ``hf_counts`` has the list of them."""

from .hf_fields import Config, plain, plain_block, tied, whole


def bert(config: Config) -> int:
    """BERT, RoBERTa: the encoder with its pooler."""
    hidden, layers = whole(config, "hidden_size"), whole(config, "num_hidden_layers")
    tables = whole(config, "vocab_size") + whole(config, "max_position_embeddings", default=512)
    tables += whole(config, "type_vocab_size", default=2)
    blocks = layers * plain_block(hidden, whole(config, "intermediate_size"))
    return tables * hidden + 2 * hidden + blocks + hidden * hidden + hidden


def electra(config: Config) -> int:
    hidden, layers = whole(config, "hidden_size"), whole(config, "num_hidden_layers")
    narrow = whole(config, "embedding_size", default=hidden)
    tables = whole(config, "vocab_size") + whole(config, "max_position_embeddings", default=512)
    tables += whole(config, "type_vocab_size", default=2)
    wider = narrow * hidden + hidden if narrow != hidden else 0
    return tables * narrow + 2 * narrow + wider + layers * plain_block(hidden, whole(config, "intermediate_size"))


def distilbert(config: Config) -> int:
    hidden = whole(config, "dim", "hidden_size")
    tables = whole(config, "vocab_size") + whole(config, "max_position_embeddings", default=512)
    block = plain_block(hidden, whole(config, "hidden_dim", default=4 * hidden))
    return tables * hidden + 2 * hidden + whole(config, "n_layers", "num_hidden_layers") * block


def t5(config: Config) -> int:
    hidden, inner = whole(config, "d_model"), whole(config, "d_ff")
    inside = whole(config, "d_kv", default=64) * whole(config, "num_heads")
    feed_forward = (3 if gated_pair(config) else 2) * hidden * inner
    attention, layers = 4 * hidden * inside, whole(config, "num_layers")
    decoders = whole(config, "num_decoder_layers", default=layers)
    encoder = layers * (attention + feed_forward + 2 * hidden)
    decoder = decoders * (2 * attention + feed_forward + 3 * hidden)
    each = whole(config, "relative_attention_num_buckets", default=32) * whole(config, "num_heads")
    umt5 = config.get("model_type") == "umt5"  # each of its layers has a table of relative positions, not the first
    biases = each * (layers + decoders if umt5 else 2)
    table = whole(config, "vocab_size") * hidden
    return encoder + decoder + biases + 2 * hidden + table * (1 if tied(config, "t5") else 2)


def gated_pair(config: Config) -> bool:
    """Whether T5's feed-forward part has a gate (T5 1.1, Flan-T5); mT5's and UMT5's have one unless told."""
    usual = "relu" if config.get("model_type") == "t5" else "gated-gelu"
    return "gated" in str(config.get("feed_forward_proj", usual))


def bart(config: Config) -> int:
    hidden = whole(config, "d_model")
    encoder = whole(config, "encoder_layers") * plain_block(hidden, whole(config, "encoder_ffn_dim"))
    decoder = whole(config, "decoder_layers") * (
        plain_block(hidden, whole(config, "decoder_ffn_dim")) + 4 * hidden * hidden + 4 * hidden + 2 * hidden
    )
    positions = 2 * (whole(config, "max_position_embeddings", default=1024) + 2) * hidden
    return encoder + decoder + positions + 4 * hidden + whole(config, "vocab_size") * hidden


def vit(config: Config) -> int:
    """The encoder with its pooler, without a classifier."""
    hidden, layers = whole(config, "hidden_size"), whole(config, "num_hidden_layers")
    block = plain_block(hidden, whole(config, "intermediate_size"))
    if not config.get("qkv_bias", True):
        block -= 3 * hidden
    pooler = whole(config, "pooler_output_size", default=hidden)
    tables = (patches(config) + 2) * hidden  # positions of the patches and of the class, and the class itself
    return _patch(config, True) + tables + layers * block + 2 * hidden + hidden * pooler + pooler


def dinov2(config: Config) -> int:
    hidden, layers = whole(config, "hidden_size"), whole(config, "num_hidden_layers")
    inner = hidden * whole(config, "mlp_ratio", default=4)
    if config.get("use_swiglu_ffn", False):
        inner = (inner * 2 // 3 + 7) // 8 * 8
        feed_forward = hidden * 2 * inner + 2 * inner + inner * hidden + hidden
    else:
        feed_forward = plain(hidden, inner)
    block = 4 * hidden * hidden + (4 if config.get("qkv_bias", True) else 1) * hidden + feed_forward
    block += 4 * hidden + 2 * hidden  # norms, and what scales its layers
    return _patch(config, True) + (patches(config) + 3) * hidden + layers * block + 2 * hidden  # and a mask


def clip_vision(config: Config) -> int:
    hidden, layers = whole(config, "hidden_size"), whole(config, "num_hidden_layers")
    block = plain_block(hidden, whole(config, "intermediate_size"))
    return _patch(config, False) + (patches(config) + 2) * hidden + layers * block + 4 * hidden


def siglip_vision(config: Config) -> int:
    hidden, layers = whole(config, "hidden_size"), whole(config, "num_hidden_layers")
    block = plain_block(hidden, whole(config, "intermediate_size"))
    pooling = block - 2 * hidden + hidden if config.get("vision_use_head", True) else 0  # one norm, and what asks
    return _patch(config, True) + patches(config) * hidden + layers * block + 2 * hidden + pooling


def _patch(config: Config, bias: bool) -> int:
    hidden, patch = whole(config, "hidden_size"), whole(config, "patch_size")
    return whole(config, "num_channels", default=3) * patch * patch * hidden + (hidden if bias else 0)


def patches(config: Config) -> int:
    """Patches of a picture."""
    return (whole(config, "image_size", default=224) // whole(config, "patch_size")) ** 2
