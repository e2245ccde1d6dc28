"""Activation memory: bytes per GPU that the forward pass saves for the backward pass, and the peak of the loss.

Each formula counts the tensors that autograd saves for a block as transformers 4.57 and torchtitan write it: the inputs
of norms and matrix products, queries, keys, values and output of attention, and what the activation function needs. The
counts were made with torch 2.13 under a FakeTensorMode (``tests/plan/memory/test_activations.py`` repeats them) and
agree with Korthikanti et al. (arXiv 2205.05198, equations 1 to 6) where their block is the same.
"""

from functools import lru_cache

from ..model.parameter_counts import (
    adapter_input_width,
    attention_width,
    block_layout,
    has_gated_mlp,
    is_encoder_decoder,
    kv_width,
)
from ..types import Model, TrainingOptions, TrainingSetup
from .token_counts import LayerGroup, average_per_layer, batch_tokens, layer_tokens, target_tokens, vision_setting

# In fp32 (torch 2.13, live storages counted over forward and backward): log-softmax, its gradient and that of the
# logits. A compiled loss keeps the logits as computed and their gradient: 4 bytes per logit in 16 bit, as in
# torchtitan, 8 in fp32, as in torchtune without chunks. In 8 chunks the log-softmax of all chunks stays, with the
# gradients of one; compiled, one chunk in fp32. A fused linear loss has chunks of about as many logits as tokens times
# hidden size (Liger's ``fused_linear_cross_entropy``).
FP32_LOGITS_COPIES = {"eager": 3, "compiled": 1.5, "chunked": 1 + 1 / 8, "fused-linear": 0.0}
CHUNKED_COMPILED = 1 / 8
# Bytes per logit of the model's output that the training loop still holds in the backward pass, in addition to those
# copies: torchtitan deletes it; a loop around transformers holds it as computed (its Trainer drops it). FSDP1 dates
# from transformers before 4.45, whose output holds the logits in fp32.
HELD_LOGITS_BYTES = {"fsdp2": 0, "hsdp": 0, "fsdp1": 4}
ADAPTER_MASK = 1  # bytes of a dropout mask before an adapter, which most recipes have (PEFT, ms-swift: 0.05 to 0.1)


def has_known_shape(model: Model) -> bool:
    """Return whether the sizes that activations are computed from are known."""
    return bool(model.layers and model.hidden)


def compute_dtype_bytes(train: TrainingOptions) -> int:
    """Return the bytes per element of the compute precision."""
    return 4 if train.dtype == "fp32" else 2


def uses_autocast(setting: TrainingSetup) -> bool:
    """Return whether torch.autocast computes in 16 bit on fp32 weights (sharding strategies cast the weights
    themselves).
    """
    strategy = setting.layout
    whole = strategy.kind == "single" or strategy.replicates or strategy.sharding == "NO_SHARD"
    return whole and (setting.train.dtype or "").endswith("-mixed")


def lengths_vary(train: TrainingOptions) -> bool:
    """Return whether batches may differ in shape.

    Adapters are trained on examples of their own length unless packed or fixed-length data is specified; full training
    mostly packs them.
    """
    return bool(train.lora) and not train.packed and "fixed" not in (train.data or "")


def pads_to_longest(train: TrainingOptions) -> bool:
    """Return whether each batch is padded to its longest sequence, so that its length differs each time."""
    return lengths_vary(train) and (train.micro_batch or 1) > 1


def recomputes_activations(train: TrainingOptions) -> bool:
    """Return whether blocks, or a part of them, are recomputed in the backward pass."""
    return train.act_ckpt not in (None, "none")


def residual_stream_bytes(setting: TrainingSetup) -> int:
    """Return the bytes per element of the residual stream, which autocast leaves in fp32."""
    return 4 if uses_autocast(setting) else compute_dtype_bytes(setting.train)


def block_input_bytes(setting: TrainingSetup) -> float:
    """Return the bytes of the input of one block."""
    return layer_tokens(setting) * residual_stream_bytes(setting) * (setting.model.hidden or 0)


