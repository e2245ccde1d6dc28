"""Evaluate one candidate: its memory, its step time, and whether it fits on the GPU and the host."""

from functools import lru_cache
from typing import NamedTuple

import msgspec

from ...hardware import gpu_catalog
from ...text.units import GIB
from ..memory.computation import batch_tokens, has_known_shape
from ..memory.formula import total_bytes
from ..memory.model_states import loading_terms
from ..memory.peak import estimate_candidate, excess_bytes
from ..rank_share import data_parallel_ranks
from ..script_changes import without_files
from ..timing import step_time
from ..timing.compute import model_flops
from ..types import Candidate, TrainingSetup

HOST_ROOM = 0.9  # of a host's memory
MOST_SEQUENCES = 512  # largest micro-batch that is tried
ABOUT_AS_FAST = 1.02  # times the fastest micro-batch
NOT_IN_PRACTICE = 20.0  # times the ideal step: the GPU would wait for 95 % of the time
SHORT_STEP_S = 0.1  # a shorter step is usable whatever its ratio: in a small model latencies are longer than the work
SHORT_SHARE = 0.1  # of a step: a longer wait is the bottleneck


class PlanContext(NamedTuple):
    """Links and host memory of a plan; ``host_bytes`` is the memory of one host, None if it is not known."""

    links: step_time.Links
    host_bytes: float | None = None


@lru_cache(maxsize=512)
def evaluate(setting: TrainingSetup, context: PlanContext) -> Candidate:
    """Return the candidate of a complete setting with a strategy, without texts."""
    return add_times(estimate_candidate(setting), setting, context)


def add_times(found: Candidate, setting: TrainingSetup, context: PlanContext) -> Candidate:
    """Add the times of a step to the memory of a candidate, and judge whether it fits on the host and in practice."""
    gpu, groups, grad_accum = gpu_of(setting), data_parallel_ranks(setting), setting.train.grad_accum or 1
    step = step_time.step_time(setting, gpu, context.links)
    slowdown = step.step_s / step_time.ideal_step_s(setting, gpu, context.links)
    flops = model_flops(setting) * groups / setting.gpus
    peak_flops_per_s = (gpu.fp32_tflops if setting.train.dtype == "fp32" else gpu.tflops) * 1e12  # of the data sheet
    return msgspec.structs.replace(
        found,
        recompute=setting.train.act_ckpt or "none",
        fits=False if host_memory_share(found, setting, context.host_bytes) > 1 else found.fits,
        micro_batch=setting.train.micro_batch or 1,
        grad_accum=grad_accum,
        comm_bytes_per_step=step.sent_bytes,
        exposed_comm_seconds=step.exposed_s,
        step_seconds=step.step_s,
        tokens_per_s=batch_tokens(setting.train) * grad_accum * groups / step.step_s,
        binds=_binds(step),
        slower_than_ideal=slowdown - 1,
        in_practice=slowdown < NOT_IN_PRACTICE or step.step_s < SHORT_STEP_S,
        mfu=flops / (step.step_s * peak_flops_per_s),
        without_files=without_files(setting),
    )


def choose_micro_batch(setting: TrainingSetup, context: PlanContext) -> TrainingSetup:
    """Return the setting with the smallest micro-batch that surely fits and is about as fast as any."""
    train = setting.train
    if not (has_known_shape(setting.model) and setting.gpu_memory_gib):
        return setting
    sequences = (train.micro_batch or 1) * (train.grad_accum or 1)
    sizes = (size for size in range(1, min(sequences, MOST_SEQUENCES) + 1) if sequences % size == 0)
    ways = [setting.with_train(micro_batch=size, grad_accum=sequences // size) for size in sizes]
    fitting = [way for way in ways if excess_bytes(way) <= 0]
    seconds = [step_time.step_time(way, gpu_of(way), context.links).step_s for way in fitting]
    about = ABOUT_AS_FAST * min(seconds, default=0.0)
    return next((way for way, step_s in zip(fitting, seconds, strict=True) if step_s <= about), ways[0])


def choose_loading(setting: TrainingSetup, context: PlanContext) -> TrainingSetup:
    """Return the setting with a model on the meta device if the host cannot hold a whole one for each rank."""
    strategy = setting.layout
    if strategy.meta_init is not None or not (strategy.shards_weights and context.host_bytes):
        return setting
    needed = total_bytes(loading_terms(setting)) * setting.gpus / setting.nodes
    if needed <= context.host_bytes * HOST_ROOM:
        return setting
    return setting.with_layout(meta_init=True)


def largest_micro_batch(setting: TrainingSetup) -> int:
    """Return the most sequences per GPU and step that fit, at most ``MOST_SEQUENCES``, by secants."""

    def excess(count: int) -> float:
        return excess_bytes(setting.with_train(micro_batch=count))

    low, high = 1, MOST_SEQUENCES
    at_low, at_high = excess(low), excess(high)
    if at_low > 0 or at_high <= 0:
        return 0 if at_low > 0 else high
    while high - low > 1:
        step = int((high - low) * at_low / (at_low - at_high))
        middle = low + min(max(step, 1), high - low - 1)
        if (at := excess(middle)) <= 0:
            low, at_low = middle, at
        else:
            high, at_high = middle, at
    return low


def gpu_of(setting: TrainingSetup) -> gpu_catalog.GpuSpec:
    """Return the GPU of a setting; that of a workstation if it is not known."""
    return gpu_catalog.find_gpu(setting.gpu, setting.gpu_memory_gib) or gpu_catalog.UNKNOWN


def exceeds_gpu(found: Candidate, setting: TrainingSetup) -> bool:
    """Return whether the candidate needs more memory than the GPU has."""
    return found.device_used_bytes_per_gpu > 1.0001 * (setting.gpu_memory_gib or float("inf")) * GIB


def rate_text(tokens_per_s: float) -> str:
    """Return an estimate with three digits: ``76,300``."""
    return f"{float(f'{tokens_per_s:.3g}'):,.0f}"


def host_memory_share(found: Candidate, setting: TrainingSetup, host_bytes: float | None) -> float:
    """Return the share of the usable host memory that its ranks need; 0 if that memory is not known."""
    needed = max(found.host_bytes, found.loading_host_bytes)
    return needed * setting.gpus / setting.nodes / (host_bytes * HOST_ROOM) if host_bytes else 0.0


def _binds(step: step_time.StepTime) -> str:
    """Return what a step waits for most, or "arithmetic" if the wait is short."""
    link_s = step.host_s - step.adam_s - step.drive_s
    waits = {"link": step.exposed_s, "NVMe": step.drive_s, "host memory": step.adam_s, "host link": link_s}
    worst = max(waits, key=lambda name: waits[name])
    return worst if waits[worst] > SHORT_SHARE * step.step_s else "arithmetic"
