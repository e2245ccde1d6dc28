"""Activation memory: bytes per GPU that the forward pass saves for the backward pass, by recomputation."""

from functools import lru_cache

from ..model.parameter_counts import has_gated_mlp, kv_width
from ..types import TrainingSetup
from .block_tensors import block_terms, saved, softmax_bytes
from .computation import (
    batch_tokens,
    compute_dtype_bytes,
    inner_width_bytes,
    keeps_scores,
    layer_tokens,
    loops_over_experts,
    recomputes_activations,
    residual_stream_bytes,
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
