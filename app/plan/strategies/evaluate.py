"""One candidate in figures: its memory, its time, and whether the GPU and the host have room for it."""

from functools import lru_cache
from typing import NamedTuple

import msgspec

from ...hardware import gpu_catalog
from ...text.units import GIB
from ..memory.peak import estimate_candidate
from ..memory.token_counts import batch_tokens
from ..timing import step_time
from ..timing.compute import model_flops, peak_flops_per_s
from ..types import Candidate, TrainingSetup

HOST_ROOM = 0.9  # of a host's memory
NOT_IN_PRACTICE = 100.0  # times the ideal step
SHORT_SHARE = 0.1  # of a step, from which on a wait is what binds


class PlanContext(NamedTuple):
    """What a plan depends on besides its setting. ``host_bytes``: memory of one host, None where it is not known."""

    links: step_time.Links | None = None
    host_bytes: float | None = None


@lru_cache(maxsize=512)
def evaluate(setting: TrainingSetup, around: PlanContext) -> Candidate:
    """The candidate of a complete setting with its strategy, without words and comparisons."""
    found = estimate_candidate(setting)
    recompute = setting.train.act_ckpt or "none"
    fits = False if host_memory_share(found, setting, around.host_bytes) > 1 else found.fits
    if around.links is None:
        return msgspec.structs.replace(found, recompute=recompute, fits=fits)
    took = step_time.step_time(setting, gpu_of(setting), around.links)
    step_tokens = batch_tokens(setting.train) * (setting.train.grad_accum or 1) * setting.gpus
    return msgspec.structs.replace(
        found,
        recompute=recompute,
        fits=fits,
        comm_bytes_per_step=took.sent_bytes,
        exposed_comm_seconds=took.exposed_s,
        step_seconds=took.step_s,
        tokens_per_s=step_tokens / took.step_s if took.step_s else None,
        binds=_binds(took),
    )


def add_comparison(found: Candidate, setting: TrainingSetup, around: PlanContext) -> Candidate:
    """The candidate with how far it is from the ideal, whether that is far too far, and what share of the peak rate it
    makes use of."""
    if not found.step_seconds:
        return found
    gpu = gpu_of(setting)
    ideal = step_time.ideal_step_s(setting, gpu, around.links)
    slower = found.step_seconds / ideal - 1 if ideal else None
    return msgspec.structs.replace(
        found,
        slower_than_ideal=slower,
        in_practice=slower is None or 1 + slower < NOT_IN_PRACTICE,
        mfu=model_flops(setting) / (found.step_seconds * peak_flops_per_s(setting, gpu)),
    )


def gpu_of(setting: TrainingSetup) -> gpu_catalog.GpuSpec:
    """The GPU of a setting; a workstation's where it is not known."""
    return gpu_catalog.find_gpu(setting.gpu, setting.gpu_memory_gib) or gpu_catalog.UNKNOWN


def exceeds_gpu(found: Candidate, setting: TrainingSetup) -> bool:
    """Whether it is the GPU's memory that lacks."""
    return found.device_used_bytes_per_gpu > 1.0001 * (setting.gpu_memory_gib or float("inf")) * GIB


def round_to_three_digits(tokens_per_s: float) -> float:
    """To three digits: it is an estimate."""
    return float(f"{tokens_per_s:.3g}")


def host_memory_share(found: Candidate, setting: TrainingSetup, host_bytes: float | None) -> float:
    """What share of the room on a host the ranks there need together; 0 where its memory is not known."""
    return found.host_bytes * setting.gpus / setting.nodes / (host_bytes * HOST_ROOM) if host_bytes else 0.0


def _binds(took: step_time.StepTime) -> str:
    """What a step waits for most, where it is worth a word."""
    link_s = took.host_s - took.adam_s - took.drive_s
    waits = {"link": took.exposed_s, "NVMe": took.drive_s, "host memory": took.adam_s, "host link": link_s}
    worst = max(waits, key=lambda name: waits[name])
    return worst if waits[worst] > SHORT_SHARE * took.step_s else "arithmetic"
