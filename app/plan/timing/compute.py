"""Compute time of a step on one GPU: matrix products, attention, and operations limited by memory bandwidth.

An estimate from two limits of the GPU, its matrix products and its memory (a roofline, Williams et al. 2009): narrow
layers, short batches and eager attention therefore reach a smaller share of the peak. Products move their operands too,
which narrow layers do more often for each operation. Checked against the 209 rates that llm-foundry publishes
(``scripts/train/benchmarking``, A100 and H100, 125 M to 70 B parameters): the median error is 4 %, nine of ten are
within 15 %; torchtitan's rates for Llama 3.1 8B on H100 are met, eager and compiled.

Sources: 6 FLOPs per parameter and token (arXiv 2001.08361), attention and recomputation (arXiv 2205.05198),
FlashAttention-2 (arXiv 2307.08691).
"""

from functools import lru_cache
from typing import NamedTuple

import msgspec

from ...hardware.gpu_catalog import GpuSpec
from ..memory.block_tensors import block_activation_bytes, written_out_bytes
from ..memory.computation import (
    batch_tokens,
    casts_no_experts,
    compute_dtype_bytes,
    layer_tokens,
    loops_over_experts,
    target_tokens,
    uses_autocast,
    vision_setting,
)
from ..model.parameter_counts import (
    adapted_linears,
    adapter_widths,
    attention_width,
    block_layout,
    expert_params,
    has_gated_mlp,
    is_encoder_decoder,
    trained_params,
)
from ..model.parameters import bytes_per_parameter, frozen_weight_bytes
from ..rank_share import rank_share
from ..tables import read_table
from ..types import Model, TrainingOptions, TrainingSetup
from .communication import Links
from .optimizer_step import EACH_LINEAR, LAUNCH_S, optimizer_step_s

# Share of the bandwidth that elementary operations reach, as a fused Adam does (measured on an H200, docs/gpu-runs.md).
REACHED_BANDWIDTH = 0.7
ATTENTION_SHARE = 0.5  # of the rate of matrix products: causal fused attention, forward and backward


class BlockWork(NamedTuple):
    """Work of a block outside of its products and attention: bytes moved over those saved, and launched operations."""

    forward_passes: float
    backward_passes: float
    forward_kernels: float
    backward_kernels: float


class WorkTable(msgspec.Struct, frozen=True):
    """Counted and measured work; that of kernels and of hooks on the host in the forward and the backward pass."""

    blocks: dict[str, BlockWork]
    kernels: dict[str, tuple[float, float]]
    hooks: dict[str, tuple[float, float]]


WORK = read_table("block_work.jsonc", WorkTable)
# Time in which a core launches one operation of PyTorch (measured with torch 2.13: 15 to 19 µs, with autograd and
# modules), and one of a compiled graph.
EAGER_S, COMPILED_S = LAUNCH_S, 5e-6
# Bytes moved to cast an operand to fp8 with a scale of its own: read for the scale, read and written for the cast
# (torchao's float8 linear with dynamic scales). The backward pass casts twice as many: gradients, and inputs again.
FP8_CAST_BYTES = 2 + 2 + 1
# Bytes moved per logit. Eager: cast to fp32, log-softmax, its gradient, and the cast back; compiled or fused: read
# twice, and read and written with the gradient.
LOSS_BYTES, FUSED_LOSS_BYTES = 32.0, 8.0
# Share that torch's checkpoint recomputes: all but the block's last product, as it stops early (the default since 2.1
# without re-entering), and with a selective policy every second product (torchtitan's).
SELECTIVE = 0.5
# Memory passes of an activation function in elementary operations, over the tensors that it saves (counted like those
# of a block): forward and backward.
WRITTEN_OUT_PASSES = 6.0, 10.0
# Products with rows that are no multiple of 16 bytes use kernels for any alignment: 123 TFLOP/s on an H200, for the
# vocabulary of GPT-2.
ALIGNED, UNALIGNED_TFLOPS = 8, 123.0


class ComputeCost(NamedTuple):
    """Seconds of one GPU for one micro-batch, and for the optimizer step."""

    forward_s: float
    backward_s: float
    step_s: float

    def all_s(self, micro_steps: float) -> float:
        return micro_steps * (self.forward_s + self.backward_s) + self.step_s


