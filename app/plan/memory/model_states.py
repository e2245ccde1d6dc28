"""Model states: the terms of parameters, gradients and optimizer states of a rank, on its GPU and on the host.

Sources: ZeRO (arXiv 1910.02054, section 3), PyTorch FSDP (arXiv 2304.11277), DeepSpeed 0.19 (``runtime/zero``), torch
2.13 (``distributed/fsdp/_fully_shard``).
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from ..model.parameter_counts import trained_params
from ..model.parameters import (
    Parameter,
    Unit,
    bytes_per_parameter,
    expert_share,
    has_master_weights,
    training_units,
    wrapped_units,
)
from ..types import Strategy, TrainingSetup
from .computation import upcasts_frozen
from .formula import Factor, Term, ranks, term, total_bytes

REFERENCE_BYTES = 2.0  # per weight of a reference model, which is loaded in 16 bit
# Elements of the smallest tensor whose states are in unified memory, which PyTorch's allocator does not count and CUDA
# moves to the host if the GPU is full (bitsandbytes 0.49, ``optim/optimizer.py``).
LEAST_PAGED = 1e5
# ZeRO-Infinity (0.19, ``swap_tensor``): fp32 buffers of the optimizer on NVMe, and the most elements of each; 16-bit
# buffers of parameters, their elements, and the elements that stay on the host.
SWAP_BUFFERS, SUB_GROUP = 4, 1e9
FETCH_BUFFERS, FETCH_BUFFER, MAX_IN_CPU = 5, 1e8, 1e9


class ModelStates(NamedTuple):
    """Terms of the model states on a GPU, and of those that its rank keeps on the host."""

    params: tuple[Term, ...]
    grads: tuple[Term, ...]
    optimizer: tuple[Term, ...]
    host: tuple[Term, ...] = ()

    @property
    def total(self) -> float:
        """Bytes on the GPU."""
        return total_bytes((*self.params, *self.grads, *self.optimizer))

    @property
    def host_bytes(self) -> float:
        return total_bytes(self.host)


@lru_cache(maxsize=256)
def shard_counts(strategy: Strategy, ranks: int, nodes: int = 1) -> tuple[int, int, int]:
    """Return the number of ranks over which parameters, gradients and optimizer states are sharded."""
    if strategy.kind == "deepspeed":
        stage = strategy.stage or 0
        return ranks if stage == 3 else 1, ranks if stage >= 2 else 1, ranks if stage >= 1 else 1
    if strategy.kind == "zero-optimizer":
        return 1, 1, ranks
    if strategy.is_fsdp:
        if strategy.sharding == "NO_SHARD":
            return 1, 1, 1
        hybrid = strategy.kind == "hsdp" or strategy.sharding == "HYBRID_SHARD"
        size = (strategy.shard_size or ranks // nodes) if hybrid else ranks
        return size, size, size
    return 1, 1, 1


@lru_cache(maxsize=512)
def units_of(setting: TrainingSetup) -> tuple[Unit, ...]:
    """Return the units of a setting with the bytes of their parameters."""
    strategy = setting.layout
    train = msgspec.structs.replace(setting.train, upcast_frozen=upcasts_frozen(setting))
    units = wrapped_units(training_units(setting.model, train, strategy.kind == "deepspeed"), strategy)
    return expert_share(units, strategy.expert) if strategy.expert else units


def all_parameters(setting: TrainingSetup) -> Iterable[tuple[Parameter, float]]:
    """Yield each parameter of a setting and its elements in the whole model."""
    for unit in units_of(setting):
        for each in unit.parameters:
            yield each, each.elements * unit.repeats


def splits_rows(parameter: Parameter, strategy: Strategy) -> bool:
    """Return whether ``fully_shard`` splits the rows of a parameter; flat parameters are split evenly."""
    by_columns = strategy.experts_by_columns or strategy.expert
    return strategy.is_fully_shard and not (by_columns and parameter.role == "experts")


def sharing_ranks(parameter: Parameter, over: float, strategy: Strategy) -> float:
    """Return how many of ``over`` ranks share a parameter: with expert parallelism fewer share an expert."""
    return max(1.0, over / strategy.expert) if strategy.expert and parameter.role == "experts" else over


@lru_cache(maxsize=512)
def without_batch(setting: TrainingSetup) -> TrainingSetup:
    """Return a setting with the same states and gathered weights for any batch, loss and recomputation."""
    checkpointing = setting.train.act_ckpt if setting.layout.offload_param else None
    return setting.with_train(micro_batch=1, seq_len=1, act_ckpt=checkpointing, loss=None, attention=None)


@lru_cache(maxsize=512)
def model_states(setting: TrainingSetup) -> ModelStates:
    """Return the states that a rank keeps between two steps, on its GPU and on the host."""
    strategy = setting.layout
    over_params, over_grads, over_optimizer = shard_counts(strategy, setting.gpus, setting.nodes)
    name = "adapter weights" if setting.train.lora else "weights"
    params = _Sums("params", setting)
    optimizer, paged = _Sums("optimizer", setting), _Sums("optimizer", setting)
    grads = _Sums("grads", setting)
    unsharded = unsharded_grad_bytes(setting)
    of_states = "optimizer states" + (", with a copy of the weights" if has_master_weights(setting.train) else "")
    if strategy.kind == "zero-optimizer":
        over_optimizer = _greedy_shards(setting, over_optimizer)
    for each, elements in all_parameters(setting):
        trained = elements * each.trained
        params.add("trained weights", name, trained, each, each.weight, over_params)
        params.add("frozen weights", "frozen weights", elements - trained, each, each.frozen, over_params)
        is_paged = setting.train.optimizer == "paged-adamw-8bit" and each.elements / each.copies >= LEAST_PAGED
        keeps = paged if is_paged else optimizer
        keeps.add(of_states, name, trained, each, each.optimizer, over_optimizer)
        with_grad = trained + (elements if shares_flat_parameter(setting) and each.role != "adapter" else 0.0)
        if unsharded:
            grads.add("gradients, unsharded until the last micro-batch", name, with_grad, each, unsharded, 1)
        else:
            grads.add("gradients", name, with_grad, each, each.grad, over_grads)
        if setting.train.reference_model:
            params.add("frozen copy for reference", name, elements, each, REFERENCE_BYTES, over_params)
    found = ModelStates(params.terms(), grads.terms(), optimizer.terms(), _as_host(paged.terms()))
    return _offloaded(found, setting) if strategy.offloads else found


@lru_cache(maxsize=256)
def optimizer_bytes_per_parameter(setting: TrainingSetup) -> float:
    """Return the bytes of optimizer states, with master copies, per trained parameter."""
    sizes = [(elements * each.trained, each.optimizer) for each, elements in all_parameters(setting)]
    trained = sum(elements for elements, _ in sizes)
    return sum(elements * width for elements, width in sizes) / trained if trained else 0.0


class _Sums:
    """Elements that have the same bytes and are split over as many ranks, as one term."""

    def __init__(self, part: str, setting: TrainingSetup) -> None:
        self._part, self._strategy = part, setting.layout
        self._sums: dict[tuple[str, str, float, float, float], float] = {}

    def add(self, what: str, name: str, elements: float, parameter: Parameter, width: float, over: float) -> None:
        if elements and width:
            over = sharing_ranks(parameter, over, self._strategy)
            key = (what, name, width, parameter.shards(over, splits_rows(parameter, self._strategy)), over)
            self._sums[key] = self._sums.get(key, 0.0) + elements

    def terms(self) -> tuple[Term, ...]:
        return tuple(
            term(
                self._part,
                what,
                Factor(elements, name),
                Factor(width, "bytes"),
                *ranks(shards, "ranks" if shards == over else "shards at most"),
            )
            for (what, name, width, shards, over), elements in self._sums.items()
        )


def _greedy_shards(setting: TrainingSetup, over: float) -> float:
    """Return how much smaller the largest share of ZeroRedundancyOptimizer is, which gives out whole parameters."""
    sizes = [
        (each.elements / each.copies * each.trained, elements * each.trained)
        for each, elements in all_parameters(setting)
    ]
    whole, largest = sum(size for _, size in sizes), max((size for size, _ in sizes), default=0.0)
    return whole / max(whole / over, largest) if largest else over


def _offloaded(kept: ModelStates, setting: TrainingSetup) -> ModelStates:
    """Return the states with those on the host that the strategy keeps there.

    DeepSpeed keeps an fp32 gradient for each element of an offloaded optimizer (0.19, ``initialize_optimizer_states``
    and ``fp32_partitioned_groups_flat`` of stage 3).
    """
    strategy = setting.layout
    if strategy.cpu_offload:
        return ModelStates((), (), (), _as_host(kept.params + kept.grads + kept.optimizer) + kept.host)
    params, grads, optimizer, host = kept.params, kept.grads, kept.optimizer, list(kept.host)
    over = shard_counts(strategy, setting.gpus, setting.nodes)[2]
    trained = Factor(trained_params(setting.model, setting.train), "gradients")
    if strategy.offload_optimizer == "nvme":
        size = Factor(min(trained.value / over, SUB_GROUP), "elements of a buffer")
        host.append(term("host", "buffers of the optimizer", size, Factor(SWAP_BUFFERS, "buffers"), Factor(4, "bytes")))
    elif strategy.offload_optimizer:
        host += [*_as_host(optimizer), term("host", "gradients in fp32", trained, Factor(4, "bytes"), *ranks(over))]
    if strategy.offload_optimizer:
        optimizer = ()
        grads = () if (strategy.stage or 0) >= 2 else grads
    if strategy.offload_param == "nvme":
        stays, two = Factor(min(total_bytes(params) / 2, MAX_IN_CPU), "weights"), Factor(2, "bytes")
        buffers = (Factor(FETCH_BUFFER, "elements"), Factor(FETCH_BUFFERS, "buffers"), two)
        host += [term("host", "parameters that stay", stays, two), term("host", "buffers of parameters", *buffers)]
    elif strategy.offload_param:
        host += _as_host(params)
    if strategy.offload_param:
        params = ()
    return ModelStates(params, grads, optimizer, tuple(host))


def _as_host(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    return tuple(each._replace(part="host") for each in terms)


def loading_terms(setting: TrainingSetup) -> tuple[Term, ...]:
    """Return the host memory of a rank that builds the whole model, in fp32 or as loaded, before it is sharded."""
    if setting.layout.meta_init or setting.train.quant:
        return ()
    width = 2 if (setting.train.dtype or "").endswith("-pure") or setting.train.lora else 4
    size = Factor(setting.model.params, "weights"), Factor(width, "bytes")
    return (term("host", "the whole model, until it is sharded", *size),)


def reduced_micro_batches(setting: TrainingSetup) -> int:
    """Return how many micro-batches of a step reduce their gradients: the last, or each of them.

    DDP and FSDP accumulate under ``no_sync``, which Accelerate, the Trainer of transformers and Lightning's Fabric use
    by default (``sync_each_batch``, Accelerate 1.15); FSDP2 only if the training loop requests it. DeepSpeed's stages 2
    and 3 partition the gradients of each micro-batch (``no_sync`` is refused there, 0.19).
    """
    strategy, micro_batches = setting.layout, setting.train.grad_accum or 1
    each = strategy.sync_each_batch
    if each is None:
        each = strategy.is_fully_shard or (strategy.stage or 0) >= 2
    return micro_batches if each else 1


def unsharded_grad_bytes(setting: TrainingSetup) -> float:
    """Return the bytes per weight of gradients that are accumulated unsharded, or 0 if each micro-batch reduces them.

    FSDP1 accumulates them in the compute precision (torch 2.13, ``_runtime_utils.py``), FSDP2 in the reduce precision.
    """
    train, strategy = setting.train, setting.layout
    if reduced_micro_batches(setting) == (train.grad_accum or 1) or not strategy.is_fsdp:
        return 0.0
    if strategy.sharding == "NO_SHARD":
        return 0.0
    return 2.0 if strategy.kind == "fsdp1" and train.dtype != "fp32" else bytes_per_parameter(train).grad


def shares_flat_parameter(setting: TrainingSetup) -> bool:
    """Return whether adapters share a flat parameter of FSDP1 with the frozen weights of their block.

    That is possible if all have one precision. The gradient then has the size of the whole flat parameter (torch 2.13,
    ``_flat_param.py``). PEFT wraps adapters separately, as its own are in fp32 or the base is in 4 bit.
    """
    train, strategy = setting.train, setting.layout
    alike = (train.dtype or "").endswith("-pure") and not train.quant
    return bool(train.lora) and alike and strategy.kind == "fsdp1" and strategy.sharding != "NO_SHARD"
