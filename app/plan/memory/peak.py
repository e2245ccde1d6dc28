"""Peak memory of a rank, the highest of three phases: allocated, reserved, and as the driver reports it."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from ...text.units import GIB
from ..rank_share import rank_share
from ..types import Band, Breakdown, Candidate, Strategy, TrainingSetup
from . import activations, block_tensors, computation, gathered_weights, temporaries
from .formula import Factor, Term, term, total_bytes
from .model_states import loading_terms, model_states, without_batch

# Reserved over allocated, at the high end of published figures: 1.12 to 1.24 of everything (torchtitan, fsdp_qlora), of
# which states, in blocks of their own, have little. FSDP2 waits for its streams before it frees and leaves fewer gaps
# than FSDP1 (torchtitan's docs/fsdp.md; its own figures: 1.13 to 1.22).
STATE_SLACK = 1.05
USUAL, HIGH = 1.28, 1.40
STREAMS_WAITED_FOR = 1.22
EXPANDABLE = 1.05  # usual with expandable_segments
# Without gathered weights each tensor of a step finds the block that it had in the step before, unless recomputation
# puts others into it (1.00 to 1.11 in references/measured_h200.json, with recomputation up to 1.20).
SAME_EACH_STEP = 1.08
# The copies of the loss are few, large and of one size: each reuses the block of the one before. FSDP, which gathers in
# blocks of similar size, shares the usual gaps; if batches are padded to different lengths, they rarely find a free
# block (from one source, ms-swift's benchmark with batches of 2 and 4: 3 times the allocated size).
ONE_STREAM, UNEQUAL = 1.1, 3.0
# Near the limit PyTorch frees its gaps before it runs out of memory: only allocated memory counts there.
TIGHT, SAFE = 1.02, 1.10
SPARE = 0.05  # share of the GPU that stays free in a configuration that surely fits
# Measured over estimated memory: nineteen of twenty published figures are within this range, its end taken with the
# gradients of the last step, or with batches of different length up to the gaps of padded ones.
BAND_LOW, BAND_HIGH = 0.78, 1.15

Phase = Literal["loss", "backward", "step"]
Terms = tuple[Term, ...]
STATES = ("params", "grads", "optimizer")
PHASES = {"loss": "at the end of the forward pass", "backward": "in the backward pass", "step": "in the optimizer step"}
PEAK_WORDS = {"loss": "the loss", "backward": "backward", "step": "the step"}


def phase_terms(setting: TrainingSetup) -> dict[Phase, Terms]:
    """Return what PyTorch has allocated at the peak of the loss, of the backward pass, and of the optimizer step.

    During the backward pass activations are freed and gradients created, both evenly: memory is highest at its first
    block, at its last, or after that, when FSDP reduces embedding and head. In the forward pass FSDP2 may hold more at
    the last block than at the loss.
    """
    tensor = setting.layout.tensor or 1
    setting, kept, in_flight = rank_share(setting)
    alike = without_batch(setting)
    states, grads = model_states(alike), _gradients(alike)
    params, optimizer = states.params, states.optimizer
    before = grads if temporaries.keeps_last_gradients(setting) else ()
    gathered = gathered_weights.gathered_terms(alike)
    autocast = temporaries.autocast_terms(setting)
    saved, again = activations.stored_terms(kept), activations.recomputed_terms(kept)
    if in_flight > 1:
        saved = tuple(each.times(Factor(in_flight, "micro-batches in flight")) for each in saved)
    block = () if again else block_tensors.block_terms(kept)
    last_kept = activations.kept_input_terms(kept) or min(saved, block, key=total_bytes)
    logits = activations.logits_terms(kept, tensor > 1)
    held = tuple(each for each in logits if each.what == activations.LOGITS and kept.train.keeps_logits)
    in_block = (*held, *again, activations.activation_gradient_term(kept), *temporaries.dequantized_terms(alike))
    in_block += gathered_weights.exchange_terms(setting)
    if tensor > 1 and not again:
        saved = (*saved, *activations.whole_input_terms(setting, in_flight))
    loss = (*activations.head_input_terms(kept), *logits)
    at_loss = (*gathered_weights.at_loss_terms(alike), *temporaries.autocast_at_loss_terms(setting))
    forward = (
        (*params, *(before or temporaries.head_grad_terms(setting)), *optimizer, *saved, *loss, *at_loss),
        (*params, *before, *optimizer, *saved, *gathered_weights.forward_terms(alike)),
    )
    backward = (
        (*params, *before, *optimizer, *saved, *gathered, *(() if again else autocast), *in_block),
        (*params, *grads, *optimizer, *last_kept, *gathered, *in_block),
        (*params, *grads, *optimizer, *held, *gathered_weights.backward_end_terms(alike)),
    )
    buckets = gathered_weights.reduce_bucket_terms(alike) if alike.layout.stage == 3 else ()
    buckets = gathered if alike.layout.replicates else buckets
    step = (*buckets, *temporaries.optimizer_step_terms(alike))
    return {
        "loss": max(forward, key=total_bytes),
        "backward": max(backward, key=total_bytes),
        "step": (*params, *grads, *optimizer, *step),
    }


def _gradients(setting: TrainingSetup) -> Terms:
    """Return the gradients that exist at the same time: none if each is used up in the backward pass."""
    return () if setting.train.optimizer_in_bwd else model_states(setting).grads


def estimate_candidate(setting: TrainingSetup) -> Candidate:
    """Return the memory figures of a complete setting with its strategy."""
    return judge_candidate(setting, phase_terms(setting))


def judge_candidate(setting: TrainingSetup, phases: Mapping[Phase, Terms]) -> Candidate:
    """Return the figures of a setting whose phases allocate these terms, by formula or as tracked."""
    peak_phase = max(phases, key=lambda name: total_bytes(phases[name]))
    kept, outside = model_states(without_batch(rank_share(setting).setting)), temporaries.non_torch_terms(setting)
    allocated, outside_bytes = total_bytes(phases[peak_phase]), total_bytes(outside)
    reserved = _reserved_bytes(setting, phases)
    shown = reserved
    if setting.gpu_memory_gib is not None:  # the allocator of a full GPU frees its gaps
        shown = min(reserved, max(setting.gpu_memory_gib * GIB - outside_bytes, allocated * TIGHT))
    fitting = judge_fit(setting.gpu_memory_gib, allocated, reserved, outside_bytes)
    if fitting and not computation.has_known_shape(setting.model):
        fitting = None
    parts = dict.fromkeys(Breakdown.__struct_fields__, 0.0) | {"gaps": shown - allocated}
    for each in (*phases[peak_phase], *outside):
        parts[each.part] += each.bytes
    return Candidate(
        strategy=strategy_name(setting.layout),
        fits=fitting,
        model_state_bytes_per_gpu=kept.total,
        peak_allocated_bytes_per_gpu=allocated,
        peak_reserved_bytes_per_gpu=shown,
        device_used_bytes_per_gpu=shown + outside_bytes,
        band=_band(setting, phases, shown),
        peak_phase=peak_phase,
        breakdown=Breakdown(**parts),
        host_bytes=kept.host_bytes,
        loading_host_bytes=total_bytes(loading_terms(setting)),
    )


def _band(setting: TrainingSetup, phases: Mapping[Phase, Terms], shown: float) -> Band:
    """Return the range of the reserved peak.

    A request does not say whether the gradients of the last step exist in the forward pass. They do in a loop that
    drops them only before its backward pass, or sets them to zero, as torch 1 did by default.
    """
    grads = _gradients(without_batch(rank_share(setting).setting))
    kept: dict[Phase, Terms] = {
        name: terms if set(grads) <= set(terms) else (*terms, *grads) for name, terms in phases.items()
    }
    high = max(shown, _reserved_bytes(setting, kept)) * BAND_HIGH
    return Band(shown * BAND_LOW, max(high, _reserved_bytes(setting, phases, is_band=True)))


def peak_terms(setting: TrainingSetup, found: Candidate) -> list[Term]:
    """Return the terms of a candidate's peak by formula, in the order of its parts."""
    gaps = term("gaps", "reserved by PyTorch's allocator, but not usable", Factor(found.breakdown.gaps, "MiB"))
    terms = (*phase_terms(setting)[found.peak_phase], *temporaries.non_torch_terms(setting), gaps)
    order = Breakdown.__struct_fields__
    return sorted((each for each in terms if each.bytes > 0), key=lambda each: order.index(each.part))


