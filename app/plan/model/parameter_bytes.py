"""Bytes per element of a parameter: its weight, its gradient, and what its optimizer keeps.

Sources: ZeRO (arXiv 1910.02054, section 3), bitsandbytes' 8-bit optimizers (arXiv 2110.02861), Adafactor
(arXiv 1804.04235), QLoRA (arXiv 2305.14314).
"""

from functools import lru_cache
from math import prod
from typing import NamedTuple

from ..types import TrainingOptions

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
    return 4.0 if train.dtype in ("fp32", "bf16-mixed", "fp16-mixed") and not train.quant else 2.0
