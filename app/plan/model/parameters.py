"""The parameters of a training as a list: name, shape, FSDP unit, bytes of weight, gradient and optimizer state.

A unit is what ``fully_shard`` wraps; equal units are stored once, with their number. The shapes follow from the sizes
of the model, and what those do not explain is one more parameter of a block, so the elements of all parameters are
those of the model. transformers 5 keeps the experts of a layer in one tensor, with a row for each expert.

Sources of the bytes: ZeRO (arXiv 1910.02054, section 3), bitsandbytes' 8-bit optimizers (arXiv 2110.02861), Adafactor
(arXiv 1804.04235), QLoRA (arXiv 2305.14314).
"""

from collections.abc import Iterator
from functools import lru_cache
from math import ceil, prod
from typing import Literal, NamedTuple

from ..types import Model, Strategy, TrainingOptions
from .parameter_counts import (
    adapter_widths,
    attention_width,
    embedding_params,
    expert_params,
    has_gated_mlp,
    is_encoder_decoder,
    kv_width,
)

NF4_BYTES = 0.5 + 4 / 64  # 4 bit, and one 32-bit scale for 64 weights
NF4_DOUBLE_QUANT_BYTES = 0.5 + 0.127 / 8
GPTQ_INT4_BYTES = 0.5 + 2.5 / 128  # 4 bit; 16-bit scale and 4-bit zero point for 128 weights
QUANTIZED = {"nf4": NF4_BYTES, "nf4-dq": NF4_DOUBLE_QUANT_BYTES, "gptq-int4": GPTQ_INT4_BYTES}
# Two moments, with a 32-bit scale for each 256 values (bitsandbytes' ``optim/optimizer.py``; 2,048 in older ones).
EIGHT_BIT_STATE_BYTES = 2 * (1 + 4 / 256)
LEAST_IN_8_BIT = 4096  # elements; the states of smaller tensors stay in fp32 (``min_8bit_size``)


class BytesPerParameter(NamedTuple):
    """Bytes per trained element: weight, gradient, and a master copy of the weight, if any."""

    weight: float
    grad: float
    master: float


@lru_cache(maxsize=256)
def bytes_per_parameter(train: TrainingOptions) -> BytesPerParameter:
    """Return the bytes per trained element of a precision.

    Adapters on a 16-bit base ("bf16" with LoRA) are kept in fp32: PEFT's ``autocast_adapter_dtype``.
    """
    if has_master_weights(train):
        return BytesPerParameter(2, 2, 2 if train.master_dtype == "bf16" else 4)
    width = 2 if (train.dtype or "").endswith("-pure") else 4
    return BytesPerParameter(width, width, 0)


def has_master_weights(train: TrainingOptions) -> bool:
    """Return whether 16-bit weights have a master copy with the optimizer, as with DeepSpeed."""
    return (train.dtype or "").endswith("-deepspeed")


def optimizer_bytes(train: TrainingOptions, shape: tuple[float, ...], role: str, is_flat: bool = False) -> float:
    """Return the bytes that the optimizer keeps per element of a parameter, with its master copy.

    Muon takes the matrices of blocks and leaves the rest to AdamW. In 8 bit, transformers' Trainer keeps the states of
    embeddings in fp32 (``GlobalOptimManager``), and bitsandbytes those of small tensors. Adafactor factors matrices,
    but nothing in the flat partitions of DeepSpeed (observed with 0.19).
    """
    per = bytes_per_parameter(train)
    width = {"bf16": 2, "fp32": 4}.get(train.optimizer_state_dtype or "", 4 if per.master else per.weight)
    is_matrix = role in ("matrix", "experts", "adapter")
    match train.optimizer:
        case "adamw-8bit" | "paged-adamw-8bit":
            is_small = prod(shape) < LEAST_IN_8_BIT or role == "table"
            state = 8.0 if is_small else EIGHT_BIT_STATE_BYTES
        case "adafactor":
            factored = role != "vector" and not is_flat
            state = 4 * (shape[0] + prod(shape[1:])) / max(1.0, prod(shape)) if factored else 4.0
        case "muon":
            state = width if is_matrix else 2.0 * width
        case "lion":
            state = width
        case "sgd":
            state = 0.0
        case _:
            state = 2.0 * width
    return per.master + state


