"""Tensors that autograd saves for the backward pass of one block, in bytes per token.

Each formula counts those of a block as transformers 4.57 and torchtitan write it: the inputs of norms and matrix
products, queries, keys, values and output of attention, and what the activation function needs. The counts were made
with torch 2.13 under a FakeTensorMode (``tests/plan/memory/test_activations.py`` repeats them) and agree with
Korthikanti et al. (arXiv 2205.05198, equations 1 to 6) where their block is the same.
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
from ..types import TrainingSetup
from .computation import (
    LayerGroup,
    compute_dtype_bytes,
    expands_keys,
    inner_width_bytes,
    keeps_scores,
    layer_groups,
    residual_stream_bytes,
    saves_frozen_inputs,
    sequences,
    uses_autocast,
    uses_math_attention,
)
from .formula import Factor, Term, term, total_bytes

ADAPTERS = "inputs of adapters"
ADAPTER_MASK = 1  # bytes of a dropout mask before an adapter, which most recipes have (PEFT, ms-swift: 0.05 to 0.1)


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
                found.append(saved(part.what, Factor(tokens, "tokens"), Factor(part.bytes * share, "bytes")))
    return tuple(found)


def block_activation_bytes(setting: TrainingSetup) -> float:
    """Return the average bytes that one block saves without recomputation and without its adapters."""
    return total_bytes(tuple(each for each in block_terms(setting) if each.what != ADAPTERS))


def saved(what: str, *factors: Factor) -> Term:
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
    copies = 2 * (setting.model.experts_per_token or 0) * (setting.model.hidden or 0)  # inputs, and outputs unweighted
    yield TokenPart("copies for experts", copies * inner_width_bytes(setting))
    yield TokenPart("attention scores", _scores_bytes(setting, group))
    yield TokenPart(ADAPTERS, _adapters_bytes(setting))
    if crosses:  # keys and values of the encoder's tokens, which the decoder's tokens share
        keys = 2 * attention_width(setting.model) * compute_dtype_bytes(setting.train)
        yield TokenPart("keys and values of the encoder", keys * group.attended / group.length)


def _norms_bytes(setting: TrainingSetup, crosses: bool) -> float:
    """Return the bytes per token saved for norms, and for tensors that are scaled or gated at the hidden size."""
    model, width = setting.model, compute_dtype_bytes(setting.train)
    written = block_layout(model)
    hidden = (model.hidden or 0) * (written.norms + crosses)
    inside = attention_width(model) + kv_width(model) if written.normed_heads else 0.0
    others = written.others * (model.hidden or 0) * width
    latent = written.latent * (norm_bytes(setting, width) + width)  # normed, and taken by a product
    return (
        hidden * norm_bytes(setting, residual_stream_bytes(setting))
        + inside * norm_bytes(setting, width)
        + latent
        + others
    )


def norm_bytes(setting: TrainingSetup, width: int) -> int:
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
        return (inputs * hidden + (model.intermediate or 0)) * width if saves_frozen_inputs(setting) else 0.0
    casts = (5 if has_gated_mlp(model) else 4) + crosses if uses_autocast(setting) else inputs
    return casts * hidden * width


def _attention_bytes(setting: TrainingSetup, crosses: bool) -> float:
    """Return the bytes per token saved for attention: queries, keys, values, and the output, which fused attention
    saves.

    Keys and values are expanded to all heads first by torchtitan, by torchtune, and by transformers' SDPA with a mask,
    which padding needs (``use_gqa_in_sdpa``; seen without one on an H200, docs/gpu-runs.md). If none is expanded,
    values may be a view of one product with queries and keys, which is then saved in addition to the rotated ones.
    Queries and output of cross-attention are added.
    """
    model, train = setting.model, setting.train
    written = block_layout(model)
    tensors = 6.0 if crosses else 2 * (1 + written.value_share)
    if train.attention != "eager":
        if not (crosses or expands_keys(setting)):
            narrow = (1 + written.value_share) * kv_width(model)
            wide = tensors / 2 * attention_width(model)
            copies = 1 if written.copied and not train.lora else 0
            return (wide + narrow + copies * attention_width(model)) * compute_dtype_bytes(train)
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
    return (model.intermediate or 0) * (needed + output) * inner_width_bytes(setting) + written_out_bytes(setting)


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
    if not lora or (lora.dropout == 0 and saves_frozen_inputs(setting)):
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
    softmax = softmax_bytes(setting)
    dropped = train.dropout and written.drops_scores
    copied = softmax > width and not uses_math_attention(setting)
    each = softmax + (1 + width if dropped else width if copied else 0) + width * written.capped
    return (setting.model.heads or 0) * each * (group.length + group.attended)


def softmax_bytes(setting: TrainingSetup) -> int:
    """Return the bytes per score of the softmax of attention that is not fused."""
    wide = uses_autocast(setting) or uses_math_attention(setting) or block_layout(setting.model).wide_softmax
    return 4 if wide else compute_dtype_bytes(setting.train)
