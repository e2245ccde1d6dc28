"""Layouts that split the model or the sequence over ranks: tensor, pipeline, context and expert parallelism.

They shard the rest with ``fully_shard``, as torchtitan's meshes do. Ranks that split a layer or exchange tokens in
every layer are on one node as far as possible, stages of a pipeline on different nodes.
"""

from math import gcd

from ..memory.computation import has_known_shape
from ..model.parameter_counts import is_encoder_decoder
from ..rank_share import split_ways
from ..types import Model, Strategy, TrainingSetup

LONG_SEQUENCE = 8192  # tokens from which it is worth splitting a sequence
MOST_TENSOR = 8  # ranks with NVLink between them on common servers


def split_layouts(setting: TrainingSetup) -> list[Strategy]:
    """Return the layouts that split the model of a setting, the simplest first; none for a single GPU."""
    model, train = setting.model, setting.train
    if setting.gpus == 1 or not can_split(setting):
        return []
    per_node = setting.gpus // setting.nodes
    found: list[Strategy] = []
    if model.experts:
        for ranks in sorted({gcd(model.experts, per_node), gcd(model.experts, setting.gpus)} - {1}):
            found.append(_fsdp2(expert=ranks))
    if (train.seq_len or 0) >= LONG_SEQUENCE and per_node > 1:
        found += [_fsdp2(context=ranks) for ranks in dict.fromkeys((2, per_node))]
    tensor = _tensor_ranks(model, per_node)
    found += [_fsdp2(tensor=ranks) for ranks in dict.fromkeys((2, tensor)) if tensor % ranks == 0 and tensor > 1]
    if setting.nodes > 1 and (model.layers or 0) >= setting.nodes:
        found.append(_fsdp2(tensor=tensor if tensor > 1 else None, pipeline=setting.nodes))
    return found


def can_split(setting: TrainingSetup) -> bool:
    """Return whether torch's plans for decoders apply: to a text model whose weights are not quantized."""
    model = setting.model
    plain = has_known_shape(model) and not is_encoder_decoder(model) and model.kind in (None, "decoder")
    return plain and not (model.tower or setting.train.quant)


def keep_batch(setting: TrainingSetup) -> TrainingSetup:
    """Accumulate more micro-batches, so that a step has as many sequences as without splitting."""
    ways = split_ways(setting.layout)
    if ways == 1:
        return setting
    return setting.with_train(grad_accum=(setting.train.grad_accum or 1) * ways)


def _tensor_ranks(model: Model, per_node: int) -> int:
    """Return the most ranks of a node, a power of two, that divide the heads and those of keys and values."""
    heads = gcd(model.heads or 1, model.kv_heads or model.heads or 1)
    return next(
        ranks for ranks in (8, 4, 2, 1) if ranks <= MOST_TENSOR and per_node % ranks == 0 and heads % ranks == 0
    )


def _fsdp2(**splits: int | None) -> Strategy:
    return Strategy(kind="fsdp2", reshard_after_forward=True, **splits)  # type: ignore[arg-type]
