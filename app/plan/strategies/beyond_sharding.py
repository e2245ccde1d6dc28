"""Estimate tensor and pipeline parallelism, which split the layers over GPUs where sharding is not enough.

The formulas are those of the memory model. Tensor parallelism within a node splits every matrix, and with it weights,
states, saved activations and logits (Korthikanti et al., arXiv 2205.05198, section 4.2). Pipeline parallelism over
nodes splits the layers; the micro-batches in flight keep as many activations as before (section 4.2.3).
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from ...text.units import GIB, gib_text
from ..memory import temporaries
from ..memory.activations import has_known_shape, logits_terms, recomputed_terms, stored_terms
from ..memory.formula import total_bytes
from ..memory.model_states import optimizer_bytes_per_parameter
from ..memory.peak import SAFE, SPARE
from ..model.parameter_bytes import bytes_per_parameter
from ..model.parameter_counts import embedding_params
from ..spec import PER_NODE
from ..types import Strategy, TrainingSetup

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
    room = setting.gpu_memory_gib * GIB * (1 - SPARE)
    fitting = (each for each in _splits(setting) if each.gpu_bytes <= room)
    return min(fitting, key=lambda each: (each.gpus, each.pipeline), default=None)


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
    heads, layers = setting.model.heads or 1, setting.model.layers or 1
    per_node = setting.gpus // setting.nodes if setting.nodes > 1 else PER_NODE
    for tensor in (1, 2, 4, 8):
        if heads % tensor or tensor > max(per_node, 1):
            continue
        pipeline = 1
        while pipeline <= min(layers, MOST_STAGES):
            yield ModelSplit(tensor, pipeline, _gpu_bytes(setting, tensor, pipeline))
            pipeline *= 2


def _gpu_bytes(setting: TrainingSetup, tensor: int, pipeline: int) -> float:
    """Return the memory of the first stage, which holds the input embedding in addition to its layers."""
    alone = msgspec.structs.replace(
        setting,
        strategy=Strategy(kind="single"),
        train=msgspec.structs.replace(setting.train, act_ckpt="full", dtype=_with_master(setting.train.dtype)),
    )
    model = alone.model
    per = bytes_per_parameter(alone.train)
    tables = embedding_params(model)
    first = (model.params - tables) / pipeline + tables / (1 if pipeline == 1 or model.tied else 2)
    states = first / tensor * (per.weight + per.grad + optimizer_bytes_per_parameter(alone))
    active = total_bytes((*stored_terms(alone), *recomputed_terms(alone), *logits_terms(alone))) / tensor
    return (states + active) * SAFE + total_bytes(temporaries.non_torch_terms(alone)) + temporaries.NCCL_BYTES


def _with_master(dtype: str | None) -> str | None:
    """Return the data type as in Megatron: 16-bit weights with fp32 masters, at most 18 bytes for each parameter."""
    return f"{dtype[:4]}-deepspeed" if dtype in ("bf16-mixed", "fp16-mixed") else dtype
