"""The GPUs the ranks use, as NVML shows them, read in a child: an NVML call can hang where a GPU does."""

from collections.abc import Collection
from typing import Any

import msgspec

from ...errors import InspectionError
from ...probes.context import ProbeContext
from ...probes.isolated import ChildRequest, run_isolated
from ..types import GpuUse

LIMIT_S = 4.0


class GpuUsage(msgspec.Struct, frozen=True):
    """One GPU and who computes on it."""

    device: GpuUse
    pids: list[int]


class GpuUsages(msgspec.Struct, frozen=True):
    """All GPUs; ``problem`` says why there are none."""

    gpus: list[GpuUsage]
    problem: str = ""


async def gpus_of_processes(pids: Collection[int]) -> dict[int, list[GpuUse]]:
    """The GPUs of each of these processes.

    Raises:
        CouldNotLook: NVML does not answer.
    """
    found = await run_isolated(
        read_gpu_usages, GpuUsages, ProbeContext(python=""), limit_s=LIMIT_S, subject="the GPUs through NVML"
    )
    if found.problem:
        raise InspectionError(f"the GPUs through NVML: {found.problem}", "run nvidia-smi to see what the driver says")
    return {pid: [use.device for use in found.gpus if pid in use.pids] for pid in pids}


def read_gpu_usages(_look: ChildRequest) -> GpuUsages:
    """The child's part: call NVML here."""
    try:
        import pynvml
    except ImportError as error:
        raise InspectionError(f"the module pynvml cannot be imported: {error}", "pip install nvidia-ml-py") from error
    return gpu_usages(pynvml)


def gpu_usages(nvml: Any) -> GpuUsages:
    """What NVML (the module ``pynvml``, or recorded data in its place) says of each GPU; a lost one is left out."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return GpuUsages([], str(error))
    found: list[GpuUsage] = []
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = _asked(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
            if handle is None:
                continue
            utilisation = _asked(nvml, getattr(nvml, "nvmlDeviceGetUtilizationRates", None), handle)
            memory = _asked(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
            running = _asked(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
            device = GpuUse(index, utilisation.gpu if utilisation else None, memory.used if memory else None)
            found.append(GpuUsage(device, [process.pid for process in running]))
    except nvml.NVMLError as error:
        return GpuUsages(found, str(error))
    finally:
        nvml.nvmlShutdown()
    return GpuUsages(found)


def _asked(nvml: Any, function: Any, argument: Any) -> Any:
    """An answer, or None where the GPU or the driver has none."""
    try:
        return function(argument) if function else None
    except nvml.NVMLError:
        return None
