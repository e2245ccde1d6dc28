"""Peak memory of a rank, the highest of three phases: allocated, reserved, and as the driver reports it."""

from typing import Literal, NamedTuple

import msgspec

from ...text.units import GIB
from ..types import Band, Breakdown, Candidate, Strategy, TrainingSetup
from . import activations, temporaries
from .model_states import ModelStates, model_states

# Reserved over allocated, at the high end of published figures: 1.12 to 1.24 of everything (torchtitan, fsdp_qlora), of
# which states, in blocks of their own, have little. FSDP2 waits for its streams before it frees and leaves fewer gaps
# than FSDP1 (torchtitan's docs/fsdp.md; its own figures: 1.13 to 1.22).
STATE_SLACK = 1.05
LOW, USUAL, HIGH = 1.02, 1.28, 1.40
STREAMS_WAITED_FOR = 1.22
EXPANDABLE = 1.05  # usual with expandable_segments
# The copies of the loss are few, large and of one size: each reuses the block of the one before. If other streams
# gather and reduce, they share the usual gaps; if batches are padded to different lengths, they rarely find a free
# block (from one source, ms-swift's benchmark with batches of 2 and 4: 3 times the allocated size).
ONE_STREAM, UNEQUAL = 1.05, 3.0
UNEQUAL_LIKELY = 1.8  # for the band of one sequence per batch, of equal length or not (1.5 to 2.6 for ms-swift)
# Near the limit PyTorch frees its gaps before it runs out of memory: only allocated memory counts there.
TIGHT, SAFE = 1.02, 1.10
SPARE = 0.05  # share of the GPU that stays free in a configuration that surely fits

Phase = Literal["loss", "backward", "step"]


class PhaseMemory(NamedTuple):
    """Bytes that PyTorch has allocated in one phase; the fields are those of the breakdown."""

    params: float
    grads: float
    optimizer: float
    activations: float = 0.0
    loss: float = 0.0
    buffers: float = 0.0
    temporaries: float = 0.0


class FixedMemory(NamedTuple):
    """Bytes that do not depend on the micro-batch. ``before``: gradients that exist during the forward pass."""

    states: ModelStates
    before: float
    gathered: float
    at_loss: float
    autocast: float
    unpacked: float
    ending: float
    step: float
    outside: float


def fixed_memory(setting: TrainingSetup) -> FixedMemory:
    """Return the memory that all micro-batch sizes of a setting have in common."""
    train, kept = setting.train, model_states(setting)
    kept = kept._replace(grads=0.0) if train.optimizer_in_bwd else kept
    in_buckets = setting.layout.replicates and setting.layout.gradient_as_bucket_view  # which are never freed
    stay = (train.grad_accum or 1) > 1 or temporaries.keeps_last_gradients(setting) or in_buckets
    return FixedMemory(
        states=kept,
        before=kept.grads if stay else 0.0,
        gathered=temporaries.gathered_bytes(setting),
        at_loss=temporaries.gathered_at_loss_bytes(setting),
        autocast=temporaries.autocast_bytes(setting),
        unpacked=temporaries.dequantized_bytes(setting),
        ending=temporaries.backward_end_bytes(setting),
        step=temporaries.optimizer_step_bytes(setting),
        outside=temporaries.non_torch_bytes(setting),
    )


def estimate_candidate(setting: TrainingSetup) -> Candidate:
    """Return the memory figures of a complete setting with its strategy."""
    common = fixed_memory(setting)
    moments = _moments(setting, common)
    phase = max(moments, key=lambda name: sum(moments[name]))
    allocated = sum(moments[phase])
    totals = [_totals(each) for each in moments.values()]
    usual, high = _slacks(setting)
    reserved = _reserved_bytes(totals, usual, _loss_slack(setting, usual))
    strategy, outside = setting.layout, common.outside
    loss_high = UNEQUAL_LIKELY if activations.lengths_vary(setting.train) and not _expandable(setting) else high
    shown = _on_this_gpu(setting.gpu_memory_gib, allocated, reserved, outside)
    fitting = judge_fit(setting.gpu_memory_gib, allocated, reserved, outside)
    if fitting and not activations.has_known_shape(setting.model):
        fitting = None
    kept = model_states(setting)
    return Candidate(
        strategy=strategy_name(strategy),
        fits=fitting,
        model_state_bytes_per_gpu=kept.total,
        peak_allocated_bytes_per_gpu=allocated,
        peak_reserved_bytes_per_gpu=shown,
        device_used_bytes_per_gpu=shown + outside,
        band=Band(
            min(shown, _reserved_bytes(totals, LOW, LOW)), max(reserved, _reserved_bytes(totals, high, loss_high))
        ),
        peak_phase=phase,
        breakdown=Breakdown(**moments[phase]._asdict(), context=outside, gaps=shown - allocated),
        host_bytes=kept.host,
    )


def excess_bytes(setting: TrainingSetup, common: FixedMemory) -> float:
    """Return by how many bytes a setting exceeds what surely fits, or a negative number for free memory."""
    totals = [_totals(each) for each in _moments(setting, common).values()]
    slack = _slacks(setting)[0]
    allocated = max(each.allocated for each in totals)
    reserved = _reserved_bytes(totals, slack, _loss_slack(setting, slack))
    return _over_bytes(setting.gpu_memory_gib or 0.0, allocated, reserved, common.outside)


def _over_bytes(memory_gib: float, allocated: float, reserved: float, outside: float) -> float:
    return max(allocated * SAFE, reserved) + outside - memory_gib * GIB * (1 - SPARE)


