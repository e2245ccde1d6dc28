"""The order of strategies, and the reason against each that is not the first.

The order, each rule for what the rule before leaves alike:

1. the verdict: surely fits, only just fits, fits but takes too long, does not fit (by the missing memory);
2. what the job files can do comes before what needs a plan for the modules of the model, without files;
3. the time of a sample: all that are within 10 % of the fastest are alike, as two estimates that differ by less than
   twice their median error (5 %, docs/plan.md) are;
4. of those fewer moving parts, then the time; of the others the time.
"""

from collections.abc import Iterator, Sequence
from math import inf

import msgspec

from ...text.units import GIB, gib_text, percent_text, ratio_text, speed_gain_text
from ..types import PlanRow, TrainingSetup
from .evaluate import host_memory_share

PLACE = {True: 0, None: 0, "tight": 1, False: 3}
SLOW_PLACE = 2  # of what fits, but not in practice
ALIKE = 1.10  # times the fastest
LEAST_BYTES = GIB / 2  # of a difference that is worth a word
SAME_SHARE = 0.005


def rank(rows: Sequence[PlanRow], host_bytes: float | None) -> list[PlanRow]:
    """Sort the rows, the best first, and give each of the others the reason against it."""
    fastest: dict[tuple[int, bool], float] = {}
    for row in rows:
        fastest[_group(row)] = min(fastest.get(_group(row), inf), _sample_s(row))

    def order(row: PlanRow) -> tuple[int, bool, bool, float, float]:
        here, sample_s = _group(row), _sample_s(row)
        if row.candidate.fits is False:
            memory = row.candidate.device_used_bytes_per_gpu / ((row.setting.gpu_memory_gib or 1) * GIB)
            return *here, False, max(memory, host_memory_share(*row, host_bytes)), 0.0
        alike = sample_s <= ALIKE * fastest[here]
        return *here, not alike, float(len(moving_parts(row.setting))) if alike else 0.0, sample_s

    best, *others = sorted(rows, key=order)
    reasons = ["", *(why_not(row, best) for row in others)]
    return [
        PlanRow(msgspec.structs.replace(row.candidate, why_not=reason), row.setting)
        for row, reason in zip((best, *others), reasons, strict=True)
    ]


def moving_parts(setting: TrainingSetup) -> list[str]:
    """Return what a strategy brings into a job that trains on one GPU: things to set up, and that can fail."""
    layout = setting.layout
    parts = {
        "a process group": layout.kind != "single",
        "DeepSpeed": layout.kind == "deepspeed",
        "its configuration": layout.kind == "deepspeed",
        "sharded weights": layout.shards_weights,
        "sharded optimizer states": layout.kind == "zero-optimizer" or layout.stage in (1, 2),
        "weights kept between the passes": layout.reshard_after_forward is False,
        "a mesh of two dimensions": layout.kind == "hsdp" or int(layout.reshard_after_forward or 1) > 1,
        "states on the host": layout.steps_on_host,
        "weights on the host": bool(layout.offload_param),
        "an NVMe drive": "nvme" in (layout.offload_optimizer, layout.offload_param),
        **{f"{name} parallelism": size > 1 for name, size in layout.splits.items()},
        "recomputation": setting.train.act_ckpt not in (None, "none"),
    }
    return [name for name, has in parts.items() if has]


def shortage_text(row: PlanRow) -> str:
    """Return how much memory is missing for a strategy."""
    over_bytes = row.candidate.device_used_bytes_per_gpu - (row.setting.gpu_memory_gib or 0.0) * GIB
    return f"{gib_text(over_bytes)} too much" if over_bytes > 0 else "too much for the host"


def _group(row: PlanRow) -> tuple[int, bool]:
    """Return the verdict as a number, and whether the strategy needs a plan for the modules."""
    found = row.candidate
    if found.fits is False:
        return PLACE[False], False
    return PLACE[found.fits] if found.in_practice else SLOW_PLACE, row.setting.layout.splits_model


def _sample_s(row: PlanRow) -> float:
    """Return the seconds of a step over its tokens."""
    return 1 / row.candidate.tokens_per_s


def why_not(other: PlanRow, best: PlanRow) -> str:
    """Return why a strategy is not the first choice: what it costs, and what it saves that is not needed."""
    return ", ".join(_reasons(other, best))


def _reasons(other: PlanRow, best: PlanRow) -> Iterator[str]:
    found, first, setting = other.candidate, best.candidate, other.setting
    if found.fits is False:
        yield f"does not fit, {shortage_text(other)}"
        return
    share = _sample_s(other) / _sample_s(best) - 1
    if share >= 1:
        yield f"takes {ratio_text(1 + share)} × as long"
    elif abs(share) < SAME_SHARE:
        yield "as fast"
    else:
        yield f"{f'{percent_text(share)} slower' if share > 0 else speed_gain_text(1 / (1 + share))} here"
    saved = first.device_used_bytes_per_gpu - found.device_used_bytes_per_gpu
    if abs(saved) > LEAST_BYTES:
        needed = " you do not need" if first.fits is True else ""
        yield f"saves {gib_text(saved)}{needed}" if saved > 0 else f"needs {gib_text(-saved)} more"
    if found.fits == "tight" and first.fits is not False:
        left = (setting.gpu_memory_gib or 0.0) * GIB - found.device_used_bytes_per_gpu
        yield f"only just fits ({gib_text(max(0.0, left))} to spare)"
    if found.host_bytes > first.host_bytes + LEAST_BYTES:
        yield f"takes {gib_text(found.host_bytes, 0)} of host memory for each GPU"
    if setting.layout.splits_model:
        yield "needs a plan for your modules" + (found.without_files and f", no files yet for {found.without_files}")
        return
    more = [part for part in moving_parts(setting) if part not in moving_parts(best.setting)]
    if share < ALIKE - 1 and more:
        yield f"adds {' + '.join(more)}"