def excess_bytes(setting: TrainingSetup) -> float:
    """Return by how many bytes a setting exceeds what surely fits, or a negative number for free memory."""
    phases = phase_terms(setting)
    allocated = max(total_bytes(terms) for terms in phases.values())
    outside = total_bytes(temporaries.non_torch_terms(setting))
    return _over_bytes(setting.gpu_memory_gib or 0.0, allocated, _reserved_bytes(setting, phases), outside)


def _over_bytes(memory_gib: float, allocated: float, reserved: float, outside: float) -> float:
    return max(allocated * SAFE, reserved) + outside - memory_gib * GIB * (1 - SPARE)


def _reserved_bytes(setting: TrainingSetup, phases: Mapping[Phase, Terms], is_band: bool = False) -> float:
    """Return the most that PyTorch's allocator reserves in a phase; ``is_band``: with the widest gaps."""
    train, layout = setting.train, setting.layout
    is_expandable, again = train.alloc == "expandable_segments", computation.recomputes_activations(train)
    varies = computation.lengths_vary(train)
    usual = STREAMS_WAITED_FOR if layout.is_fully_shard else USUAL
    if not again and (layout.kind == "single" or layout.replicates):
        usual = SAME_EACH_STEP
    if is_expandable:  # segments reuse blocks of any size
        usual = EXPANDABLE
    elif varies and not again:  # each batch saves tensors of another size
        usual = HIGH
    is_unequal = computation.pads_to_longest(train) or (is_band and varies)
    of_loss = usual if is_expandable else UNEQUAL if is_unequal else usual if layout.is_fsdp else ONE_STREAM
    slacks = dict.fromkeys(STATES, STATE_SLACK) | {"loss": of_loss}
    return max(sum(each.bytes * slacks.get(each.part, usual) for each in terms) for terms in phases.values())


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
    where = "NVMe" if "nvme" in (strategy.offload_optimizer, strategy.offload_param) else "CPU"
    offloaded = f" + {where} offload" if strategy.offloads else ""
    if strategy.stage == 3 and strategy.offload_optimizer and not strategy.offload_param:
        offloaded = f" + optimizer on {where}"
    if strategy.kind == "deepspeed":
        return f"ZeRO-{strategy.stage or 0}{offloaded}"
    names = {"single": "single GPU", "ddp": "DDP", "zero-optimizer": "DDP + ZeroRedundancyOptimizer"}
    after = strategy.reshard_after_forward
    kept = " without resharding" if after is False else f" resharding to {after}" if after and after > 1 else ""
    splits = "".join(f" + {name} parallel {size}" for name, size in strategy.splits.items() if size > 1)
    return names.get(strategy.kind, strategy.kind.upper()) + kept + offloaded + splits
