"""Model states: bytes per GPU of parameters, gradients and optimizer states.

Sources: ZeRO (arXiv 1910.02054, section 3), PyTorch FSDP (arXiv 2304.11277), DeepSpeed 0.19 stage docs, bitsandbytes'
8-bit optimizers (arXiv 2110.02861), Adafactor (arXiv 1804.04235), QLoRA (arXiv 2305.14314).
"""

from functools import lru_cache
from typing import NamedTuple

from ..model.parameter_counts import embedding_params, trained_params
from ..types import Strategy, TrainingOptions, TrainingSetup

NF4_BYTES = 0.5 + 4 / 64  # 4 bit, and one 32-bit scale for 64 weights
NF4_DOUBLE_QUANT_BYTES = 0.5 + 0.127 / 8
GPTQ_INT4_BYTES = 0.5 + 2.5 / 128  # 4 bit; 16-bit scale and 4-bit zero point for 128 weights
# Two moments, with a 32-bit scale for each 256 values (bitsandbytes' ``optim/optimizer.py``; 2,048 in older ones).
EIGHT_BIT_STATE_BYTES = 2 * (1 + 4 / 256)
ADAFACTOR_BYTES = 2 * 4 / 2048  # one row and one column instead of a matrix, for a square one of width 2,048
SWAP_BUFFERS, SUB_GROUP = 4, 1e9  # ZeRO-Infinity: optimizer buffers, and the most elements of each
FETCH_BUFFER, MAX_IN_CPU = 1e8, 1e9  # elements of a parameter buffer; elements that stay in host memory


class BytesPerParameter(NamedTuple):
    """Bytes per trained parameter: weight, gradient, optimizer state (including a master copy, if any)."""

    weight: float
    grad: float
    optimizer: float


class ModelStates(NamedTuple):
    """Bytes of model states per GPU, and the host memory that goes with each GPU."""

    params: float
    grads: float
    optimizer: float
    host: float

    @property
    def total(self) -> float:
        return self.params + self.grads + self.optimizer


@lru_cache(maxsize=256)
def bytes_per_parameter(train: TrainingOptions) -> BytesPerParameter:
    """Return the bytes per trained parameter of a precision and an optimizer.

    Adapters on a 16-bit base ("bf16" with LoRA) are kept in fp32: PEFT's ``autocast_adapter_dtype``.
    """
    if (train.dtype or "").endswith("-deepspeed"):
        master = 2 if train.master_dtype == "bf16" else 4
        return BytesPerParameter(2, 2, master + optimizer_bytes_per_parameter(train, 4))
    width = _weight_width(train)
    return BytesPerParameter(width, width, optimizer_bytes_per_parameter(train, width))


def optimizer_bytes_per_parameter(train: TrainingOptions, width: int) -> float:
    """Return the bytes of optimizer state per parameter with moments of ``width`` bytes."""
    width = _moment_width(train, width)
    return {
        "adamw": 2.0 * width,
        "adam": 2.0 * width,
        "adamw-8bit": EIGHT_BIT_STATE_BYTES,
        "adafactor": ADAFACTOR_BYTES,
        "muon": 1.0 * width,
        "lion": 1.0 * width,
        "sgd": 0.0,
    }[train.optimizer or "adamw"]


def _weight_width(train: TrainingOptions) -> int:
    return 2 if (train.dtype or "").endswith("-pure") else 4


def _moment_width(train: TrainingOptions, usual: int) -> int:
    return {"bf16": 2, "fp32": 4}.get(train.optimizer_state_dtype or "", usual)


def frozen_weight_bytes(train: TrainingOptions) -> float:
    """Return the bytes per weight of a frozen linear layer."""
    quantised = {"nf4": NF4_BYTES, "nf4-dq": NF4_DOUBLE_QUANT_BYTES, "gptq-int4": GPTQ_INT4_BYTES}
    if train.quant:
        return quantised[train.quant]
    return 4.0 if train.dtype in ("fp32", "bf16-mixed", "fp16-mixed") else 2.0


