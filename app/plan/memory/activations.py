"""What the forward pass leaves behind for the backward pass, and the peak of the loss, in bytes per GPU.

Each formula counts the tensors that autograd keeps of a block as transformers 4.57 and torchtitan write it: the inputs
of norms and matrix products, queries, keys, values and output of attention, what the activation function needs. Those
counts were made with torch 2.13 under a FakeTensorMode (``tests/plan/test_kept.py`` counts again) and agree with
Korthikanti et al. (arXiv 2205.05198, equations 1 to 6) where their block is the same.
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
# logits. A compiled loss keeps the logits as they come and their gradient: 4 bytes where they come in 16 bit, as in
# torchtitan, 8 in fp32, as in torchtune without chunks. In 8 chunks the log-softmax of all stays, with one chunk's
# gradients; compiled, one chunk in fp32. A fused linear loss has chunks of about as many logits as tokens times
# hidden size (Liger's ``fused_linear_cross_entropy``).
FP32_LOGITS_COPIES = {"eager": 3, "compiled": 1.5, "chunked": 1 + 1 / 8, "fused-linear": 0.0}
CHUNKED_COMPILED = 1 / 8
# What the loop still holds of the model's output in the backward pass, bytes per logit, besides those copies:
# torchtitan deletes it; a loop around transformers holds it as it was computed (its Trainer drops it). FSDP1's time was
# that of transformers before 4.45, whose output holds the logits in fp32.
HELD_LOGITS_BYTES = {"fsdp2": 0, "hsdp": 0, "fsdp1": 4}
ADAPTER_MASK = 1  # byte of dropout before an adapter, which most recipes have (PEFT's examples, ms-swift: 0.05 to 0.1)


def has_known_shape(model: Model) -> bool:
    """Whether the shape is known that activations are computed from."""
    return bool(model.layers and model.hidden)


def compute_dtype_bytes(train: TrainingOptions) -> int:
    """Bytes of an element as it is computed with."""
    return 4 if train.dtype == "fp32" else 2


def uses_autocast(setting: TrainingSetup) -> bool:
    """Whether torch.autocast computes in 16 bit on fp32 weights; sharding strategies cast the weights themselves."""
    strategy = setting.layout
    whole = strategy.kind == "single" or strategy.replicates or strategy.sharding == "NO_SHARD"
    return whole and (setting.train.dtype or "").endswith("-mixed")


def lengths_vary(train: TrainingOptions) -> bool:
    """Whether batches may differ in shape: adapters are trained on examples as they are, unless it is said that they
    are packed or of fixed length. What trains all parameters mostly packs them."""
    return bool(train.lora) and not train.packed and "fixed" not in (train.data or "")


def pads_to_longest(train: TrainingOptions) -> bool:
    """Whether each batch is padded to the longest of its sequences, which is another length each time."""
    return lengths_vary(train) and (train.micro_batch or 1) > 1


def recomputes_activations(train: TrainingOptions) -> bool:
    """Whether blocks, or a part of them, are computed once more in the backward pass."""
    return train.act_ckpt not in (None, "none")


def residual_stream_bytes(setting: TrainingSetup) -> int:
    """Bytes of an element of the residual stream, which autocast leaves in fp32."""
    return 4 if uses_autocast(setting) else compute_dtype_bytes(setting.train)


def block_input_bytes(setting: TrainingSetup) -> float:
    """The input of one block."""
    return layer_tokens(setting) * residual_stream_bytes(setting) * (setting.model.hidden or 0)


@lru_cache(maxsize=256)
def block_activation_bytes(setting: TrainingSetup) -> float:
    """What one block keeps when nothing is recomputed, on average, without what its adapters keep."""
    crossed = (
        2 * attention_width(setting.model) * compute_dtype_bytes(setting.train)
    )  # keys and values of the encoder's tokens

    def of_sequence(kind: LayerGroup) -> float:
        return kind.length * _of_token_bytes(setting, kind) + kind.attended * crossed

    return average_per_layer(setting, of_sequence) + attention_score_bytes(setting)


def _of_token_bytes(setting: TrainingSetup, kind: LayerGroup) -> float:
    """What a block keeps of one token, without attention's scores."""
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
    """Of norms, per token: before each part of a block, of what goes into it where the family has such, and what is
    scaled or gated at the hidden size."""
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
    """Of one norm, for each element of ``width`` bytes. LayerNorm keeps its input. RMSNorm as transformers writes it
    keeps an fp32 copy of it, T5's the input besides, and where the weight is trained what is normalised: in fp32 where
    the family multiplies the weight in fp32. Cohere's LayerNorm keeps its fp32 input twice."""
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
    """Of matrix products on norms' outputs, per token: their input, for the gradient of their weight. A frozen one
    needs none, but those of bitsandbytes in 4 bit and of DeepSpeed's stage 3 keep it (``MatMul4Bit``;
    ``LinearFunctionForZeroStage3``, 0.19). Under autocast each product keeps a 16-bit cast of its own."""
    model, train = setting.model, setting.train
    hidden, width = model.hidden or 0, compute_dtype_bytes(train)
    inputs = block_layout(model).products + crosses
    if train.lora:
        kept_anyway = train.quant in ("nf4", "nf4-dq") or setting.layout.stage == 3
        return (inputs * hidden + (model.intermediate or 0)) * width if kept_anyway else 0.0
    casts = (5 if has_gated_mlp(model) else 4) + crosses if uses_autocast(setting) else inputs
    return casts * hidden * width


