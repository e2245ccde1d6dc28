"""Share of one rank in a model and a sequence that tensor, pipeline, expert or context parallelism splits.

Memory and time of a rank are those of its share: fewer heads, inner columns and rows of the vocabulary (tensor), fewer
layers (pipeline), fewer experts (expert), fewer tokens (context), sharded over the ranks that have the same share.

Sources: Megatron-LM (arXiv 1909.08053, 2104.04473, 2205.05198), GShard (arXiv 2006.16668), ring attention (arXiv
2310.01889). Tensor parallelism is that with sequence parallelism and a parallel loss. Every stage of a pipeline counts
as the first, with the most micro-batches in flight, and as the last, with the logits.
"""

from functools import lru_cache
from math import ceil
from typing import NamedTuple

import msgspec

from ..errors import UserError
from .model.parameter_counts import embedding_params
from .types import Model, Strategy, TrainingOptions, TrainingSetup


class RankShare(NamedTuple):
    """Part of a setting that one rank computes.

    ``setting``: its part of the model, with the tokens that pass through it. ``kept``: the layers with the tokens of
    which it keeps all tensors; with tensor parallelism a rank keeps a part of each tensor, as many bytes as if it had
    a part of the sequence. ``in_flight``: micro-batches whose activations it keeps at the same time.
    """

    setting: TrainingSetup
    kept: TrainingSetup
    in_flight: int = 1


@lru_cache(maxsize=512)
def rank_share(setting: TrainingSetup) -> RankShare:
    """Return the share of one rank; the setting itself if its model is not split."""
    strategy = setting.layout
    if not strategy.splits_model:
        return RankShare(setting, setting)
    tensor, stages = strategy.tensor or 1, strategy.pipeline or 1
    stage = _stage(setting.model, stages)
    of_rank = msgspec.structs.replace(
        setting,
        model=_tensor_share(stage, tensor),
        train=_sequence_share(setting.train, strategy.context or 1),
        gpus=setting.gpus // (tensor * stages),
        nodes=max(1, setting.nodes // stages),
        strategy=msgspec.structs.replace(strategy, tensor=None, pipeline=None, is_share=True),
    )
    kept = msgspec.structs.replace(of_rank, model=stage, train=_sequence_share(of_rank.train, tensor))
    return RankShare(of_rank, kept, min(stages, setting.train.grad_accum or 1))


def split_ways(strategy: Strategy) -> int:
    """Return the number of ranks that work on the same sequences."""
    return (strategy.tensor or 1) * (strategy.pipeline or 1) * (strategy.context or 1)


def data_parallel_ranks(setting: TrainingSetup) -> int:
    """Return the number of ranks that have different sequences."""
    return setting.gpus // split_ways(setting.layout)


def sequences_per_step(setting: TrainingSetup) -> int:
    """Return the sequences of an optimizer step over all ranks."""
    train = setting.train
    return (train.micro_batch or 1) * (train.grad_accum or 1) * data_parallel_ranks(setting)


def check_split(setting: TrainingSetup) -> None:
    """Check that the ranks of a strategy divide what they split.

    Raises:
        UserError: They do not.
    """
    strategy, model = setting.layout, setting.model
    if not strategy.splits_model:
        return
    tensor, per_node = strategy.tensor or 1, setting.gpus // setting.nodes
    problems = {
        "is for fsdp2": strategy.kind != "fsdp2",
        f"the ranks do not divide {setting.gpus} GPUs": setting.gpus % max(1, split_ways(strategy)) > 0,
        f"tensor is {tensor}, with {per_node} GPUs on a node": per_node % tensor > 0,
        f"tensor is {tensor}, with {model.heads} heads": (model.heads or tensor) % tensor > 0,
        f"pipeline is {strategy.pipeline}, with {model.layers} layers": (strategy.pipeline or 1) > (model.layers or 1),
        f"pipeline is {strategy.pipeline}, on {setting.nodes} nodes": (strategy.pipeline or 1) % setting.nodes > 0
        and setting.nodes % (strategy.pipeline or 1) > 0,
        f"expert is {strategy.expert}, with {model.experts or 'no'} experts": (model.experts or 0)
        % (strategy.expert or 1)
        > 0
        or bool(strategy.expert and not model.experts),
        f"expert is {strategy.expert}, with {setting.gpus} GPUs": setting.gpus % (strategy.expert or 1) > 0,
    }
    for problem, is_wrong in problems.items():
        if is_wrong:
            raise UserError(f"strategy: {problem}", "give numbers of ranks that divide what they split")


def _sequence_share(train: TrainingOptions, ranks: int) -> TrainingOptions:
    return msgspec.structs.replace(train, seq_len=ceil((train.seq_len or 1) / ranks)) if ranks > 1 else train


def _tensor_share(model: Model, tensor: int) -> Model:
    if tensor == 1:
        return model
    heads = model.heads or tensor
    return msgspec.structs.replace(
        model,
        params=model.params / tensor,
        active_params=model.active_params / tensor if model.active_params else None,
        heads=heads // tensor,
        kv_heads=max(1, (model.kv_heads or heads) // tensor),
        head_dim=model.head_dim or (model.hidden // heads if model.hidden else None),
        intermediate=ceil(model.intermediate / tensor) if model.intermediate else None,
        vocab=ceil(model.vocab / tensor) if model.vocab else None,
    )


def _stage(model: Model, stages: int) -> Model:
    """Return a stage of a pipeline with the embedding or the output head, of which no stage has both."""
    if stages == 1 or not model.layers:
        return model
    layers, tables = ceil(model.layers / stages), embedding_params(model)
    table = tables if model.tied else tables / 2
    share = layers / model.layers
    active = (model.active_params - tables) * share + table if model.active_params else None
    return msgspec.structs.replace(
        model,
        params=(model.params - tables) * share + table,
        active_params=active,
        layers=layers,
        expert_layers=ceil(model.expert_layers / stages) if model.expert_layers else None,
        tied=True,
    )
