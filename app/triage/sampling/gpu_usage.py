"""The GPUs that the ranks use, from NVML in a child process: an NVML call can hang if a GPU does."""

from collections.abc import Collection
from typing import Any

import msgspec

from ...errors import InspectionError
from ...probes.context import ProbeContext
from ...probes.isolated import ChildRequest, run_isolated
from ..types import GpuUse

LIMIT_S = 4.0


class GpuUsage(msgspec.Struct, frozen=True):
    """A GPU and the processes that compute on it."""

    device: GpuUse
    pids: list[int]


class GpuUsages(msgspec.Struct, frozen=True):
    """All GPUs; ``problem``: why they could not be read."""

    gpus: list[GpuUsage]
    problem: str = ""


async def gpus_of_processes(pids: Collection[int]) -> dict[int, list[GpuUse]]:
    """Return the GPUs of each of these processes.

    Raises:
        InspectionError: NVML does not answer.
    """
    found = await run_isolated(
        read_gpu_usages, GpuUsages, ProbeContext(python=""), limit_s=LIMIT_S, subject="the GPUs through NVML"
    )
    if found.problem:
        raise InspectionError(
            f"the GPUs through NVML: {found.problem}", "run nvidia-smi to see the state of the driver"
        )
    return {pid: [use.device for use in found.gpus if pid in use.pids] for pid in pids}


def read_gpu_usages(_request: ChildRequest) -> GpuUsages:
    """Read the GPUs through NVML; runs in the child process."""
    try:
        import pynvml
    except ImportError as error:
        raise InspectionError(f"the module pynvml cannot be imported: {error}", "pip install nvidia-ml-py") from error
    return gpu_usages(pynvml)


def gpu_usages(nvml: Any) -> GpuUsages:
    """Read the use of each GPU from NVML (``pynvml``, or a stub with recorded data). Lost GPUs are left out."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return GpuUsages([], str(error))
    found: list[GpuUsage] = []
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = _query(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
            if handle is None:
                continue
            utilisation = _query(nvml, getattr(nvml, "nvmlDeviceGetUtilizationRates", None), handle)
            memory = _query(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
            running = _query(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
            device = GpuUse(index, utilisation.gpu if utilisation else None, memory.used if memory else None)
            found.append(GpuUsage(device, [process.pid for process in running]))
    except nvml.NVMLError as error:
        return GpuUsages(found, str(error))
    finally:
        nvml.nvmlShutdown()
    return GpuUsages(found)


def _query(nvml: Any, function: Any, argument: Any) -> Any:
    """Call an NVML function; return None if the GPU or the driver does not support it."""
    try:
        return function(argument) if function else None
    except nvml.NVMLError:
        return None