def frozen_weight_bytes(train: TrainingOptions) -> float:
    """Return the bytes per element of a frozen matrix of a block."""
    return QUANTIZED[train.quant] if train.quant else frozen_table_bytes(train)


def frozen_table_bytes(train: TrainingOptions) -> float:
    """Return the bytes per element of other frozen weights, which are not quantized."""
    is_fp32 = train.dtype in ("fp32", "bf16-mixed", "fp16-mixed") and not train.quant
    return 4.0 if is_fp32 or train.upcast_frozen else 2.0


Role = Literal["table", "head", "matrix", "vector", "experts", "adapter"]
ROOT, EMBEDDING, HEAD = "embedding and head", "embedding", "head"
BLOCK, EXPERT_BLOCK, TOWER = "block", "block with experts", "vision block"
SMALL_REST = 0.05  # of a block: what its matrices leave are norms and biases
ROUNDING = 1.005  # a shard that is larger than the average by no more is even


class Parameter(NamedTuple):
    """One parameter of a unit, or ``copies`` of the same shape.

    ``trained`` is the share of its elements that has a gradient. ``weight`` and ``frozen`` are the bytes of an element
    with and without one, ``grad`` and ``optimizer`` those that go with a trained element.
    """

    name: str
    shape: tuple[float, ...]
    role: Role
    copies: float = 1.0
    trained: float = 1.0
    weight: float = 4.0
    frozen: float = 4.0
    grad: float = 4.0
    optimizer: float = 8.0

    @property
    def elements(self) -> float:
        return prod(self.shape) * self.copies

    def shards(self, ranks: float, by_rows: bool) -> float:
        """Return how much smaller the largest shard is; ``by_rows``: no row is split, as with ``fully_shard``."""
        if not by_rows or ranks == 1:
            return ranks
        effective = self.shape[0] / ceil(self.shape[0] / ranks)
        return ranks if effective * ROUNDING > ranks else effective


class Unit(NamedTuple):
    """Parameters that FSDP gathers together; ``repeats`` is how many such units the model has."""

    name: str
    repeats: float
    parameters: tuple[Parameter, ...]

    @property
    def elements(self) -> float:
        """Elements of one such unit."""
        return sum(each.elements for each in self.parameters)


@lru_cache(maxsize=64)
def model_units(model: Model) -> tuple[Unit, ...]:
    """Return the units of a model, without anything that depends on its training."""
    layers = float(model.layers or 1)
    tables = embedding_params(model)
    towers: tuple[Unit, ...] = ()
    if tower := model.tower:
        blocks = float(tower.layers or 1)
        towers = (Unit(TOWER, blocks, tuple(_block(tower, tower.params / blocks))),)
    experts = expert_params(model)
    with_experts = min(float(model.expert_layers or layers), layers) if experts else 0.0
    each = max(0.0, model.params - tables - experts - sum(unit.elements * unit.repeats for unit in towers)) / layers
    dense = tuple(_block(model, each))
    root = tuple(_tables(model, tables))
    found = [Unit(ROOT, 1.0, root)] if root else []
    if layers > with_experts and dense:
        found.append(Unit(BLOCK, layers - with_experts, dense))
    if experts:
        found.append(Unit(EXPERT_BLOCK, with_experts, (*dense, *_experts(model, experts / with_experts))))
    return (*found, *towers)


@lru_cache(maxsize=256)
def training_units(model: Model, train: TrainingOptions, is_flat: bool = False) -> tuple[Unit, ...]:
    """Return the units of a model in training with adapters; ``is_flat``: the optimizer gets flat partitions."""
    return tuple(
        unit._replace(parameters=tuple(_trained(each, train, is_flat) for each in (*unit.parameters, *more)))
        for unit in model_units(model)
        for more in [_adapters(model, train) if unit.name in (BLOCK, EXPERT_BLOCK) else ()]
    )