@lru_cache(maxsize=256)
def compute_cost(
    setting: TrainingSetup, gpu: GpuSpec, links: Links | None = None, has_hooks: bool = True
) -> ComputeCost:
    """Return the compute cost of a complete setting, including what its strategy makes each GPU do twice or alone.

    ``has_hooks``: with the host's work for its wrapper, which limits models whose blocks compute in a millisecond.
    """
    setting, on_rank, _ = rank_share(setting)
    model = setting.model
    rate = matmul_flops_per_s(setting, gpu, links)
    memory = gpu.memory_gbps * 1e9
    reached = memory * REACHED_BANDWIDTH
    products, attention = matmul_flops(setting), attention_flops(setting)
    layers = float(model.layers or 0)
    written = layers * batch_tokens(on_rank.train) * (0.0 if setting.train.compile else written_out_bytes(on_rank))
    kept = layers * block_activation_bytes(on_rank) - written
    is_fused = setting.train.compile or setting.train.loss in ("compiled", "fused-linear")
    loss = target_tokens(setting) * (model.vocab or 0) * (FUSED_LOSS_BYTES if is_fused else LOSS_BYTES) / 3
    work = _block_work(setting)
    # All weights are read once, the limit with few tokens; quantised ones are unpacked first.
    is_fp32, quant = setting.train.dtype == "fp32", setting.train.quant
    weights = model.params * (frozen_weight_bytes(setting.train) + 2 + 2 if quant else 4.0 if is_fp32 else 2.0)
    cast = 6 * model.params if uses_autocast(setting) else 0.0
    trained = trained_params(setting.model, setting.train) / model.params
    again, again_attention, again_kept = _again(setting)
    fast = _products_rate(setting, gpu, rate)
    tokens = layers * batch_tokens(setting.train)
    inputs, outputs = adapter_widths(model, EACH_LINEAR)
    operands = tokens * (inputs + outputs) * (4 if is_fp32 else 2)
    scaled = tokens * inputs * FP8_CAST_BYTES if setting.train.fp8 else 0.0
    adapters = tokens * _adapter_bytes(setting)
    forward = products / fast + attention / (rate * ATTENTION_SHARE)
    of_written = written * WRITTEN_OUT_PASSES[0]
    forward += (kept * work.forward_passes + of_written + loss + cast + scaled + adapters) / reached
    forward += (weights + operands) / memory
    backward = products * (1 + trained + again) / fast
    backward += ((2 + again) * (scaled + adapters)) / reached + (1 + trained + again) * operands / memory
    backward += attention * (2.5 + again_attention) / (rate * ATTENTION_SHARE)
    backward += (written * WRITTEN_OUT_PASSES[1] + of_written * again_kept) / reached
    backward += (kept * (work.backward_passes + work.forward_passes * again_kept) + 2 * loss) / reached
    backward += weights / memory
    launch_s = layers * (COMPILED_S if setting.train.compile else EAGER_S)
    models = forward_models(setting.train)
    hooks, each_s = _host_work(setting) if has_hooks else WORK.hooks["none"], layers * EAGER_S
    forward_least_s = launch_s * work.forward_kernels + each_s * hooks[0]
    backward_kernels = work.backward_kernels + again_kept * work.forward_kernels
    backward_least_s = launch_s * backward_kernels + each_s * hooks[1]
    return ComputeCost(
        models * max(forward, forward_least_s), max(backward, backward_least_s), optimizer_step_s(setting, gpu, rate)
    )


def forward_models(train: TrainingOptions) -> int:
    """Return how many models compute a forward pass: the reference of DPO has no backward pass."""
    return 2 if train.reference_model else 1


def _block_work(setting: TrainingSetup) -> BlockWork:
    train, layout = setting.train, block_layout(setting.model)
    if train.compile:
        return WORK.blocks["compiled"]
    is_rms = layout.norm.startswith("rms")
    work = WORK.blocks["rms" if is_rms else "layer"]
    # Otherwise, and with expert parallelism, the experts of a layer are one grouped product.
    looped = 0.0
    if loops_over_experts(train) and not setting.layout.expert:
        looped = min(setting.model.experts or 0, (setting.model.experts_per_token or 1) * batch_tokens(train))
    norms = max(0, layout.norms - 2) + 2 * layout.normed_heads + 2 * bool(layout.latent)
    times = {
        "autocast": uses_autocast(setting),
        "adapter": len(adapted_linears(setting.model, train.lora)) if train.lora else 0,
        "expert": looped,
        "rms": norms if is_rms else 0,
        "router": bool(setting.model.experts) and not looped,
    }
    forward, backward = (sum(WORK.kernels[name][at] * often for name, often in times.items()) for at in (0, 1))
    return work._replace(
        forward_kernels=work.forward_kernels + forward, backward_kernels=work.backward_kernels + backward
    )


def _host_work(setting: TrainingSetup) -> tuple[float, float]:
    """Return the host's work for the wrapper of a block; that of DDP is counted with autocast."""
    strategy = setting.layout
    if strategy.kind == "deepspeed":
        return WORK.hooks["zero-3" if strategy.stage == 3 else "zero"]
    if not strategy.shards_weights:
        return WORK.hooks["none"]
    stays = strategy.reshard_after_forward is False or strategy.sharding == "SHARD_GRAD_OP"
    return WORK.hooks["kept" if stays else "gathered again"]


