"""Activation memory: what the forward pass saves for the backward pass, by recomputation, and that of the loss."""

from functools import lru_cache

from ..model.parameter_counts import has_gated_mlp, kv_width, upcasts_loss
from ..types import TrainingSetup
from .block_tensors import block_terms, norm_bytes, saved, softmax_bytes
from .computation import (
    batch_tokens,
    compute_dtype_bytes,
    inner_width_bytes,
    keeps_scores,
    layer_tokens,
    loops_over_experts,
    recomputes_activations,
    residual_stream_bytes,
    target_tokens,
    upcasts_frozen,
    vision_setting,
)
from .formula import Factor, Term, term, total_bytes


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
            selected = saved("outputs that are saved", Factor(layer_tokens(setting), "tokens"), Factor(width, "bytes"))
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
    return saved("inputs of blocks", Factor(layer_tokens(setting), "tokens"), Factor(width, "bytes"))


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
    scores = 2 * softmax_bytes(setting) * (model.heads or 0) * (train.seq_len or 0) if keeps_scores(setting) else 0
    width = Factor(max(elements * inner_width_bytes(setting), scores), "bytes")
    return term("temporaries", "gradients inside a block", Factor(batch_tokens(train), "tokens"), width)


def whole_input_terms(setting: TrainingSetup, micro_batches: int) -> tuple[Term, ...]:
    """Return the inputs of attention and feed-forward that tensor parallelism gathers and keeps for their weights."""
    model, train = setting.model, setting.train
    size = Factor(batch_tokens(train), "tokens"), Factor(2 * (model.hidden or 0) * compute_dtype_bytes(train), "bytes")
    often = Factor(float(model.layers or 0), "layers"), Factor(micro_batches, "micro-batches in flight")
    return (term("activations", "gathered inputs of attention and feed-forward", *size, *often),)


# Copies (torch 2.13, live storages counted over forward and backward): log-softmax, its gradient and that of the
# logits, in fp32 in most models. A compiled loss keeps the logits as computed and their gradient: 4 bytes per logit in
# 16 bit, as in torchtitan, 8 in fp32, as in torchtune without chunks. In 8 chunks the log-softmax of all chunks stays,
# with the gradients of one; compiled, one chunk in fp32. A fused linear loss has chunks of about as many logits as
# tokens times hidden size (Liger's ``fused_linear_cross_entropy``).
LOGITS_COPIES = {"eager": 3, "compiled": 1.5, "chunked": 1 + 1 / 8, "fused-linear": 0.0}
CHUNKED_COMPILED = 1 / 8
# torch's loss_parallel computes the gradient in elementary operations: zeros with the labels, the exponential, and
# their sum, next to the log-softmax (``torch/distributed/tensor/parallel/loss.py``, 2.13).
LOSS_PARALLEL_COPIES = 4
LOGITS = "logits"
COPIES = {
    "eager": "log-softmax and gradients, in fp32",
    "compiled": "logits and their gradient",
    "chunked": "log-softmax, and one chunk's gradients",
}


def head_input_terms(setting: TrainingSetup) -> tuple[Term, ...]:
    """Return what the last norm and the output head save, which is freed before the blocks run backward."""
    model = setting.model
    if not model.vocab or not model.hidden:
        return ()
    each = norm_bytes(setting, residual_stream_bytes(setting)) + compute_dtype_bytes(setting.train)
    width = Factor(each * model.hidden, "bytes")
    return (saved("inputs of the last norm and of the head", Factor(target_tokens(setting), "tokens"), width),)


@lru_cache(maxsize=256)
def logits_terms(setting: TrainingSetup, loss_parallel: bool = False) -> tuple[Term, ...]:
    """Return the logits and their copies at the peak of the loss; ``loss_parallel``: ranks share the vocabulary."""
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
    wide = CHUNKED_COMPILED if loss == "chunked" and train.compile else LOGITS_COPIES[loss]
    if loss == "eager" and loss_parallel:
        wide = LOSS_PARALLEL_COPIES
    held, width, what = held_bytes_per_logit(setting), 4, COPIES[loss]
    is_16_bit = (train.dtype or "").endswith(("-deepspeed", "-pure"))  # autocast computes each log-softmax in fp32
    if loss == "eager" and is_16_bit and not upcasts_loss(model):
        width, what = 2, what.replace("fp32", "16 bit")
    of_reference = (copies("logits of the reference model", 2 + 4),) if train.reference_model else ()
    return (copies(what, width * wide), *of_reference, *((copies(LOGITS, held),) if held else ()))


def held_bytes_per_logit(setting: TrainingSetup) -> int:
    """Return the bytes per logit in addition to those copies: held by the loop, or the source of chunks.

    A loop holds the output of the model while its loss is alive, unless it deletes it. FSDP1 dates from transformers
    before 4.45, whose output holds the logits in fp32, as does the output of a head in fp32.
    """
    loss, width = setting.train.loss or "eager", compute_dtype_bytes(setting.train)
    if loss == "eager":
        is_fp32 = setting.layout.kind == "fsdp1" or upcasts_frozen(setting)
        return 0 if not setting.train.keeps_logits else 4 if is_fp32 else width
    return width if loss == "chunked" else 0