def _attention_bytes(setting: TrainingSetup, crosses: bool) -> float:
    """Per token: queries, keys, values, and the output, which fused attention keeps itself. Keys and values are spread
    to all heads before (torchtitan, torchtune and transformers' SDPA with a mask do so); where none is spread, values
    may be a view of one product with queries and keys, which stays with them beside the rotated ones. Queries and
    output of attention to an encoder come besides."""
    model, train = setting.model, setting.train
    written = block_layout(model)
    tensors = 6.0 if crosses else 2 * (1 + written.value_share)
    if train.attention != "eager":
        tensors += 2 if written.joint and kv_width(model) == attention_width(model) else 0
        tensors += 1 if written.copied and not train.lora else 0
    return tensors * attention_width(model) * compute_dtype_bytes(train)


def _middle_bytes(setting: TrainingSetup) -> float:
    """Of the feed-forward part, per token: what its activation function needs, and its output for the gradient of the
    last weight. SiLU's and GELU's input; of a gate also both factors; ReLU needs its output alone. A function that is
    written out keeps more: GELU's three, which autocast computes in fp32, as it does powers."""
    model, train = setting.model, setting.train
    written = block_layout(model)
    needed = 3 if has_gated_mlp(model) else 1
    output = 0 if train.lora or model.mlp == "relu" else 1
    more = written.inner * (residual_stream_bytes(setting) if written.inner_fp32 else compute_dtype_bytes(train))
    return (model.intermediate or 0) * ((needed + output) * compute_dtype_bytes(train) + more)


def _masks_bytes(setting: TrainingSetup, crosses: bool) -> float:
    """Masks of dropout after each part of a block, per token: a byte for each element; and inside of T5's feed-forward
    part its mask, with what dropout leaves where the ReLU before needs its own output (``T5DenseActDense``)."""
    model, train = setting.model, setting.train
    if not train.dropout or (has_gated_mlp(model) and not is_encoder_decoder(model)):
        return 0.0
    left = 0 if has_gated_mlp(model) or (train.lora and setting.layout.stage != 3) else compute_dtype_bytes(train)
    inside = (model.intermediate or 0) * (left + 1) if block_layout(model).norm == "rms-t5" else 0.0
    return (2 + crosses) * (model.hidden or 0) + inside


