"""Explain a candidate: its bottleneck, why it fits or not, and the gain of single changes."""

from collections.abc import Sequence

import msgspec

from ...text.units import GIB, gib_number, gib_text, percent_text, ratio_text
from ..memory.computation import has_known_shape
from ..types import Binding, Candidate, PlanRow, TrainingSetup
from .evaluate import HOST_ROOM, PlanContext, exceeds_gpu, largest_micro_batch
from .what_if import best_what_if, throughput_headroom, worthwhile_changes

HELD_BACK = 0.05  # of the tokens per second: a larger gain of a larger micro-batch makes memory the bottleneck
MOSTLY_WAITING = 0.9  # share of a step in which DDP waits: further GPUs add little


def explain_candidate(rows: Sequence[PlanRow], at: int, context: PlanContext) -> PlanRow:
    """Return one of the ranked candidates with its bottleneck, reason, changes and the name of a better one."""
    found, setting = rows[at]
    if found.is_tracked:
        return rows[at]
    most = largest_micro_batch(setting) if setting.gpu_memory_gib and has_known_shape(setting.model) else None
    dominated_by = _dominated(rows[at], rows) if at else ""
    found = msgspec.structs.replace(
        found, largest_micro_batch=most, binds=_binds(found, setting), dominated_by=dominated_by
    )
    headroom = throughput_headroom(found, setting, context)
    if headroom > HELD_BACK and found.binds == "arithmetic":
        found = msgspec.structs.replace(found, binds="GPU memory")
    why, changes = _why(found, setting, context.host_bytes), []
    if dominated_by:
        lever = f"{dominated_by} is no slower and needs no more memory"
    elif at and setting.layout.splits_model:
        lever = "needs a mesh and a plan for the modules of your model"
    else:
        changes = worthwhile_changes(found, setting, context)
        lever = best_what_if(found, setting, changes, context)
    return PlanRow(msgspec.structs.replace(found, changes=changes, why=why, lever=lever), setting)


def explain_tracked(found: Candidate, before: Candidate, setting: TrainingSetup, context: PlanContext) -> Candidate:
    """Return a candidate as tracked with its reason, and with the changes and the micro-batch of the formula."""
    tracked = msgspec.structs.replace(
        found,
        is_tracked=True,
        largest_micro_batch=before.largest_micro_batch if found.fits is True else None,
        dominated_by=before.dominated_by,
        lever=before.lever,
        changes=before.changes,
    )
    tracked = msgspec.structs.replace(tracked, binds=_binds(tracked, setting))
    return msgspec.structs.replace(tracked, why=f"as tracked, {_why(tracked, setting, context.host_bytes)}")


def _binds(found: Candidate, setting: TrainingSetup) -> Binding:
    """Return the bottleneck: the missing memory if it does not fit or only just, else that of its time."""
    if found.fits is False:
        return "GPU memory" if exceeds_gpu(found, setting) else "host memory"
    return "GPU memory" if found.fits == "tight" and found.binds != "NVMe" else found.binds


def _dominated(row: PlanRow, rows: Sequence[PlanRow]) -> str:
    """Return a strategy of the same family that is no worse, with files if this has some, or "" as for DDP."""
    if row.setting.layout.kind == "ddp":
        return ""

    def costs(each: PlanRow) -> tuple[float, ...]:
        found = each.candidate
        return (found.step_seconds, found.peak_allocated_bytes_per_gpu, found.host_bytes)

    def family(each: PlanRow) -> tuple[bool, bool]:
        return each.setting.layout.kind == "deepspeed", each.setting.layout.is_fsdp

    mine = costs(row)
    for other in rows:
        needs_more = other.setting.layout.splits_model and not row.setting.layout.splits_model
        is_better = costs(other) != mine and all(one <= two for one, two in zip(costs(other), mine, strict=True))
        if is_better and not needs_more and family(other) == family(row):
            return other.candidate.full_name
    return ""


def _why(found: Candidate, setting: TrainingSetup, host_bytes: float | None) -> str:
    if setting.gpu_memory_gib is None:
        least = "" if has_known_shape(setting.model) else " for the states alone, activations come in addition"
        return f"needs {gib_text(found.device_used_bytes_per_gpu)} per GPU{least}"
    room = setting.gpu_memory_gib * GIB - found.device_used_bytes_per_gpu
    if found.fits is False:
        if not exceeds_gpu(found, setting):
            return f"does not fit: {_short_of_host(found, setting, host_bytes)}"
        return f"does not fit: {gib_text(-room)} of GPU memory are missing"
    if not has_known_shape(setting.model):
        least = f"at least {gib_number(found.device_used_bytes_per_gpu)} of {gib_text(setting.gpu_memory_gib * GIB)}"
        counted = "activations come in addition, and are counted from layers and hidden size"
        return f"{least}; {counted}{_fewer_gpus(found, setting)}"
    spare = f"{gib_text(room)} to spare" if room > 0 else "fits only if PyTorch frees its gaps"
    built = ", if it is built on the meta device" if setting.layout.meta_init else ""
    ranks = setting.gpus // setting.nodes
    in_all = f", {gib_text(found.host_bytes * ranks, 0)} on each host" if ranks > 1 else ""
    on_host = f", {gib_text(found.host_bytes, 0)} of host memory for each GPU{in_all}" if found.host_bytes else ""
    reason = f"{spare}{built}{on_host}{_pace(found, setting)}"
    return reason if found.in_practice else f"too slow: {reason}"


def _short_of_host(found: Candidate, setting: TrainingSetup, host_bytes: float | None) -> str:
    if not host_bytes:
        return "host memory is missing"
    ranks = setting.gpus // setting.nodes
    each_bytes = max(found.host_bytes, found.loading_host_bytes)
    loading = " to build the model" if found.loading_host_bytes > found.host_bytes else ""
    each = f" ({ranks} ranks need {gib_number(each_bytes, 0)} each)" if ranks > 1 else ""
    return f"{gib_text(each_bytes * ranks - host_bytes * HOST_ROOM, 0)} of host memory are missing{loading}{each}"


def slowdown_text(slower_than_ideal: float) -> str:
    """Return ``41% over compute time``; from twice as long, ``5.4 times the compute time``."""
    if slower_than_ideal >= 1:
        return f"{ratio_text(1 + slower_than_ideal)} times the compute time"
    return f"{percent_text(slower_than_ideal)} over compute time"


def _pace(found: Candidate, setting: TrainingSetup) -> str:
    """Return the slowdown against the ideal step, and its main cause."""
    slower = f", {slowdown_text(found.slower_than_ideal)}"
    if found.binds == "GPU memory" and found.fits is True:
        slower += ", no room for twice the micro-batch, which would be faster"
    waits = found.exposed_comm_seconds / found.step_seconds
    if waits >= 0.01:
        whom = "the network" if setting.nodes > 1 else "other GPUs"
        slower += f" ({percent_text(waits)} of a step waits for {whom})"
    slower += _fewer_gpus(found, setting)
    words = {"NVMe": "the NVMe drive", "host memory": "the optimizer on the host", "host link": "the link to the host"}
    return slower + (f"; the bottleneck is {words[found.binds]}" if found.binds in words else "")


def _fewer_gpus(found: Candidate, setting: TrainingSetup) -> str:
    waits = found.exposed_comm_seconds >= MOSTLY_WAITING * found.step_seconds
    return "; fewer GPUs may be as fast" if waits and setting.layout.kind == "ddp" else ""
