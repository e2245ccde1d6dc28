"""Detect this machine for a plan: its GPUs, their free memory and links, host memory and NVMe drives."""

import asyncio
from contextlib import suppress
from pathlib import Path

import msgspec

from ...errors import InspectionError
from ...hardware.machine import Machine, machine_from_snapshot
from ...probes import gpus as gpus_probe
from ...probes import limits as limits_probe
from ...probes.context import ProbeContext
from ...snapshot import GpuSection, LimitsSection, Snapshot
from ...text.units import GIB, gib_text

LIMIT_S = 10.0  # of each probe
LEAST_FREE_GIB = 0.1  # of a GPU whose memory is all in use


def detect_machine(python: str) -> Machine:
    """Detect this machine with the probes of ``ddpwizard doctor``."""
    found = asyncio.run(_detect(ProbeContext(python=python)))
    free_bytes, mount = free_nvme()
    return msgspec.structs.replace(found, nvme_free_bytes=free_bytes, nvme_mount=mount)


def free_nvme() -> tuple[float, str]:
    """Return the most free bytes on a mounted NVMe drive and its mount point, or 0 and "" without one."""
    import psutil

    found = (0.0, "")
    for each in psutil.disk_partitions(all=False):
        if Path(each.device).name.startswith("nvme"):
            with suppress(OSError):
                found = max(found, (float(psutil.disk_usage(each.mountpoint).free), each.mountpoint))
    return found


async def _detect(context: ProbeContext) -> Machine:
    found = await asyncio.gather(
        gpus_probe.collect(context, LIMIT_S), limits_probe.collect(context, LIMIT_S), return_exceptions=True
    )
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, InspectionError):
            raise each
    gpus, limits = found
    return machine_from_snapshot(
        Snapshot(
            taken_at=0,
            host="",
            ddpwizard_version="",
            gpus=gpus if isinstance(gpus, GpuSection) else None,
            limits=limits if isinstance(limits, LimitsSection) else None,
        )
    )


def free_gpu_memory_gib(machine: Machine) -> float | None:
    """Return the free memory of the fullest GPU, or None if the machine has no known GPU."""
    return max(machine.gpu_free_bytes / GIB, LEAST_FREE_GIB) if machine.listed_gpus else None


def machine_notes(machine: Machine) -> list[str]:
    """Return what was detected, one line each."""
    notes = ["gpus: 1, no GPU found on this machine; give --gpus 8 --gpu H100"]
    if machine.listed_gpus:
        free, names = gib_text(machine.gpu_free_bytes), ", ".join(machine.gpu_names)
        notes = [f"gpus: {machine.listed_gpus}, found on this machine ({names}), {free} free on each"]
    if machine.memory_free_bytes:
        notes.append(f"host memory: {gib_text(machine.memory_free_bytes, 0)} free on this machine")
    if machine.nvme_free_bytes is None:
        return notes
    if not machine.nvme_mount:
        return [*notes, "NVMe: no drive found on this machine"]
    return [*notes, f"NVMe: {gib_text(machine.nvme_free_bytes, 0)} free on {machine.nvme_mount}"]