@lru_cache(maxsize=256)
def shard_counts(strategy: Strategy, ranks: int, nodes: int = 1) -> tuple[int, int, int]:
    """Return the number of ranks over which parameters, gradients and optimizer states are sharded.

    Hybrid sharding shards within a node unless another size is given.
    """
    if strategy.kind == "deepspeed":
        stage = strategy.stage or 0
        return ranks if stage == 3 else 1, ranks if stage >= 2 else 1, ranks if stage >= 1 else 1
    if strategy.kind == "zero-optimizer":
        return 1, 1, ranks
    if strategy.kind == "fairscale-sharded-ddp":
        return 1, ranks, ranks
    if strategy.is_fsdp:
        if strategy.sharding == "NO_SHARD":
            return 1, 1, 1
        hybrid = strategy.kind == "hsdp" or strategy.sharding == "HYBRID_SHARD"
        size = (strategy.shard_size or ranks // nodes) if hybrid else ranks
        return size, size, size
    return 1, 1, 1


@lru_cache(maxsize=256)
def model_states(setting: TrainingSetup) -> ModelStates:
    """Return the bytes that a rank keeps between two steps, on its GPU and on the host."""
    model, train, strategy = setting.model, setting.train, setting.layout
    per = bytes_per_parameter(train)
    over_params, over_grads, over_optimizer = shard_counts(strategy, setting.gpus, setting.nodes)
    trained = trained_params(model, train)
    frozen = model.params if train.lora else model.params - trained
    tables = embedding_params(model) if train.quant else 0.0  # embeddings and head stay in 16 bit
    params = (trained * per.weight + (frozen - tables) * frozen_weight_bytes(train) + tables * 2.0) / over_params
    grads = weights_with_grads(setting) * (unsharded_grad_bytes(setting) or per.grad / over_grads)
    optimizer = (trained * optimizer_state_bytes(setting) + _of_tables(setting)) / over_optimizer
    host = 0.0
    if model.largest_layer and strategy.kind == "deepspeed":
        return _as_estimated(setting, strategy, model.largest_layer)
    if strategy.cpu_offload:
        host, params, grads, optimizer = params + grads + optimizer, 0.0, 0.0, 0.0
    if strategy.offload_optimizer:
        away, optimizer = optimizer, 0.0
        if (strategy.stage or 0) >= 2:
            away, grads = away + grads, 0.0
        host += _swapping_bytes(trained / over_optimizer) if strategy.offload_optimizer == "nvme" else away
    if strategy.offload_param:
        host += _fetching_bytes(params) if strategy.offload_param == "nvme" else params
        params = 0.0
    return ModelStates(params, grads, optimizer, host)


def optimizer_state_bytes(setting: TrainingSetup) -> float:
    """Return the bytes of optimizer states per trained weight.

    In DeepSpeed's flat partitions Adafactor cannot factor anything: its squared gradients are whole, in fp32 (observed
    with DeepSpeed 0.19).
    """
    usual = bytes_per_parameter(setting.train).optimizer
    is_flat = setting.layout.kind == "deepspeed" and setting.train.optimizer == "adafactor"
    return usual - ADAFACTOR_BYTES + 4.0 if is_flat else usual


def unsharded_grad_bytes(setting: TrainingSetup) -> float:
    """Return the bytes per weight of gradients that are accumulated unsharded, or 0 if each micro-batch reduces them.

    FSDP's ``no_sync`` accumulates them so; Accelerate, the Trainer of transformers and Lightning's Fabric use it by
    default (``sync_each_batch``, Accelerate 1.15). FSDP1 accumulates them in the compute precision (torch 2.13,
    ``_runtime_utils.py``), FSDP2 in the reduce precision, and only if the training loop requests it.
    """
    train, strategy = setting.train, setting.layout
    splits = strategy.kind != "fsdp1" if strategy.sync_each_batch is None else strategy.sync_each_batch
    if splits or (train.grad_accum or 1) == 1 or not strategy.is_fsdp or strategy.sharding == "NO_SHARD":
        return 0.0
    return 2.0 if strategy.kind == "fsdp1" and train.dtype != "fp32" else bytes_per_parameter(train).grad


def weights_with_grads(setting: TrainingSetup) -> float:
    """Return the number of weights that have a gradient."""
    trained = trained_params(setting.model, setting.train)
    return trained + setting.model.params if shares_flat_parameter(setting) else trained


def shares_flat_parameter(setting: TrainingSetup) -> bool:
    """Return whether adapters share a flat parameter of FSDP1 with the frozen weights of their block.

    That is possible if all have one precision. The gradient then has the size of the whole flat parameter (torch 2.13,
    ``_flat_param.py``). PEFT wraps adapters separately, as its own are in fp32 or the base is in 4 bit.
    """
    train, strategy = setting.train, setting.layout
    alike = (train.dtype or "").endswith("-pure") and not train.quant
    return bool(train.lora) and alike and strategy.kind == "fsdp1" and strategy.sharding != "NO_SHARD"


def _of_tables(setting: TrainingSetup) -> float:
    """Return the additional bytes of AdamW states for embedding and head: Muon handles only matrices of blocks."""
    train = setting.train
    if train.optimizer != "muon" or train.lora:
        return 0.0
    width = _moment_width(train, _weight_width(train))
    return embedding_params(setting.model) * width * (1 - (train.frozen or 0.0))


def _swapping_bytes(shard: float) -> float:
    """Return the host bytes of an optimizer on NVMe: by default four fp32 buffers, each for a part of its ``shard``
    elements.

    Source: DeepSpeed 0.19, ``swap_tensor/optimizer_utils.py``.
    """
    return SWAP_BUFFERS * 4 * min(shard, SUB_GROUP)


def _fetching_bytes(params: float) -> float:
    """Return the host bytes of parameters on NVMe: by default five 16-bit buffers, and ``max_in_cpu`` elements that
    stay.

    Source: DeepSpeed 0.19, ``swap_tensor/partitioned_param_swapper.py``.
    """
    return min(params, 2 * MAX_IN_CPU) + 5 * 2 * FETCH_BUFFER


def _as_estimated(setting: TrainingSetup, strategy: Strategy, largest_layer: float) -> ModelStates:
    """Return what DeepSpeed's own estimators give (0.19, ``runtime/zero/stage3.py`` and ``stage_1_and_2.py``).

    They count the whole largest gathered layer of stage 3, and fp32 gradients before sharding.
    """
    params, ranks = setting.model.params, setting.gpus
    if strategy.stage == 3:
        gathered = 4 * largest_layer
        if strategy.offload_param:
            return ModelStates(gathered, 0.0, 0.0, 18 * params)
        if strategy.offload_optimizer:
            return ModelStates(2 * params / ranks + gathered, 0.0, 0.0, 16 * params)
        return ModelStates(2 * params / ranks + gathered, 4 * params / ranks, 12 * params / ranks, 0.0)
    if strategy.offload_optimizer:
        return ModelStates(2 * params, 0.0, 0.0, 16 * params)
    return ModelStates(2 * params, 2 * params + 4 * params / ranks, 12 * params / ranks, 0.0)
