"""The GPUs the ranks use, as NVML shows them, read in a child: an NVML call can hang where a GPU does."""

from collections.abc import Collection
from typing import Any

import msgspec

from ...errors import CouldNotLook
from ...probes.apart import Look, apart
from ...probes.context import Context
from ..types import Device

LIMIT_S = 4.0


class Use(msgspec.Struct, frozen=True):
    """One GPU and who computes on it."""

    device: Device
    pids: list[int]


class Uses(msgspec.Struct, frozen=True):
    """All GPUs; ``problem`` says why there are none."""

    gpus: list[Use]
    problem: str = ""


async def collect(pids: Collection[int]) -> dict[int, list[Device]]:
    """The GPUs of each of these processes.

    Raises:
        CouldNotLook: NVML does not answer.
    """
    found = await apart(read, Uses, Context(python=""), limit_s=LIMIT_S, subject="the GPUs through NVML")
    if found.problem:
        raise CouldNotLook(f"the GPUs through NVML: {found.problem}", "run nvidia-smi to see what the driver says")
    return {pid: [use.device for use in found.gpus if pid in use.pids] for pid in pids}


def read(_look: Look) -> Uses:
    """The child's part: call NVML here."""
    try:
        import pynvml
    except ImportError as error:
        raise CouldNotLook(f"the module pynvml cannot be imported: {error}", "pip install nvidia-ml-py") from error
    return uses(pynvml)


def uses(nvml: Any) -> Uses:
    """What NVML (the module ``pynvml``, or recorded data in its place) says of each GPU; a lost one is left out."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Uses([], str(error))
    found: list[Use] = []
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = _asked(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
            if handle is None:
                continue
            utilisation = _asked(nvml, getattr(nvml, "nvmlDeviceGetUtilizationRates", None), handle)
            memory = _asked(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
            running = _asked(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
            device = Device(index, utilisation.gpu if utilisation else None, memory.used if memory else None)
            found.append(Use(device, [process.pid for process in running]))
    except nvml.NVMLError as error:
        return Uses(found, str(error))
    finally:
        nvml.nvmlShutdown()
    return Uses(found)


def _asked(nvml: Any, function: Any, argument: Any) -> Any:
    """An answer, or None where the GPU or the driver has none."""
    try:
        return function(argument) if function else None
    except nvml.NVMLError:
        return None