@lru_cache(maxsize=256)
def block_activation_bytes(setting: TrainingSetup) -> float:
    """Return the average bytes that one block saves without recomputation and without its adapters."""
    crossed = (
        2 * attention_width(setting.model) * compute_dtype_bytes(setting.train)
    )  # keys and values of the encoder's tokens

    def of_sequence(kind: LayerGroup) -> float:
        return kind.length * _of_token_bytes(setting, kind) + kind.attended * crossed

    return average_per_layer(setting, of_sequence) + attention_score_bytes(setting)


def _of_token_bytes(setting: TrainingSetup, kind: LayerGroup) -> float:
    """Return the bytes that a block saves for one token, without attention scores."""
    crosses = kind.attended > 0
    if setting.train.compile:
        return _compiled_bytes(setting) + _masks_bytes(setting, crosses) + _experts_bytes(setting)
    return (
        _norms_bytes(setting, crosses)
        + _products_bytes(setting, crosses)
        + _attention_bytes(setting, crosses)
        + _middle_bytes(setting)
        + _masks_bytes(setting, crosses)
        + _experts_bytes(setting)
    )


def _norms_bytes(setting: TrainingSetup, crosses: bool) -> float:
    """Return the bytes per token saved for norms: those before each part of a block, those of its outputs where the
    family has them, and tensors that are scaled or gated at the hidden size.
    """
    model, width = setting.model, compute_dtype_bytes(setting.train)
    written = block_layout(model)
    hidden = (model.hidden or 0) * (written.norms + crosses)
    inside = attention_width(model) + kv_width(model) if written.normed_heads else 0.0
    others = written.others * (model.hidden or 0) * width
    latent = written.latent * (_norm_bytes(setting, width) + width)  # normed, and taken by a product
    return (
        hidden * _norm_bytes(setting, residual_stream_bytes(setting))
        + inside * _norm_bytes(setting, width)
        + latent
        + others
    )


def _norm_bytes(setting: TrainingSetup, width: int) -> int:
    """Return the bytes saved for one norm per element of ``width`` bytes.

    LayerNorm saves its input. RMSNorm as transformers writes it saves an fp32 copy of it, T5's also the input, and with
    a trained weight the normalised values: in fp32 if the family multiplies the weight in fp32. Cohere's LayerNorm
    saves its fp32 input twice.
    """
    trained = not setting.train.lora
    match block_layout(setting.model).norm:
        case "layer":
            return width
        case "rms":
            return 4 + width * trained
        case "rms-t5":
            return 4 + (width if width < 4 else 0) + width * trained
        case "rms-fp32":
            return 4 + 4 * trained
        case _:
            return 8 + 4 * trained


def _products_bytes(setting: TrainingSetup, crosses: bool) -> float:
    """Return the bytes per token saved for matrix products on the outputs of norms.

    Each saves its input for the gradient of its weight. A frozen weight needs none, but bitsandbytes in 4 bit and
    DeepSpeed stage 3 save it (``MatMul4Bit``; ``LinearFunctionForZeroStage3``, 0.19). Under autocast each product saves
    its own 16-bit cast.
    """
    model, train = setting.model, setting.train
    hidden, width = model.hidden or 0, compute_dtype_bytes(train)
    inputs = block_layout(model).products + crosses
    if train.lora:
        kept_anyway = train.quant in ("nf4", "nf4-dq") or setting.layout.stage == 3
        return (inputs * hidden + (model.intermediate or 0)) * width if kept_anyway else 0.0
    casts = (5 if has_gated_mlp(model) else 4) + crosses if uses_autocast(setting) else inputs
    return casts * hidden * width


def _attention_bytes(setting: TrainingSetup, crosses: bool) -> float:
    """Return the bytes per token saved for attention: queries, keys, values, and the output, which fused attention
    saves.

    Keys and values are expanded to all heads first (by torchtitan, torchtune and transformers' SDPA with a mask). If
    none is expanded, values may be a view of one product with queries and keys, which is then saved in addition to the
    rotated ones. Queries and output of cross-attention are added.
    """
    model, train = setting.model, setting.train
    written = block_layout(model)
    tensors = 6.0 if crosses else 2 * (1 + written.value_share)
    if train.attention != "eager":
        tensors += 2 if written.joint and kv_width(model) == attention_width(model) else 0
        tensors += 1 if written.copied and not train.lora else 0
    return tensors * attention_width(model) * compute_dtype_bytes(train)


