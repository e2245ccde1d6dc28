"""Read NVML into plain data. Called in a child only, because an NVML call can hang.

Values that a GPU or its driver does not support are None. The module ``pynvml`` is a parameter, so that recorded data
can replace it.
"""

from typing import Any

Answer = dict[str, Any]
NOT_SUPPORTED = "Not Supported"  # nvmlErrorString of NVML_ERROR_NOT_SUPPORTED


def read_nvml(nvml: Any) -> Answer:
    """Return {driver, gpus, problem, lost}. ``problem``: why none answers, or which GPUs do not; ``lost``: how many."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {"driver": "", "gpus": [], "problem": str(error), "lost": 0}
    gpus: list[Answer] = []
    problems: list[str] = []
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                gpus.append(_gpu(nvml, index))
            except nvml.NVMLError as error:  # a GPU that fell off the bus must not hide the others
                problems.append(f"GPU {index}: {error}")
    except nvml.NVMLError as error:
        return {"driver": "", "gpus": [], "problem": str(error), "lost": 0}
    finally:
        nvml.nvmlShutdown()
    return {"driver": driver, "gpus": gpus, "problem": "; ".join(problems), "lost": len(problems)}


def _gpu(nvml: Any, index: int) -> Answer:
    """One GPU. Its identity is required; other values may be None."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(name: str, *arguments: Any) -> Any:
        function = getattr(nvml, name, None)  # an older pynvml, or an older driver, lacks some
        try:
            return function(handle, *arguments) if function else None
        except nvml.NVMLError:
            return None

    memory = _memory(nvml, handle)
    mig = ask("nvmlDeviceGetMigMode")
    throttle = ask("nvmlDeviceGetCurrentClocksEventReasons")
    return {
        "index": index,
        "uuid": _text(nvml.nvmlDeviceGetUUID(handle)),
        "name": _text(nvml.nvmlDeviceGetName(handle)),
        "pci_id": _text(nvml.nvmlDeviceGetPciInfo(handle).busId),
        "memory_total_bytes": memory.total if memory else None,
        "memory_used_bytes": memory.used if memory else None,
        "processes": [
            {"pid": process.pid, "used_bytes": process.usedGpuMemory}
            for process in ask("nvmlDeviceGetComputeRunningProcesses") or []
        ],
        "mig": bool(mig and mig[0]),
        "mig_uuids": _mig_uuids(nvml, handle, ask("nvmlDeviceGetMaxMigDeviceCount")) if mig and mig[0] else [],
        "ecc_uncorrected": ask(
            "nvmlDeviceGetTotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        ),
        "throttle_bits": ask("nvmlDeviceGetCurrentClocksThrottleReasons") if throttle is None else throttle,
        "temperature_c": ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        "compute_mode": ask("nvmlDeviceGetComputeMode"),
        "nvlinks": _nvlinks(nvml, handle),
    }


def _memory(nvml: Any, handle: Any) -> Any:
    """The memory of one GPU, or None if it has none of its own."""
    try:  # since driver 510: without the memory that the driver reserves
        return nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
    except (nvml.NVMLError, AttributeError, TypeError):
        pass
    try:
        return nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError as error:
        if str(error) == NOT_SUPPORTED:
            return None
        raise


def _nvlinks(nvml: Any, handle: Any) -> int | None:
    """The number of active NVLinks, 0 without NVLink; None if this pynvml lacks the query."""
    ask = getattr(nvml, "nvmlDeviceGetNvLinkState", None)
    if ask is None:
        return None
    links = 0
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)):
        try:
            links += ask(handle, link) == nvml.NVML_FEATURE_ENABLED
        except nvml.NVMLError:  # no such link, or no NVLink at all
            break
    return links


def _mig_uuids(nvml: Any, handle: Any, slots: int | None) -> list[str]:
    """The UUIDs of a GPU's MIG slices. NVML raises for slots without a slice."""
    uuids: list[str] = []
    for slot in range(slots or 0):
        try:
            uuids.append(_text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot))))
        except nvml.NVMLError:
            continue
    return uuids


def _text(value: Any) -> str:
    """Decode: pynvml up to 11.4 returned bytes."""
    return value.decode() if isinstance(value, bytes) else value
