"""This machine as a plan needs it: its GPUs, their free memory and links, host memory and NVMe drives."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ...errors import InspectionError
from ...hardware.visible_gpus import visible_devices
from ...probes import gpus as gpus_probe
from ...probes import limits as limits_probe
from ...probes.context import ProbeContext
from ...snapshot import GpuSection, LimitsSection
from ...text.units import GIB


class DetectedMachine(NamedTuple):
    """A detected machine. ``gpus`` is 0 if none was found; ``notes``: the findings, one line each."""

    gpus: int
    gpu: str | None
    gpu_memory_gib: float | None
    host_bytes: float | None
    notes: list[str]
    nvlinks: int | None = None  # of the GPU with the fewest; 0 means PCIe
    nvme_bytes: float | None = None  # free on the NVMe drive with most free space; 0: no drive; None: not checked


def detect_machine(python: str) -> DetectedMachine:
    """Detect this machine with the probes of ``ddpwizard doctor``."""
    found = asyncio.run(_detect(ProbeContext(python=python)))
    free, where = free_nvme()
    nvme = [f"NVMe: {free / GIB:.0f} GiB free on {where}" if where else "NVMe: no drive found on this machine"]
    return found._replace(nvme_bytes=free, notes=found.notes + nvme)


def free_nvme() -> tuple[float, str]:
    """Return the most free bytes on a mounted NVMe drive and its mount point, or 0 and "" without one."""
    import psutil

    found = (0.0, "")
    for each in psutil.disk_partitions(all=False):
        if Path(each.device).name.startswith("nvme"):
            with suppress(OSError):
                found = max(found, (float(psutil.disk_usage(each.mountpoint).free), each.mountpoint))
    return found


async def _detect(context: ProbeContext) -> DetectedMachine:
    found = await asyncio.gather(gpus_probe.collect(context), limits_probe.collect(context), return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, InspectionError):
            raise each
    gpus, limits = found
    return machine_from_sections(
        gpus if isinstance(gpus, GpuSection) else None, limits if isinstance(limits, LimitsSection) else None
    )


def machine_from_sections(gpus: GpuSection | None, limits: LimitsSection | None) -> DetectedMachine:
    """Return the machine that these sections of a snapshot describe."""
    notes: list[str] = []
    host_bytes = _host_bytes(limits)
    if host_bytes:
        notes.append(f"host memory: {host_bytes / GIB:.0f} GiB free on this machine")
    visible = [device.gpu for device in visible_devices(gpus)[0]] if gpus else []
    if not visible:
        return DetectedMachine(
            0, None, None, host_bytes, ["gpus: 1, no GPU found on this machine; give --gpus 8 --gpu H100", *notes]
        )
    free_gib = min(gpu.memory_total_bytes - gpu.memory_used_bytes for gpu in visible) / GIB
    names = sorted({gpu.name for gpu in visible})
    notes.insert(
        0, f"gpus: {len(visible)}, found on this machine ({', '.join(names)}), {free_gib:.1f} GiB free on each"
    )
    links = [gpu.nvlinks for gpu in visible if gpu.nvlinks is not None]
    return DetectedMachine(
        len(visible), visible[0].name, max(free_gib, 0.1), host_bytes, notes, min(links) if links else None
    )


def _host_bytes(limits: LimitsSection | None) -> float | None:
    """Return the available host memory, within the limit of a container."""
    if limits is None or not limits.memory_available_bytes:
        return None
    free = float(limits.memory_available_bytes)
    if limits.cgroup_memory_limit_bytes:
        free = min(free, limits.cgroup_memory_limit_bytes - (limits.cgroup_memory_used_bytes or 0))
    return max(free, 1.0)
