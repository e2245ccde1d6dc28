"""One candidate in figures: its memory, its time, and whether the GPU and the host have room for it."""

from functools import lru_cache
from typing import NamedTuple

import msgspec

from .. import machines
from ..memory.activations import tokens
from ..memory.peaks import candidate
from ..time import timing
from ..time.arithmetic import model_flops, peak_flops
from ..types import GIB, Candidate, Setting

HOST_ROOM = 0.9  # of a host's memory
NOT_IN_PRACTICE = 100.0  # times the ideal step
SHORT_SHARE = 0.1  # of a step, from which on a wait is what binds


class Around(NamedTuple):
    """What a plan depends on besides its setting. ``host_bytes``: memory of one host, None where it is not known."""

    links: timing.Links | None = None
    host_bytes: float | None = None


@lru_cache(maxsize=512)
def figures(setting: Setting, around: Around) -> Candidate:
    """The candidate of a complete setting with its strategy, without words and comparisons."""
    found = candidate(setting)
    recompute = setting.train.act_ckpt or "none"
    fits = False if of_host(found, setting, around.host_bytes) > 1 else found.fits
    if around.links is None:
        return msgspec.structs.replace(found, recompute=recompute, fits=fits)
    took = timing.step(setting, gpu_of(setting), around.links)
    step_tokens = tokens(setting.train) * (setting.train.grad_accum or 1) * setting.gpus
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


def compared(found: Candidate, setting: Setting, around: Around) -> Candidate:
    """The candidate with how far it is from the ideal, whether that is far too far, and what share of the peak rate it
    makes use of."""
    if not found.step_seconds:
        return found
    gpu = gpu_of(setting)
    ideal = timing.ideal_s(setting, gpu, around.links)
    slower = found.step_seconds / ideal - 1 if ideal else None
    return msgspec.structs.replace(
        found,
        slower_than_ideal=slower,
        in_practice=slower is None or 1 + slower < NOT_IN_PRACTICE,
        mfu=model_flops(setting) / (found.step_seconds * peak_flops(setting, gpu)),
    )


def gpu_of(setting: Setting) -> machines.Gpu:
    """The GPU of a setting; a workstation's where it is not known."""
    return machines.find(setting.gpu, setting.gpu_memory_gib) or machines.UNKNOWN


def too_large(found: Candidate, setting: Setting) -> bool:
    """Whether it is the GPU's memory that lacks."""
    return found.device_used_bytes_per_gpu > 1.0001 * (setting.gpu_memory_gib or float("inf")) * GIB


def rounded(tokens_per_s: float) -> float:
    """To three digits: it is an estimate."""
    return float(f"{tokens_per_s:.3g}")


def of_host(found: Candidate, setting: Setting, host_bytes: float | None) -> float:
    """What share of the room on a host the ranks there need together; 0 where its memory is not known."""
    return found.host_bytes * setting.gpus / setting.nodes / (host_bytes * HOST_ROOM) if host_bytes else 0.0


def _binds(took: timing.Time) -> str:
    """What a step waits for most, where it is worth a word."""
    link_s = took.host_s - took.adam_s - took.drive_s
    waits = {"link": took.exposed_s, "NVMe": took.drive_s, "host memory": took.adam_s, "host link": link_s}
    worst = max(waits, key=lambda name: waits[name])
    return worst if waits[worst] > SHORT_SHARE * took.step_s else "arithmetic"