class _PhaseTotals(NamedTuple):
    """Bytes allocated in one phase: in total, by model states, and by the loss."""

    allocated: float
    still: float
    loss: float


def _totals(moment: PhaseMemory) -> _PhaseTotals:
    return _PhaseTotals(sum(moment), moment.params + moment.grads + moment.optimizer, moment.loss)


def _reserved_bytes(totals: list[_PhaseTotals], slack: float, loss_slack: float) -> float:
    """Return the most that PyTorch's allocator reserves; ``slack``: reserved over allocated for temporary tensors."""
    return max(
        still * STATE_SLACK + loss * loss_slack + (allocated - still - loss) * slack
        for allocated, still, loss in totals
    )


def _expandable(setting: TrainingSetup) -> bool:
    return setting.train.alloc == "expandable_segments"


def _slacks(setting: TrainingSetup) -> tuple[float, float]:
    """Return the usual and the highest ratio of reserved over allocated memory for temporary tensors."""
    if _expandable(setting):
        return EXPANDABLE, USUAL
    if activations.lengths_vary(setting.train) and not activations.recomputes_activations(setting.train):
        return HIGH, HIGH  # each batch saves tensors of another size
    return (STREAMS_WAITED_FOR if setting.layout.is_fully_shard else USUAL), HIGH


def _loss_slack(setting: TrainingSetup, usual: float) -> float:
    """Return reserved over allocated memory of the logits and their copies; expandable segments reuse blocks of any
    size.
    """
    if _expandable(setting):
        return usual
    if activations.pads_to_longest(setting.train):
        return UNEQUAL
    return ONE_STREAM if setting.layout.kind == "single" or setting.layout.replicates else usual


def _on_this_gpu(memory_gib: float | None, allocated: float, reserved: float, outside: float) -> float:
    """Return the bytes reserved on a GPU of that size: if it is full, the allocator frees its gaps."""
    if memory_gib is None:
        return reserved
    room = memory_gib * GIB - outside
    return min(reserved, max(room, allocated * TIGHT))


def judge_fit(
    memory_gib: float | None, allocated: float, reserved: float, outside: float
) -> bool | Literal["tight"] | None:
    """Return whether it fits, "tight" if only just, or None if the GPU's memory is unknown."""
    if memory_gib is None:
        return None
    room = memory_gib * GIB - outside
    surely = _over_bytes(memory_gib, allocated, reserved, outside) <= 0
    return True if surely else "tight" if allocated * TIGHT <= room else False


def peak_parts_text(found: Candidate) -> str:
    """Format the parts of the peak on the GPU in GiB; the parts add up to it."""
    sizes = {part: round(size / GIB, 1) for part, size in msgspec.structs.asdict(found.breakdown).items()}
    whole = round(found.device_used_bytes_per_gpu / GIB, 1)
    sizes["gaps"] = 0.0
    left = round(whole - sum(sizes.values()), 1)
    sizes["gaps" if left > 0 else max(sizes, key=lambda part: sizes[part])] += left
    return " · ".join(f"{part} {size:,.1f}" for part, size in sizes.items() if size) + f" = {whole:,.1f}"


def strategy_name(strategy: Strategy) -> str:
    """Return the display name of a strategy."""
    offloaded = _offloaded(strategy)
    if strategy.kind == "deepspeed":
        return f"ZeRO-{strategy.stage or 0}{offloaded}"
    names = {"single": "single GPU", "ddp": "DDP", "zero-optimizer": "DDP + ZeroRedundancyOptimizer"}
    after = strategy.reshard_after_forward
    kept = " without resharding" if after is False else f" resharding to {after}" if after and after > 1 else ""
    return names.get(strategy.kind, strategy.kind.upper()) + kept + offloaded


def _offloaded(strategy: Strategy) -> str:
    where = "NVMe" if "nvme" in (strategy.offload_optimizer, strategy.offload_param) else "CPU"
    if strategy.stage == 3 and strategy.offload_optimizer and not strategy.offload_param:
        return f" + optimizer on {where}"
    return f" + {where} offload" if strategy.offloads else ""


def _moments(setting: TrainingSetup, common: FixedMemory) -> dict[Phase, PhaseMemory]:
    """Return the memory at the peak of the loss, of the backward pass, and of the optimizer step.

    During the backward pass activations are freed and gradients created, both evenly: memory is highest at its first
    block, at its last, or after that, when FSDP reduces embedding and head.
    """
    params, grads, optimizer, _ = common.states
    gathered, autocast = common.gathered, common.autocast
    saved, again = activations.stored_activation_bytes(setting), activations.recomputed_block_bytes(setting)
    last_kept = 0.0 if again else min(saved, activations.block_activation_bytes(setting))
    in_block = again + activations.activation_gradient_bytes(setting) + common.unpacked
    first_gathered = gathered + (0.0 if again else autocast)
    at_loss = common.before or temporaries.head_grad_bytes(setting)
    loss = activations.logits_bytes(setting)
    stepping = gathered if setting.layout.replicates or setting.layout.kind == "deepspeed" else 0.0
    backward = (
        PhaseMemory(params, common.before, optimizer, saved, 0.0, first_gathered, in_block),
        PhaseMemory(params, grads, optimizer, last_kept, 0.0, gathered, in_block),
        PhaseMemory(params, grads, optimizer, buffers=common.ending),
    )
    return {
        "loss": PhaseMemory(params, at_loss, optimizer, saved, loss, common.at_loss + autocast),
        "backward": max(backward, key=sum),
        "step": PhaseMemory(params, grads, optimizer, buffers=stepping, temporaries=common.step),
    }
