"""Activation memory: bytes per GPU that the forward pass saves for the backward pass, and the peak of the loss.

Each formula counts the tensors that autograd saves for a block as transformers 4.57 and torchtitan write it: the inputs
of norms and matrix products, queries, keys, values and output of attention, and what the activation function needs. The
counts were made with torch 2.13 under a FakeTensorMode (``tests/plan/memory/test_activations.py`` repeats them) and
agree with Korthikanti et al. (arXiv 2205.05198, equations 1 to 6) where their block is the same.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from ..model.parameter_counts import (
    adapter_widths,
    attention_width,
    block_layout,
    has_gated_mlp,
    is_encoder_decoder,
    kv_width,
)
from ..types import Model, TrainingOptions, TrainingSetup
from .formula import Factor, Term, term, total_bytes
from .token_counts import (
    LayerGroup,
    batch_tokens,
    layer_groups,
    layer_tokens,
    sequences,
    target_tokens,
    vision_setting,
)

# In fp32 (torch 2.13, live storages counted over forward and backward): log-softmax, its gradient and that of the
# logits. A compiled loss keeps the logits as computed and their gradient: 4 bytes per logit in 16 bit, as in
# torchtitan, 8 in fp32, as in torchtune without chunks. In 8 chunks the log-softmax of all chunks stays, with the
# gradients of one; compiled, one chunk in fp32. A fused linear loss has chunks of about as many logits as tokens times
# hidden size (Liger's ``fused_linear_cross_entropy``).
FP32_LOGITS_COPIES = {"eager": 3, "compiled": 1.5, "chunked": 1 + 1 / 8, "fused-linear": 0.0}
CHUNKED_COMPILED = 1 / 8
# torch's loss_parallel computes the gradient in elementary operations: zeros with the labels, the exponential, and
# their sum, next to the log-softmax (``torch/distributed/tensor/parallel/loss.py``, 2.13).
LOSS_PARALLEL_COPIES = 4
COPIES = {
    "eager": "log-softmax and gradients, in fp32",
    "compiled": "logits and their gradient",
    "chunked": "log-softmax, and one chunk's gradients",
}
ADAPTERS, LOGITS = "inputs of adapters", "logits"
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


def loops_over_experts(train: TrainingOptions) -> bool:
    """Return whether the experts of a layer are computed one after the other.

    transformers does so for torch before 2.9, which has no grouped product for all GPUs (``integrations/moe.py``).
    """
    return train.precedes_torch(2, 9)


def casts_no_experts(setting: TrainingSetup) -> bool:
    """Return whether experts compute in fp32 under autocast.

    The grouped product is not one of the operations that autocast casts, and transformers casts its input to the
    precision of the weights (``integrations/moe.py``; seen on an H200 with torch 2.11).
    """
    return bool(setting.model.experts) and uses_autocast(setting) and not loops_over_experts(setting.train)


def keeps_scores(setting: TrainingSetup) -> bool:
    """Return whether attention saves its scores: eager attention, and fused attention with grouped heads in fp32.

    PyTorch has no fused kernel for that and computes it in operations of its own (seen on an H200 with torch 2.11).
    """
    model, train = setting.model, setting.train
    grouped = bool(model.kv_heads) and model.kv_heads != model.heads
    return train.attention == "eager" or (train.dtype == "fp32" and grouped)


def _inner_width_bytes(setting: TrainingSetup) -> int:
    """Return the bytes per element of the feed-forward part."""
    return 4 if casts_no_experts(setting) else compute_dtype_bytes(setting.train)


def residual_stream_bytes(setting: TrainingSetup) -> int:
    """Return the bytes per element of the residual stream, which autocast leaves in fp32."""
    return 4 if uses_autocast(setting) else compute_dtype_bytes(setting.train)


class TokenPart(NamedTuple):
    """Tensors that a block saves for each of its tokens: their description and the bytes of a token."""

    what: str
    bytes: float


@lru_cache(maxsize=256)
def block_terms(setting: TrainingSetup) -> tuple[Term, ...]:
    """Return what one block saves without recomputation, with its adapters, on average if blocks differ."""
    groups = layer_groups(setting)
    layers = sum(group.layers for group in groups)
    found: list[Term] = []
    for group in groups:
        tokens = sequences(setting) * group.length
        share = group.layers / layers
        for part in _token_parts(setting, group):
            if part.bytes:
                found.append(_saved(part.what, Factor(tokens, "tokens"), Factor(part.bytes * share, "bytes")))
    return tuple(found)


def block_activation_bytes(setting: TrainingSetup) -> float:
    """Return the average bytes that one block saves without recomputation and without its adapters."""
    return total_bytes(tuple(each for each in block_terms(setting) if each.what != ADAPTERS))


def _saved(what: str, *factors: Factor) -> Term:
    return term("activations", what, *factors)


def _token_parts(setting: TrainingSetup, group: LayerGroup) -> Iterator[TokenPart]:
    """Yield what a block of a group saves for one token."""
    crosses = group.attended > 0
    if setting.train.compile:
        yield TokenPart("saved by a compiled block", _compiled_bytes(setting))
    else:
        yield TokenPart("inputs of norms", _norms_bytes(setting, crosses))
        yield TokenPart("inputs of matrix products", _products_bytes(setting, crosses))
        yield TokenPart("queries, keys, values and output of attention", _attention_bytes(setting, crosses))
        yield TokenPart("feed-forward part", _middle_bytes(setting))
    yield TokenPart("dropout masks", _masks_bytes(setting, crosses))
    yield TokenPart("copies for experts", _experts_bytes(setting))
    yield TokenPart("attention scores", _scores_bytes(setting, group))
    yield TokenPart(ADAPTERS, _adapters_bytes(setting))
    if crosses:  # keys and values of the encoder's tokens, which the decoder's tokens share
        keys = 2 * attention_width(setting.model) * compute_dtype_bytes(setting.train)
        yield TokenPart("keys and values of the encoder", keys * group.attended / group.length)


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
        return (inputs * hidden + (model.intermediate or 0)) * width if _saves_frozen_inputs(setting) else 0.0
    casts = (5 if has_gated_mlp(model) else 4) + crosses if uses_autocast(setting) else inputs
    return casts * hidden * width


def _saves_frozen_inputs(setting: TrainingSetup) -> bool:
    return setting.train.quant in ("nf4", "nf4-dq") or setting.layout.stage == 3


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
    needed = 3 if has_gated_mlp(model) else 1
    output = 0 if train.lora or model.mlp == "relu" else 1
    return (model.intermediate or 0) * (needed + output) * _inner_width_bytes(setting) + written_out_bytes(setting)


def written_out_bytes(setting: TrainingSetup) -> float:
    """Return the bytes per token saved for an activation function that is written in elementary operations."""
    layout = block_layout(setting.model)
    width = residual_stream_bytes(setting) if layout.inner_fp32 else compute_dtype_bytes(setting.train)
    return float((setting.model.intermediate or 0) * layout.inner * width)


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
    return 2 * (model.experts_per_token or 0) * (model.hidden or 0) * _inner_width_bytes(setting)


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


def _adapters_bytes(setting: TrainingSetup) -> float:
    """Return the bytes per token of the inputs of adapters, in 16 bit (fp32 on an fp32 base), with dropout masks.

    Without dropout adapters take the tensors that the frozen products take, and save no other ones.
    """
    lora = setting.train.lora
    if not lora or (lora.dropout == 0 and _saves_frozen_inputs(setting)):
        return 0.0
    mask = 0 if lora.dropout == 0 else ADAPTER_MASK
    return adapter_widths(setting.model, lora)[0] * (compute_dtype_bytes(setting.train) + mask)


def _scores_bytes(setting: TrainingSetup, group: LayerGroup) -> float:
    """Return the bytes per token of attention scores: ``heads * seq_len`` if they are saved.

    Saved are the softmax, in fp32 under autocast and in many models of transformers, and its 16-bit copy for the
    product; with dropout also its mask and output; and the tanh of capped scores.
    """
    train, written = setting.train, block_layout(setting.model)
    if not keeps_scores(setting):
        return 0.0
    width = compute_dtype_bytes(train)
    softmax = _softmax_bytes(setting)
    dropped = train.dropout and written.drops_scores
    each = softmax + (1 + width if dropped else width if softmax > width else 0) + width * written.capped
    return (setting.model.heads or 0) * each * (group.length + group.attended)


def _softmax_bytes(setting: TrainingSetup) -> int:
    """Return the bytes per score of the softmax of eager attention."""
    wide = uses_autocast(setting) or block_layout(setting.model).wide_softmax
    return 4 if wide else compute_dtype_bytes(setting.train)


@lru_cache(maxsize=256)
def stored_terms(setting: TrainingSetup) -> tuple[Term, ...]:
    """Return what all blocks save until their backward pass.

    Those of a vision tower save nothing if adapters of the language model are trained.
    """
    seen = None if setting.train.lora else vision_setting(setting)
    of_tower = _all_blocks(seen) if seen else ()
    return _all_blocks(setting) + tuple(each._replace(what=f"vision: {each.what}") for each in of_tower)


def _all_blocks(setting: TrainingSetup) -> tuple[Term, ...]:
    """Return what the text blocks save, or all blocks of a vision model."""
    train, layers = setting.train, Factor(float(setting.model.layers or 0), "layers")
    inputs, block = _block_input(setting), block_terms(setting)
    match train.act_ckpt:
        case "full":
            kept = (inputs.times(layers),)
        case "selective-op":
            width = compute_dtype_bytes(train) * _selected(setting)
            selected = _saved("outputs that are saved", Factor(layer_tokens(setting), "tokens"), Factor(width, "bytes"))
            of_block = (selected,) if selected.bytes < total_bytes(block) else block
            kept = tuple(each.times(layers) for each in of_block)
        case "selective-layer":
            half = Factor(layers.value / 2, "layers")
            kept = tuple(each.times(half) for each in (inputs, *block))
        case _:
            kept = tuple(each.times(layers) for each in block)
    if not train.act_offload:
        return kept
    two = tuple(each.times(Factor(2, "blocks")) for each in ((inputs,) if train.act_ckpt == "full" else block))
    return min(kept, two, key=total_bytes)


def kept_input_terms(setting: TrainingSetup) -> tuple[Term, ...]:
    """Return the inputs of all blocks, and their gradients, if both stay until the end of the backward pass.

    FSDP1 puts a hook on the input of each unit that has no trained weights and removes it at that end
    (``_register_post_backward_reshard_only_hook``, torch 2.1 to 2.13). PEFT wraps adapters separately, so that blocks
    are such units. A block that is recomputed with re-entering has a detached copy of its input: the hook keeps it, and
    with it its gradient.
    """
    train, layout = setting.train, setting.layout
    frozen_units = bool(train.lora) and layout.kind == "fsdp1" and layout.shards_weights
    if not (frozen_units and train.reentrant and train.act_ckpt == "full"):
        return ()
    inputs = _block_input(setting).times(Factor(float(setting.model.layers or 0), "layers"))
    return inputs, inputs._replace(what="gradients of these inputs")


def _block_input(setting: TrainingSetup) -> Term:
    width = residual_stream_bytes(setting) * (setting.model.hidden or 0)
    return _saved("inputs of blocks", Factor(layer_tokens(setting), "tokens"), Factor(width, "bytes"))


def _selected(setting: TrainingSetup) -> float:
    """Return the elements per token of a block that torchtitan's selective policy saves.

    Those are every second matrix product (of seven: queries, values, gate, and the last), the output of attention and
    the input of the block. The compiled policy does not save the last product, which nothing needs.
    """
    model = setting.model
    hidden = model.hidden or 0
    return (3 if setting.train.compile else 4) * hidden + kv_width(model) + (model.intermediate or 0)


def recomputed_terms(setting: TrainingSetup) -> tuple[Term, ...]:
    """Return what is saved again for the largest block that is recomputed, of text or of vision."""
    if not recomputes_activations(setting.train):
        return ()
    seen = None if setting.train.lora else vision_setting(setting)
    again = max(block_terms(setting), block_terms(seen) if seen else (), key=total_bytes)
    return tuple(each._replace(part="temporaries", what=f"recomputed: {each.what}") for each in again)


def activation_gradient_term(setting: TrainingSetup) -> Term:
    """Return the gradients that flow through a block in its backward pass.

    They are those of the two factors of a gate with the tensors they are computed from. With frozen weights three are
    left, as none is used up for the gradient of a weight. A loop over experts has those of one expert at a time. Eager
    attention has gradients of its scores and of their softmax instead, if those are larger.
    """
    model, train = setting.model, setting.train
    hidden, inner = (
        model.hidden or 0,
        (model.intermediate or 0) / (model.experts or 1 if loops_over_experts(train) else 1),
    )
    elements = (
        3 * inner
        if train.lora and has_gated_mlp(model)
        else 2 * inner + 2 * hidden * (1 if has_gated_mlp(model) else 0)
    )
    scores = 2 * _softmax_bytes(setting) * (model.heads or 0) * (train.seq_len or 0) if keeps_scores(setting) else 0
    width = Factor(max(elements * _inner_width_bytes(setting), scores), "bytes")
    return term("temporaries", "gradients inside a block", Factor(batch_tokens(train), "tokens"), width)


def whole_input_terms(setting: TrainingSetup, micro_batches: int) -> tuple[Term, ...]:
    """Return the inputs of attention and feed-forward that tensor parallelism gathers and keeps for their weights."""
    model, train = setting.model, setting.train
    size = Factor(batch_tokens(train), "tokens"), Factor(2 * (model.hidden or 0) * compute_dtype_bytes(train), "bytes")
    often = Factor(float(model.layers or 0), "layers"), Factor(micro_batches, "micro-batches in flight")
    return (term("activations", "gathered inputs of attention and feed-forward", *size, *often),)


def head_input_terms(setting: TrainingSetup) -> tuple[Term, ...]:
    """Return what the last norm and the output head save, which is freed before the blocks run backward."""
    model = setting.model
    if not model.vocab or not model.hidden:
        return ()
    each = _norm_bytes(setting, residual_stream_bytes(setting)) + compute_dtype_bytes(setting.train)
    width = Factor(each * model.hidden, "bytes")
    return (_saved("inputs of the last norm and of the head", Factor(target_tokens(setting), "tokens"), width),)


@lru_cache(maxsize=256)
def logits_terms(setting: TrainingSetup, loss_parallel: bool = False) -> tuple[Term, ...]:
    """Return the logits and their copies at the peak of the loss: as computed, and in fp32.

    ``loss_parallel``: ranks share the vocabulary.
    """
    model, train = setting.model, setting.train
    if "no LM head" in model.note or not model.vocab:
        return ()
    loss = train.loss or "eager"
    tokens, vocab = Factor(target_tokens(setting), "tokens"), Factor(model.vocab, "logits a token")

    def copies(what: str, each: float) -> Term:
        return term("loss", what, tokens, vocab, Factor(each, "bytes"))

    if loss == "fused-linear":
        of_chunk = min(tokens.value * vocab.value, batch_tokens(train) * (model.hidden or 0))
        return (
            term("loss", "logits of a chunk and their gradients", Factor(of_chunk, "logits"), Factor(4 + 2, "bytes")),
        )
    wide = CHUNKED_COMPILED if loss == "chunked" and train.compile else FP32_LOGITS_COPIES[loss]
    if loss == "eager" and loss_parallel:
        wide = LOSS_PARALLEL_COPIES
    held = held_bytes_per_logit(setting)
    of_reference = (copies("logits of the reference model", 2 + 4),) if train.reference_model else ()
    return (copies(COPIES[loss], 4 * wide), *of_reference, *((copies(LOGITS, held),) if held else ()))


def held_logits_terms(setting: TrainingSetup) -> tuple[Term, ...]:
    """Return the logits that the training loop holds until the end of the backward pass."""
    return tuple(each for each in logits_terms(setting) if each.what == LOGITS and setting.train.keeps_logits)


def held_bytes_per_logit(setting: TrainingSetup) -> int:
    """Return the bytes per logit in addition to those copies: held by the loop, or the source of chunks.

    A loop holds the output of the model while its loss is alive, unless it deletes it. FSDP1 dates from transformers
    before 4.45, whose output holds the logits in fp32.
    """
    loss, width = setting.train.loss or "eager", compute_dtype_bytes(setting.train)
    if loss == "eager":
        return 0 if not setting.train.keeps_logits else 4 if setting.layout.kind == "fsdp1" else width
    return width if loss == "chunked" else 0
