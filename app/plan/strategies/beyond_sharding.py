"""Estimate over how many GPUs tensor and pipeline parallelism would have to split a model for which there are too few.

Memory is that of a rank's share (``rank_share``) of one copy of the model, with everything recomputed.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from ...text.units import gib_text
from ..memory.activations import has_known_shape
from ..memory.peak import estimate_candidate, excess_bytes
from ..spec import PER_NODE
from ..types import Dtype, Strategy, TrainingSetup

MOST_STAGES = 1024


class ModelSplit(NamedTuple):
    """One copy of the model over ``tensor * pipeline`` GPUs, with activations recomputed; bytes on each."""

    tensor: int
    pipeline: int
    gpu_bytes: float

    @property
    def gpus(self) -> int:
        return self.tensor * self.pipeline


def smallest_split(setting: TrainingSetup) -> ModelSplit | None:
    """Return the fewest GPUs that hold the states and activations of one copy of the model.

    None if there are none, or if the memory or the shape is not known.
    """
    if not (setting.gpu_memory_gib and has_known_shape(setting.model)):
        return None
    return next(_splits(setting), None)


def split_advice(setting: TrainingSetup) -> str:
    """Return the advice to split the layers, for a setting in which nothing fits."""
    found = smallest_split(setting)
    if found is None:
        return "Or split the layers themselves (tensor or pipeline parallelism), or take more or larger GPUs."
    ways = [f"tensor parallelism over {found.tensor} GPUs of a node"] if found.tensor > 1 else []
    ways += [f"pipeline parallelism over {found.pipeline} stages"] if found.pipeline > 1 else []
    more = f", {found.gpus} GPUs for each copy of the model" if len(ways) > 1 else ""
    available = "" if found.gpus <= setting.gpus else f"; there {'is' if setting.gpus == 1 else 'are'} {setting.gpus:,}"
    size = f"about {gib_text(found.gpu_bytes, 0)} on each with everything recomputed (an estimate)"
    how = " and ".join(ways) or "one GPU for each copy"
    return f"Next step, splitting the layers themselves: {how}{more}{available}; {size}."


def _splits(setting: TrainingSetup) -> Iterator[ModelSplit]:
    """Yield the splits that fit, those over fewer GPUs first."""
    heads, layers = setting.model.heads or 1, setting.model.layers or 1
    per_node = setting.gpus // setting.nodes if setting.nodes > 1 else PER_NODE
    sizes = [
        (tensor, 2**power)
        for tensor in (1, 2, 4, 8)
        if heads % tensor == 0 and tensor <= per_node
        for power in range(MOST_STAGES.bit_length())
        if 2**power <= min(layers, MOST_STAGES)
    ]
    for tensor, pipeline in sorted(sizes, key=lambda size: (size[0] * size[1], size[1])):
        of_rank = _one_copy(setting, tensor, pipeline)
        if excess_bytes(of_rank) <= 0:
            yield ModelSplit(tensor, pipeline, estimate_candidate(of_rank).device_used_bytes_per_gpu)


def _one_copy(setting: TrainingSetup, tensor: int, pipeline: int) -> TrainingSetup:
    """Return the setting of one copy of the model, with as many micro-batches in flight as there are stages."""
    train = msgspec.structs.replace(
        setting.train, act_ckpt="full", grad_accum=pipeline, dtype=_torch(setting.train.dtype)
    )
    strategy = Strategy(kind="fsdp2", reshard_after_forward=True, tensor=tensor, pipeline=pipeline)
    return msgspec.structs.replace(setting, gpus=tensor * pipeline, nodes=1, train=train, strategy=strategy)


def _torch(dtype: str | None) -> Dtype | None:
    """Return the precision without DeepSpeed's, whose states torch keeps in fp32 too."""
    return {"bf16-deepspeed": "bf16-mixed", "fp16-deepspeed": "fp16-mixed"}.get(dtype or "", dtype)  # type: ignore[return-value]