def _experts_bytes(setting: TrainingSetup) -> float:
    """Per token: its copies that go to experts, and what comes back before it is weighted. The experts' middles are in
    ``intermediate``, which counts those that a token passes through."""
    model = setting.model
    return 2 * (model.experts_per_token or 0) * (model.hidden or 0) * compute_dtype_bytes(setting.train)


def _compiled_bytes(setting: TrainingSetup) -> float:
    """What a compiled block keeps, per token: norms and activation functions are computed again from eight tensors of
    the hidden size and the feed-forward part's three (torch 2.13's min-cut partitioner); seven and two where frozen."""
    model, width = setting.model, compute_dtype_bytes(setting.train)
    hidden, inner = model.hidden or 0, model.intermediate or 0
    wider = 4 * (attention_width(model) - hidden)
    if setting.train.lora:
        return (6 * hidden + wider + (2 if has_gated_mlp(model) else 1) * inner) * width
    stream = 2 * (residual_stream_bytes(setting) - width) * hidden
    return (8 * hidden + wider + (3 if has_gated_mlp(model) else 2) * inner) * width + stream


def adapter_activation_bytes(setting: TrainingSetup) -> float:
    """The inputs of one block's adapters, which keep them in 16 bit (fp32 on an fp32 base), with masks of dropout."""
    if not setting.train.lora:
        return 0.0
    inputs = adapter_input_width(setting.model, setting.train.lora)
    return layer_tokens(setting) * inputs * (compute_dtype_bytes(setting.train) + ADAPTER_MASK)


def attention_score_bytes(setting: TrainingSetup) -> float:
    """Attention scores of one block, on average, where attention is not fused: ``heads * seq_len`` for each token.

    Their softmax, in fp32 under autocast and in many of transformers' models, and its 16-bit copy that is multiplied;
    with dropout its mask and output; and the tanh that caps them.
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
    """What all blocks keep until their backward pass."""
    return main_activation_bytes(setting) + vision_activation_bytes(setting)


def vision_activation_bytes(setting: TrainingSetup) -> float:
    """What the blocks keep that see pictures: nothing where adapters are trained, which are the language model's."""
    seen = None if setting.train.lora else vision_setting(setting)
    return main_activation_bytes(seen) if seen else 0.0


@lru_cache(maxsize=256)
def main_activation_bytes(setting: TrainingSetup) -> float:
    """What the blocks keep that see text, or of a vision model all."""
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
    """Elements per token of a block that torchtitan's policy keeps: every second matrix product (of seven: queries,
    values, gate, and the last), attention's output and the block's input. Compiled, the last product is not kept, as
    nothing needs it."""
    model = setting.model
    hidden = model.hidden or 0
    return (3 if setting.train.compile else 4) * hidden + kv_width(model) + (model.intermediate or 0)


def recomputed_block_bytes(setting: TrainingSetup) -> float:
    """What one block keeps again that is computed once more: the largest, of text or of pictures."""
    if not recomputes_activations(setting.train):
        return 0.0
    seen = None if setting.train.lora else vision_setting(setting)
    return max(
        block_activation_bytes(setting) + adapter_activation_bytes(setting),
        block_activation_bytes(seen) if seen else 0.0,
    )


def activation_gradient_bytes(setting: TrainingSetup) -> float:
    """The gradients that flow through a block in its backward pass: of the two factors of a gate with what they are
    made from (where the weights are frozen, three are left, as none is used up for a weight's gradient)."""
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
    """The logits and their copies at the peak of the loss: as computed, and in fp32 (log-softmax, gradients)."""
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
    """Bytes per logit besides those copies: what the loop holds, or what chunks are of."""
    loss, width = setting.train.loss or "eager", compute_dtype_bytes(setting.train)
    if loss == "eager":
        return HELD_LOGITS_BYTES.get(setting.layout.kind, width)
    return width if loss == "chunked" else 0