def _adapter_bytes(setting: TrainingSetup) -> float:
    """Return the bytes per token that the adapters of a block move: their input, cast to the adapter's precision, and
    their output, scaled and added to that of the layer (PEFT's ``lora/layer.py``).
    """
    if not setting.train.lora:
        return 0.0
    inputs, outputs = adapter_widths(setting.model, setting.train.lora)
    base = compute_dtype_bytes(setting.train)
    width = max(base, bytes_per_parameter(setting.train).weight)
    cast = base + width if width > base else 0.0
    return inputs * (cast + width) + outputs * (3 * width + 2 * base + width)


def matmul_flops_per_s(setting: TrainingSetup, gpu: GpuSpec, links: Links | None = None) -> float:
    """Return the operations per second of matrix products over a step (without TF32, PyTorch's default)."""
    if setting.train.dtype == "fp32":
        return gpu.fp32_tflops * 1e12 * gpu.steady_share
    measured = links.matmul_tflops if links else None
    return (measured or gpu.product_tflops) * 1e12 * gpu.steady_share


def _products_rate(setting: TrainingSetup, gpu: GpuSpec, rate: float) -> float:
    """Return the rate of all products if those of blocks are in fp8, of experts in fp32, or of a head unaligned."""
    model, train = setting.model, setting.train
    in_blocks = _in_blocks(model)
    used = expert_params(model) * (model.experts_per_token or 1) / (model.experts or 1)
    of_used = min(in_blocks, used / (model.active_params or model.params))
    in_experts = of_used if casts_no_experts(setting) else 0.0
    of_blocks = gpu.fp8_tflops * 1e12 * gpu.steady_share if train.fp8 and gpu.fp8_tflops else rate
    is_unaligned = (model.vocab or 0) % ALIGNED and train.dtype != "fp32" and "no LM head" not in model.note
    of_head = min(rate, UNALIGNED_TFLOPS * 1e12) if is_unaligned else rate
    of_experts = gpu.fp32_tflops * 1e12 * gpu.steady_share
    return 1 / ((in_blocks - in_experts) / of_blocks + in_experts / of_experts + (1 - in_blocks) / of_head)


def matmul_flops(setting: TrainingSetup) -> float:
    """Return the FLOPs of products in a forward pass, two per weight; the input embedding is a lookup."""
    model, seen = setting.model, vision_setting(setting)
    table = 0.0 if model.tied else float(model.vocab or 0) * (model.hidden or 0)
    passed = (model.active_params or model.params) - (model.tower.params if model.tower else 0.0)
    of_text = 2 * max(passed - table, passed / 2) * layer_tokens(setting)
    return of_text + (matmul_flops(seen) if seen else 0.0)


def attention_flops(setting: TrainingSetup) -> float:
    """Return the FLOPs of attention in the forward pass of one micro-batch: scores and values.

    A decoder needs half of them, and a fused kernel computes no more. With context parallelism the queries of a rank
    see the keys of all.
    """
    model, train = setting.model, setting.train
    keys = (train.seq_len or 0) * (setting.layout.context or 1 if setting.layout.is_share else 1)
    whole = 4.0 * (model.layers or 0) * attention_width(model) * keys * batch_tokens(train)
    causal = not is_encoder_decoder(model) and model.kind not in ("encoder", "vision") and train.attention != "eager"
    return whole / 2 if causal else whole


def model_flops(setting: TrainingSetup) -> float:
    """Return the FLOPs of one rank in one optimizer step, each operation once, as for MFU."""
    forward = matmul_flops(setting), attention_flops(setting)
    backward = forward[0] * (1 + trained_params(setting.model, setting.train) / setting.model.params) + 2 * forward[1]
    return (sum(forward) + backward) * (setting.train.grad_accum or 1)


def _again(setting: TrainingSetup) -> tuple[float, float, float]:
    """Return what is recomputed: shares of the products, of attention, and of the saved tensors of a block."""
    hidden, inner = float(setting.model.hidden or 0), float(setting.model.intermediate or 0)
    of_block = 4 * hidden * hidden + (3 if has_gated_mlp(setting.model) else 2) * hidden * inner
    last = hidden * inner / of_block if of_block else 0.0  # the output of the feed-forward part
    once = _in_blocks(setting.model) * (1 - last)
    match setting.train.act_ckpt:
        case "full":
            return once, 1.0, 1.0
        case "selective-op":
            return once * SELECTIVE, 0.0, 1.0
        case "selective-layer":
            return once / 2, 0.5, 0.5
        case _:
            return 0.0, 0.0, 0.0


def _in_blocks(model: Model) -> float:
    """Return the share of the products that is in the blocks, not in the head."""
    head = float(model.vocab or 0) * (model.hidden or 0)
    passed = model.active_params or model.params
    return max(0.5, 1 - head / max(passed - (0 if model.tied else head), head, 1.0))
