"""What the forward pass leaves behind for the backward pass, and the peak of the loss, in bytes per GPU.

Each formula counts the tensors that autograd keeps of a block as transformers 4.57 and torchtitan write it: the inputs
of norms and matrix products, queries, keys, values and output of attention, what the activation function needs. Those
counts were made with torch 2.13 under a FakeTensorMode (``tests/plan/test_kept.py`` counts again) and agree with
Korthikanti et al. (arXiv 2205.05198, equations 1 to 6) where their block is the same.
"""

from functools import lru_cache

from ..model.shape import (
    adapted_inputs,
    attention_width,
    gated,
    is_encoder_decoder,
    keeps_joint_product,
    kv_width,
    writes_gelu_out,
)
from ..types import Model, Setting, Train

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
# Tokens of a target over those of its input, for encoder-decoders (T5's own training: 114 to 512, arXiv 1910.10683).
TARGET_SHARE = 0.25


def counted(model: Model) -> bool:
    """Whether the shape is known that activations are computed from."""
    return bool(model.layers and model.hidden)


def tokens(train: Train) -> float:
    """Tokens of one micro-batch."""
    return float((train.micro_batch or 1) * (train.seq_len or 1))


def width_bytes(train: Train) -> int:
    """Bytes of an element as it is computed with."""
    return 4 if train.dtype == "fp32" else 2


def autocasts(setting: Setting) -> bool:
    """Whether torch.autocast computes in 16 bit on fp32 weights; sharding strategies cast the weights themselves."""
    strategy = setting.layout
    whole = strategy.kind == "single" or strategy.replicates or strategy.sharding == "NO_SHARD"
    return whole and (setting.train.dtype or "").endswith("-mixed")


def lengths_vary(train: Train) -> bool:
    """Whether batches may differ in shape: adapters are trained on examples as they are, unless it is said that they
    are packed or of fixed length. What trains all parameters mostly packs them."""
    return bool(train.lora) and not train.packed and "fixed" not in (train.data or "")


def padded(train: Train) -> bool:
    """Whether each batch is padded to the longest of its sequences, which is another length each time."""
    return lengths_vary(train) and (train.micro_batch or 1) > 1


def recomputes(train: Train) -> bool:
    """Whether blocks, or a part of them, are computed once more in the backward pass."""
    return train.act_ckpt not in (None, "none")


def stream_bytes(setting: Setting) -> int:
    """Bytes of an element of the residual stream, which autocast leaves in fp32."""
    return 4 if autocasts(setting) else width_bytes(setting.train)


def inputs_bytes(setting: Setting) -> float:
    """The input of one block."""
    return tokens(setting.train) * stream_bytes(setting) * (setting.model.hidden or 0)


@lru_cache(maxsize=256)
def block_bytes(setting: Setting) -> float:
    """What one block keeps when nothing is recomputed, without what its adapters keep."""
    train = setting.train
    if train.compile:
        of_token = _compiled_bytes(setting)
    else:
        of_token = _norms_bytes(setting) + _products_bytes(setting) + _attention_bytes(setting) + _middle_bytes(setting)
    return tokens(train) * (of_token + _masks_bytes(setting) + _experts_bytes(setting)) + scores_bytes(setting)


def _has_rms_norm(model: Model) -> bool:
    return gated(model) or is_encoder_decoder(model)


def _norms_bytes(setting: Setting) -> float:
    """Of two norms, per token: their input. RMSNorm as transformers writes it keeps an fp32 copy of a 16-bit input,
    and what it has normalised, where its weight is trained."""
    stream = stream_bytes(setting)
    hidden = setting.model.hidden or 0
    if not _has_rms_norm(setting.model):
        return 2 * hidden * stream
    return 2 * hidden * (4 + (0 if setting.train.lora else stream))


def _products_bytes(setting: Setting) -> float:
    """Of matrix products on norms' outputs, per token: their input, for the gradient of their weight. A frozen one
    needs none, but those of bitsandbytes in 4 bit and of DeepSpeed's stage 3 keep it (``MatMul4Bit``;
    ``LinearFunctionForZeroStage3``, 0.19). Under autocast each product keeps a 16-bit cast of its own."""
    model, train = setting.model, setting.train
    hidden, width = model.hidden or 0, width_bytes(train)
    if train.lora:
        kept_anyway = train.quant in ("nf4", "nf4-dq") or setting.layout.stage == 3
        return (2 * hidden + (model.intermediate or 0)) * width if kept_anyway else 0.0
    casts = (5 if gated(model) else 4) if autocasts(setting) else 2
    return casts * hidden * width


def _attention_bytes(setting: Setting) -> float:
    """Per token: queries, keys, values, and the output, which fused attention keeps itself. Keys and values are spread
    to all heads before (torchtitan, torchtune and transformers' SDPA with a mask do so). Layers of an encoder-decoder
    attend one and a half times on average."""
    attentions = 1.5 if is_encoder_decoder(setting.model) else 1.0
    tensors = 6 if keeps_joint_product(setting.model) else 4
    return attentions * tensors * attention_width(setting.model) * width_bytes(setting.train)


def _middle_bytes(setting: Setting) -> float:
    """Of the feed-forward part, per token: what its activation function needs, and its output for the gradient of the
    last weight. SiLU's and GELU's input; of a gate also both factors; ReLU needs its output alone. A GELU that is
    written out keeps three more, which autocast computes in fp32, as it does powers."""
    model, train = setting.model, setting.train
    needed = 3 if gated(model) else 1
    output = 0 if train.lora or model.mlp == "relu" else 1
    written = 3 * stream_bytes(setting) if writes_gelu_out(model) else 0
    return (model.intermediate or 0) * ((needed + output) * width_bytes(train) + written)


