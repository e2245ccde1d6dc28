"""The computation of a setting: precision, recomputation, and the tokens that each kind of layer processes."""

from functools import lru_cache
from typing import NamedTuple

import msgspec

from ..model.parameter_counts import block_layout, is_encoder_decoder
from ..types import Model, TrainingOptions, TrainingSetup


def has_known_shape(model: Model) -> bool:
    """Return whether the sizes that activations are computed from are known."""
    return bool(model.layers and model.hidden)


def compute_dtype_bytes(train: TrainingOptions) -> int:
    """Return the bytes per element of the compute precision."""
    return 4 if train.dtype == "fp32" else 2


def uses_autocast(setting: TrainingSetup) -> bool:
    """Return whether torch.autocast computes in 16 bit on fp32 weights; sharding strategies cast the weights."""
    strategy = setting.layout
    whole = strategy.kind == "single" or strategy.replicates or strategy.sharding == "NO_SHARD"
    return whole and (setting.train.dtype or "").endswith("-mixed")


def lengths_vary(train: TrainingOptions) -> bool:
    """Return whether batches may differ in shape.

    Adapters are trained on examples of their own length unless packed or fixed-length data is specified; full training
    mostly packs them.
    """
    is_fixed = train.packed or "fixed" in (train.data or "")
    return (bool(train.lora) or _varies_as_given(train)) and not is_fixed


def pads_to_longest(train: TrainingOptions) -> bool:
    """Return whether the length of each batch differs; scripts with single sequences have to say so."""
    return lengths_vary(train) and ((train.micro_batch or 1) > 1 or _varies_as_given(train))


def _varies_as_given(train: TrainingOptions) -> bool:
    return "variable" in (train.data or "")


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
    """Return whether attention saves its scores: eager attention, and what PyTorch has no fused kernel for."""
    return setting.train.attention == "eager" or uses_math_attention(setting)


def uses_math_attention(setting: TrainingSetup) -> bool:
    """Return whether PyTorch computes fused attention in operations of its own, with scores in fp32.

    It has no kernel for grouped heads in fp32, nor for keys of fewer heads that are neither expanded nor announced by
    ``enable_gqa``, as Falcon passes its only one (both seen on an H200 with torch 2.11).
    """
    model, train = setting.model, setting.train
    is_math = train.dtype == "fp32" or block_layout(model).math_groups
    return train.attention != "eager" and has_grouped_heads(model) and is_math


def has_grouped_heads(model: Model) -> bool:
    return bool(model.kv_heads) and model.kv_heads != model.heads


def expands_keys(setting: TrainingSetup) -> bool:
    """Return whether keys and values are expanded to all heads before attention.

    Fused attention takes fewer heads of them since torch 2.5, in 16 bit and without a mask.
    """
    train, scores = setting.train, keeps_scores(setting)
    return not has_grouped_heads(setting.model) or scores or train.precedes_torch(2, 5) or pads_to_longest(train)


def upcasts_frozen(setting: TrainingSetup) -> bool:
    """Return whether the weights that bitsandbytes leaves out (embedding, head, norms) are in fp32.

    ``prepare_model_for_kbit_training`` of PEFT casts them (0.19); its recipes for FSDP and DeepSpeed, which take one
    precision, leave it out, and bases in GPTQ are not cast. A 4-bit product returns the precision of its input
    (bitsandbytes' ``Linear4bit``), so that the whole residual stream and the feed-forward part are in fp32 as well.
    """
    train, layout = setting.train, setting.layout
    if train.upcast_frozen is not None:
        return train.upcast_frozen
    is_16_bit = (train.dtype or "").endswith(("-pure", "-deepspeed"))
    return train.quant in ("nf4", "nf4-dq") and not is_16_bit and (layout.kind == "single" or layout.replicates)


def inner_width_bytes(setting: TrainingSetup) -> int:
    """Return the bytes per element of the feed-forward part."""
    return 4 if casts_no_experts(setting) or upcasts_frozen(setting) else compute_dtype_bytes(setting.train)


def residual_stream_bytes(setting: TrainingSetup) -> int:
    """Return the bytes per element of the residual stream, which autocast leaves in fp32."""
    return 4 if uses_autocast(setting) or upcasts_frozen(setting) else compute_dtype_bytes(setting.train)


def saves_frozen_inputs(setting: TrainingSetup) -> bool:
    return setting.train.quant in ("nf4", "nf4-dq") or setting.layout.stage == 3


# Ratio of target tokens to input tokens of encoder-decoders (T5's own training: 114 to 512, arXiv 1910.10683).
TARGET_SHARE = 0.25


def batch_tokens(train: TrainingOptions) -> float:
    """Return the tokens of one micro-batch."""
    return float((train.micro_batch or 1) * (train.seq_len or 1))


class LayerGroup(NamedTuple):
    """Layers of one kind: their number, the tokens per sequence, and the encoder's tokens that they attend to."""

    layers: float
    length: float
    attended: float = 0.0


@lru_cache(maxsize=256)
def layer_groups(setting: TrainingSetup) -> list[LayerGroup]:
    """Return the layers of a model by kind; an encoder-decoder has two kinds."""
    model, length = setting.model, float(setting.train.seq_len or 1)
    layers = float(model.layers or 1)
    if not is_encoder_decoder(model):
        return [LayerGroup(layers, length)]
    decoders = model.decoder_layers or layers / 2
    return [
        LayerGroup(layers - decoders, length),
        LayerGroup(decoders, target_tokens(setting) / sequences(setting), length),
    ]


def sequences(setting: TrainingSetup) -> int:
    """Return the sequences of one micro-batch."""
    return setting.train.micro_batch or 1


def target_tokens(setting: TrainingSetup) -> float:
    """Return the tokens of one micro-batch that have logits: those of the decoder in an encoder-decoder."""
    train = setting.train
    if not is_encoder_decoder(setting.model):
        return batch_tokens(train)
    return sequences(setting) * train.target_len if train.target_len else batch_tokens(train) * TARGET_SHARE


def layer_tokens(setting: TrainingSetup) -> float:
    """Return the tokens of one micro-batch that a layer processes, on average over encoder and decoder."""
    each = layer_groups(setting)
    return sequences(setting) * sum(kind.layers * kind.length for kind in each) / sum(kind.layers for kind in each)


def vision_setting(setting: TrainingSetup) -> TrainingSetup | None:
    """Return the setting of the vision tower, in which one sequence is one image, or None without a vision tower."""
    tower, train = setting.model.tower, setting.train
    images = sequences(setting) * (1 if train.images is None else train.images)
    if tower is None or not images:
        return None
    seen = msgspec.structs.replace(train, micro_batch=images, seq_len=tower.positions, images=None)
    return msgspec.structs.replace(setting, model=tower, train=seen)