def _middle_bytes(setting: TrainingSetup) -> float:
    """Return the bytes per token saved in the feed-forward part.

    That is what its activation function needs, and its output for the gradient of the last weight: the input of SiLU
    and GELU; with a gate also both factors; for ReLU its output alone. A function written in elementary operations
    saves more: GELU three tensors, which autocast computes in fp32, as it does powers.
    """
    model, train = setting.model, setting.train
    written = block_layout(model)
    needed = 3 if has_gated_mlp(model) else 1
    output = 0 if train.lora or model.mlp == "relu" else 1
    more = written.inner * (residual_stream_bytes(setting) if written.inner_fp32 else compute_dtype_bytes(train))
    return (model.intermediate or 0) * ((needed + output) * compute_dtype_bytes(train) + more)


def _masks_bytes(setting: TrainingSetup, crosses: bool) -> float:
    """Return the bytes per token of dropout masks after each part of a block, one byte per element.

    T5's feed-forward part has another mask inside, and saves the output of that dropout because the ReLU before it
    needs its own output (``T5DenseActDense``).
    """
    model, train = setting.model, setting.train
    if not train.dropout or (has_gated_mlp(model) and not is_encoder_decoder(model)):
        return 0.0
    left = 0 if has_gated_mlp(model) or (train.lora and setting.layout.stage != 3) else compute_dtype_bytes(train)
    inside = (model.intermediate or 0) * (left + 1) if block_layout(model).norm == "rms-t5" else 0.0
    return (2 + crosses) * (model.hidden or 0) + inside


def _experts_bytes(setting: TrainingSetup) -> float:
    """Return the bytes per token of the copies sent to experts and of their outputs before weighting.

    The inner tensors of experts are in ``intermediate``, which counts those that a token passes through.
    """
    model = setting.model
    return 2 * (model.experts_per_token or 0) * (model.hidden or 0) * compute_dtype_bytes(setting.train)


def _compiled_bytes(setting: TrainingSetup) -> float:
    """Return the bytes per token that a compiled block saves.

    Norms and activation functions are recomputed from eight tensors of the hidden size and three of the feed-forward
    part (torch 2.13's min-cut partitioner); from seven and two if weights are frozen.
    """
    model, width = setting.model, compute_dtype_bytes(setting.train)
    hidden, inner = model.hidden or 0, model.intermediate or 0
    wider = 4 * (attention_width(model) - hidden)
    if setting.train.lora:
        return (6 * hidden + wider + (2 if has_gated_mlp(model) else 1) * inner) * width
    stream = 2 * (residual_stream_bytes(setting) - width) * hidden
    return (8 * hidden + wider + (3 if has_gated_mlp(model) else 2) * inner) * width + stream


def adapter_activation_bytes(setting: TrainingSetup) -> float:
    """Return the bytes of the inputs of one block's adapters, in 16 bit (fp32 on an fp32 base), with dropout masks."""
    if not setting.train.lora:
        return 0.0
    inputs = adapter_input_width(setting.model, setting.train.lora)
    return layer_tokens(setting) * inputs * (compute_dtype_bytes(setting.train) + ADAPTER_MASK)


def attention_score_bytes(setting: TrainingSetup) -> float:
    """Return the average bytes of attention scores of one block: ``heads * seq_len`` per token unless attention is
    fused.

    Saved are the softmax, in fp32 under autocast and in many models of transformers, and its 16-bit copy for the
    product; with dropout also its mask and output; and the tanh of capped scores.
    """
    train, written = setting.train, block_layout(setting.model)
    if train.attention != "eager":
        return 0.0
    width = compute_dtype_bytes(train)
    softmax = 4 if uses_autocast(setting) or written.wide_softmax else width
    dropped = train.dropout and written.drops_scores
    each = softmax + (1 + width if dropped else width if softmax > width else 0) + width * written.capped
    pairs = average_per_layer(setting, lambda kind: kind.length * (kind.length + kind.attended))
    return (setting.model.heads or 0) * each * pairs