def _masks_bytes(setting: Setting) -> float:
    """Masks of dropout at both ends of a block, per token: a byte for each element; and inside of T5's feed-forward
    part what dropout leaves, with its mask (``T5DenseActDense`` in transformers)."""
    model, train = setting.model, setting.train
    if not train.dropout or (gated(model) and not is_encoder_decoder(model)):
        return 0.0
    left = 0 if train.lora and setting.layout.stage != 3 else width_bytes(train)
    inside = (model.intermediate or 0) * (left + 1) if is_encoder_decoder(model) else 0.0
    return 2 * (model.hidden or 0) + inside


def _experts_bytes(setting: Setting) -> float:
    """Per token: its copies that go to experts, and what comes back before it is weighted. The experts' middles are in
    ``intermediate``, which counts those that a token passes through."""
    model = setting.model
    return 2 * (model.experts_per_token or 0) * (model.hidden or 0) * width_bytes(setting.train)


def _compiled_bytes(setting: Setting) -> float:
    """What a compiled block keeps, per token: norms and activation functions are computed again from eight tensors of
    the hidden size and the feed-forward part's three (torch 2.13's min-cut partitioner); seven and two where frozen."""
    model, width = setting.model, width_bytes(setting.train)
    hidden, inner = model.hidden or 0, model.intermediate or 0
    wider = 4 * (attention_width(model) - hidden)
    if setting.train.lora:
        return (6 * hidden + wider + (2 if gated(model) else 1) * inner) * width
    stream = 2 * (stream_bytes(setting) - width) * hidden
    return (8 * hidden + wider + (3 if gated(model) else 2) * inner) * width + stream


def adapter_bytes(setting: Setting) -> float:
    """The inputs of one block's adapters, which keep them in 16 bit (fp32 on an fp32 base), with masks of dropout."""
    if not setting.train.lora:
        return 0.0
    inputs = adapted_inputs(setting.model, setting.train.lora)
    return tokens(setting.train) * inputs * (width_bytes(setting.train) + ADAPTER_MASK)


def scores_bytes(setting: Setting) -> float:
    """Attention scores, where attention is not fused: ``heads * seq_len`` of them for each token.

    Their softmax, in fp32 under autocast and in transformers' models with RMSNorm, and its 16-bit copy that is
    multiplied; with dropout its mask and output.
    """
    train = setting.train
    if train.attention != "eager":
        return 0.0
    width = width_bytes(train)
    softmax = 4 if autocasts(setting) or _has_rms_norm(setting.model) else width
    each = softmax + (1 + width if train.dropout else width if softmax > width else 0)
    return tokens(train) * (train.seq_len or 0) * (setting.model.heads or 0) * each


def kept_bytes(setting: Setting) -> float:
    """What all blocks keep until their backward pass."""
    model, train = setting.model, setting.train
    layers, inputs = float(model.layers or 0), inputs_bytes(setting)
    if is_encoder_decoder(model):
        layers *= (1 + TARGET_SHARE) / 2
    if train.act_ckpt == "full":
        return min(inputs * layers, 2 * inputs) if train.act_offload else inputs * layers
    block = block_bytes(setting) + adapter_bytes(setting)
    match train.act_ckpt:
        case "selective-op":
            kept = layers * min(block, tokens(train) * width_bytes(train) * _selected(setting))
        case "selective-layer":
            kept = layers / 2 * (inputs + block)
        case _:
            kept = block * layers
    return min(kept, 2 * block) if train.act_offload else kept


def _selected(setting: Setting) -> float:
    """Elements per token of a block that torchtitan's policy keeps: every second matrix product (of seven: queries,
    values, gate, and the last), attention's output and the block's input. Compiled, the last product is not kept, as
    nothing needs it."""
    model = setting.model
    hidden = model.hidden or 0
    return (3 if setting.train.compile else 4) * hidden + kv_width(model) + (model.intermediate or 0)


def recomputed_bytes(setting: Setting) -> float:
    """What one block keeps again that is computed once more."""
    return block_bytes(setting) + adapter_bytes(setting) if recomputes(setting.train) else 0.0


def flow_bytes(setting: Setting) -> float:
    """The gradients that flow through a block in its backward pass: of the two factors of a gate with what they are
    made from (where the weights are frozen, three are left, as none is used up for a weight's gradient)."""
    model, train = setting.model, setting.train
    hidden, inner = model.hidden or 0, model.intermediate or 0
    elements = 3 * inner if train.lora and gated(model) else 2 * inner + 2 * hidden * (1 if gated(model) else 0)
    return tokens(train) * elements * width_bytes(train)


@lru_cache(maxsize=256)
def logits_bytes(setting: Setting) -> float:
    """The logits and their copies at the peak of the loss: as computed, and in fp32 (log-softmax, gradients)."""
    model, train = setting.model, setting.train
    count = tokens(train) * (model.vocab or 0) * (TARGET_SHARE if is_encoder_decoder(model) else 1)
    if "no LM head" in model.note:
        return 0.0
    loss = train.loss or "eager"
    if loss == "fused-linear":
        return min(count, tokens(train) * (model.hidden or 0)) * (4 + 2)
    copies = CHUNKED_COMPILED if loss == "chunked" and train.compile else FP32_LOGITS_COPIES[loss]
    return count * (4 * copies + held_logits_bytes(setting))


def held_logits_bytes(setting: Setting) -> int:
    """Bytes per logit besides those copies: what the loop holds, or what chunks are of."""
    loss, width = setting.train.loss or "eager", width_bytes(setting.train)
    if loss == "eager":
        return HELD_LOGITS_BYTES.get(setting.layout.kind, width)
    return width if loss == "chunked" else 0