def wrapped_units(units: tuple[Unit, ...], strategy: Strategy) -> tuple[Unit, ...]:
    """Return the units as the strategy wraps them: embedding and head together, or each as a unit of its own."""
    if not strategy.own_table_units:
        return units
    return tuple(
        part
        for unit in units
        for part in ([Unit(each.name, 1.0, (each,)) for each in unit.parameters] if unit.name == ROOT else [unit])
    )


def expert_share(units: tuple[Unit, ...], ranks: int) -> tuple[Unit, ...]:
    """Return the units with the experts of one of the ranks that split them."""

    def share(each: Parameter) -> Parameter:
        return each._replace(shape=(each.shape[0] / ranks, *each.shape[1:])) if each.role == "experts" else each

    return tuple(unit._replace(parameters=tuple(map(share, unit.parameters))) for unit in units)


def _trained(parameter: Parameter, train: TrainingOptions, is_flat: bool) -> Parameter:
    is_adapter = parameter.role == "adapter"
    trained = float(is_adapter) if train.lora else 1 - (train.frozen or 0.0)
    weight, grad, _ = bytes_per_parameter(train)
    frozen = frozen_weight_bytes(train) if parameter.role in ("matrix", "experts") else None
    return parameter._replace(
        trained=trained,
        weight=weight,
        grad=grad,
        frozen=frozen_table_bytes(train) if frozen is None else frozen,
        optimizer=optimizer_bytes(train, parameter.shape, parameter.role, is_flat),
    )


def _tables(model: Model, elements: float) -> Iterator[Parameter]:
    """Yield the embedding, and the output head if it is not tied."""
    if elements:
        rows, names = float(model.vocab or 1), (EMBEDDING,) if model.tied else (EMBEDDING, HEAD)
        for name in names:
            yield Parameter(name, (rows, elements / len(names) / rows), "head" if name == HEAD else "table")


def _experts(model: Model, elements: float) -> Iterator[Parameter]:
    """Yield the experts of one layer: one tensor into their inner width, and one back."""
    rows, into = float(model.experts or 1), 2 / 3 if has_gated_mlp(model) else 1 / 2
    yield Parameter("experts, gate and up", (rows, elements * into / rows), "experts")
    yield Parameter("experts, down", (rows, elements * (1 - into) / rows), "experts")


def _block(model: Model, elements: float) -> Iterator[Parameter]:
    """Yield the parameters of one block of that many elements, without experts."""
    hidden, inner = float(model.hidden or 0), 0.0 if model.experts else float(model.intermediate or 0)
    known: list[Parameter] = []
    if model.layers and hidden and not (model.layout and model.layout.latent):
        heads, keys = attention_width(model), kv_width(model)
        often = 1.5 if is_encoder_decoder(model) else 1.0
        known = [
            Parameter("queries", (heads, hidden), "matrix", often),
            Parameter("keys and values", (keys, hidden), "matrix", 2 * often),
            Parameter("attention output", (hidden, heads), "matrix", often),
        ]
        if inner:
            known.append(Parameter("feed-forward, in", (inner, hidden), "matrix", 2.0 if has_gated_mlp(model) else 1.0))
            known.append(Parameter("feed-forward, out", (hidden, inner), "matrix"))
    rest = elements - sum(each.elements for each in known)
    if rest < 0:
        known, rest = [], elements
    yield from known
    if rest > 0:
        is_small = known and rest < SMALL_REST * elements
        rows = hidden or 1.0 if is_small else max(1.0, min(hidden or rest, rest))
        yield Parameter(
            "norms, biases and others" if is_small else "other weights",
            (rows, rest / rows),
            "vector" if is_small else "matrix",
        )


def _adapters(model: Model, train: TrainingOptions) -> tuple[Parameter, ...]:
    """Return the two matrices of each adapter of a block, as two parameters."""
    if not train.lora or not model.layers:
        return ()
    inputs, outputs = adapter_widths(model, train.lora)
    rank = float(train.lora.r)
    return Parameter("adapters, in", (rank, inputs), "adapter"), Parameter("adapters, out", (outputs, rank), "adapter")
