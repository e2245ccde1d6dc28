"""Duration of the optimizer step on one GPU: the bytes that it moves, its matrix products, and its launches."""

from ...hardware.gpu_catalog import GpuSpec
from ..memory.model_states import optimizer_bytes_per_parameter, shard_counts, without_batch
from ..model.parameter_counts import adapted_linears, trained_params
from ..model.parameters import bytes_per_parameter
from ..types import Lora, Model, TrainingSetup

# Memory passes of Adam: in one kernel at 0.7 of the bandwidth, or in many that move 80 bytes for its 28. Each block of
# an 8-bit state is searched for its nearest code, which takes longer than to move it (bitsandbytes 0.50). All three
# were measured on an H200 (docs/gpu-runs.md).
STEP_PASSES = {"fused": 1.4, "foreach": 4.0}
EIGHT_BIT_PASSES = 8.4
OTHER_STEP_PASSES = 2.0  # of an optimizer with fewer operations than Adam
# Adafactor of transformers: 26 operations for a matrix, which move 84 bytes for its 12 (counted with a dispatch mode).
ADAFACTOR_PASSES = 7.0
# Scaled gradients of fp16 are read and written once more.
UNSCALE_BYTES = 2 * 4
# Muon makes each matrix orthogonal with five steps of Newton and Schulz (``torch/optim/_muon.py``, 2.11), in 16 bit.
NEWTON_SCHULZ_STEPS = 5
# Operations for each tensor, of optimizers that take one after the other.
STEP_KERNELS = {"adafactor": 26, "muon": 36}
TENSORS = 9  # of a block
LAUNCH_S = 1.75e-5
EACH_LINEAR = Lora(target="all-linear")


def optimizer_step_s(setting: TrainingSetup, gpu: GpuSpec, matmul_flops_per_s: float) -> float:
    """Return the seconds of an optimizer step on the GPU."""
    strategy, train = setting.layout, setting.train
    if strategy.steps_on_host:
        return 0.0
    over = shard_counts(strategy, setting.gpus, setting.nodes)[2]
    trained = trained_params(setting.model, setting.train)
    moved = _passes(setting) * optimizer_step_bytes(setting)
    if train.dtype == "fp16-mixed":
        moved += UNSCALE_BYTES * STEP_PASSES["fused"]
    busy_s = moved * trained / over / (gpu.memory_gbps * 1e9)
    if train.optimizer == "muon" and not train.lora:
        busy_s += newton_schulz_flops(setting.model) / over / matmul_flops_per_s
    tensors = TENSORS * (setting.model.layers or 0)
    return max(busy_s, LAUNCH_S * STEP_KERNELS.get(train.optimizer or "", 0) * tensors)


def optimizer_step_bytes(setting: TrainingSetup) -> float:
    """Return the bytes that an optimizer moves per trained parameter: weight and states both ways, and the gradient."""
    per = bytes_per_parameter(setting.train)
    return 2 * (per.weight + optimizer_bytes_per_parameter(without_batch(setting))) + per.grad


def newton_schulz_flops(model: Model) -> float:
    """Return the FLOPs of Muon for the matrices of all blocks.

    A step takes three products of an m × n matrix (m ≤ n): with its transpose, the square of that, and both with it.
    """
    flops = 0.0
    for each in adapted_linears(model, EACH_LINEAR):
        narrow, wide = sorted((each.inputs, each.outputs))
        flops += each.often * (4 * narrow**2 * wide + 2 * narrow**3)
    return NEWTON_SCHULZ_STEPS * flops * (model.layers or 0)


def _passes(setting: TrainingSetup) -> float:
    """Return how often the optimizer moves the bytes of its states, over the bandwidth of the data sheet."""
    train = setting.train
    written = "fused" if setting.layout.kind == "deepspeed" else train.optimizer_impl or "foreach"
    match train.optimizer:
        case "adamw" | "adam":
            return STEP_PASSES[written]
        case "adamw-8bit" | "paged-adamw-8bit":
            return EIGHT_BIT_PASSES
        case "adafactor":
            return ADAFACTOR_PASSES
        case _:
            return STEP_PASSES["fused"] if written == "fused" else OTHER_STEP_PASSES
