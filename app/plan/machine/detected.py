"""The box at hand, as far as a plan needs it: its GPUs, what is free of their memory and how they are linked, and the
memory and the NVMe drives of the host."""

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
    """``gpus`` is 0 where none is seen; ``told`` says what was found, a line each."""

    gpus: int
    gpu: str | None
    gpu_memory_gib: float | None
    host_bytes: float | None
    told: list[str]
    nvlinks: int | None = None  # of the GPU that has fewest; 0: they talk over PCIe
    nvme_bytes: float | None = (
        None  # free on the NVMe drive with most room, 0 where there is none, None: not looked for
    )


def detect_machine(python: str) -> DetectedMachine:
    """Look at this machine, as ``ddpwizard doctor`` does."""
    found = asyncio.run(_look(ProbeContext(python=python)))
    free, where = free_nvme()
    told = [f"NVMe: {free / GIB:.0f} GiB free in {where}" if where else "NVMe: no drive is seen here"]
    return found._replace(nvme_bytes=free, told=found.told + told)


def free_nvme() -> tuple[float, str]:
    """Free bytes of the mounted NVMe drive that has most, and where it is mounted; 0 where there is none."""
    import psutil

    found = (0.0, "")
    for each in psutil.disk_partitions(all=False):
        if Path(each.device).name.startswith("nvme"):
            with suppress(OSError):
                found = max(found, (float(psutil.disk_usage(each.mountpoint).free), each.mountpoint))
    return found


async def _look(context: ProbeContext) -> DetectedMachine:
    found = await asyncio.gather(gpus_probe.collect(context), limits_probe.collect(context), return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, InspectionError):
            raise each
    gpus, limits = found
    return machine_from_sections(
        gpus if isinstance(gpus, GpuSection) else None, limits if isinstance(limits, LimitsSection) else None
    )


def machine_from_sections(gpus: GpuSection | None, limits: LimitsSection | None) -> DetectedMachine:
    """What the sections say of the box."""
    told: list[str] = []
    host_bytes = _host_bytes(limits)
    if host_bytes:
        told.append(f"host memory: {host_bytes / GIB:.0f} GiB, what is free here")
    visible = [device.gpu for device in visible_devices(gpus)[0]] if gpus else []
    if not visible:
        return DetectedMachine(
            0, None, None, host_bytes, ["gpus: 1, no GPU is seen here; say --gpus 8 --gpu H100", *told]
        )
    free_gib = min(gpu.memory_total_bytes - gpu.memory_used_bytes for gpu in visible) / GIB
    names = sorted({gpu.name for gpu in visible})
    told.insert(0, f"gpus: {len(visible)}, those seen here ({', '.join(names)}), {free_gib:.1f} GiB free on each")
    links = [gpu.nvlinks for gpu in visible if gpu.nvlinks is not None]
    return DetectedMachine(
        len(visible), visible[0].name, max(free_gib, 0.1), host_bytes, told, min(links) if links else None
    )


def _host_bytes(limits: LimitsSection | None) -> float | None:
    """What may still be taken of the host's memory: what is free, and of a container's limit what is left."""
    if limits is None or not limits.memory_available_bytes:
        return None
    free = float(limits.memory_available_bytes)
    if limits.cgroup_memory_limit_bytes:
        free = min(free, limits.cgroup_memory_limit_bytes - (limits.cgroup_memory_used_bytes or 0))
    return max(free, 1.0)