def stored_activation_bytes(setting: TrainingSetup) -> float:
    """Return the bytes that all blocks save until their backward pass."""
    return main_activation_bytes(setting) + vision_activation_bytes(setting)


def vision_activation_bytes(setting: TrainingSetup) -> float:
    """Return the bytes that the blocks of the vision tower save: none if adapters of the language model are trained."""
    seen = None if setting.train.lora else vision_setting(setting)
    return main_activation_bytes(seen) if seen else 0.0


@lru_cache(maxsize=256)
def main_activation_bytes(setting: TrainingSetup) -> float:
    """Return the bytes that the text blocks save, or all blocks of a vision model."""
    train = setting.train
    layers, inputs = float(setting.model.layers or 0), block_input_bytes(setting)
    if train.act_ckpt == "full":
        return min(inputs * layers, 2 * inputs) if train.act_offload else inputs * layers
    block = block_activation_bytes(setting) + adapter_activation_bytes(setting)
    match train.act_ckpt:
        case "selective-op":
            kept = layers * min(block, layer_tokens(setting) * compute_dtype_bytes(train) * _selected(setting))
        case "selective-layer":
            kept = layers / 2 * (inputs + block)
        case _:
            kept = block * layers
    return min(kept, 2 * block) if train.act_offload else kept


def _selected(setting: TrainingSetup) -> float:
    """Return the elements per token of a block that torchtitan's selective policy saves.

    Those are every second matrix product (of seven: queries, values, gate, and the last), the output of attention and
    the input of the block. The compiled policy does not save the last product, which nothing needs.
    """
    model = setting.model
    hidden = model.hidden or 0
    return (3 if setting.train.compile else 4) * hidden + kv_width(model) + (model.intermediate or 0)


def recomputed_block_bytes(setting: TrainingSetup) -> float:
    """Return the bytes saved again for the largest block that is recomputed, of text or of vision."""
    if not recomputes_activations(setting.train):
        return 0.0
    seen = None if setting.train.lora else vision_setting(setting)
    return max(
        block_activation_bytes(setting) + adapter_activation_bytes(setting),
        block_activation_bytes(seen) if seen else 0.0,
    )


def activation_gradient_bytes(setting: TrainingSetup) -> float:
    """Return the bytes of gradients that flow through a block in its backward pass.

    They are those of the two factors of a gate with the tensors they are computed from. With frozen weights three are
    left, as none is used up for the gradient of a weight.
    """
    model, train = setting.model, setting.train
    hidden, inner = model.hidden or 0, model.intermediate or 0
    elements = (
        3 * inner
        if train.lora and has_gated_mlp(model)
        else 2 * inner + 2 * hidden * (1 if has_gated_mlp(model) else 0)
    )
    return batch_tokens(train) * elements * compute_dtype_bytes(train)


@lru_cache(maxsize=256)
def logits_bytes(setting: TrainingSetup) -> float:
    """Return the bytes of logits and their copies at the peak of the loss: as computed, and in fp32 (log-softmax,
    gradients).
    """
    model, train = setting.model, setting.train
    count = target_tokens(setting) * (model.vocab or 0)
    if "no LM head" in model.note:
        return 0.0
    loss = train.loss or "eager"
    if loss == "fused-linear":
        return min(count, batch_tokens(train) * (model.hidden or 0)) * (4 + 2)
    copies = CHUNKED_COMPILED if loss == "chunked" and train.compile else FP32_LOGITS_COPIES[loss]
    return count * (4 * copies + held_bytes_per_logit(setting))


def held_bytes_per_logit(setting: TrainingSetup) -> int:
    """Return the bytes per logit in addition to those copies: held by the loop, or the source of chunks."""
    loss, width = setting.train.loss or "eager", compute_dtype_bytes(setting.train)
    if loss == "eager":
        return HELD_LOGITS_BYTES.get(setting.layout.kind, width)
    return width if loss == "chunked" else 0
