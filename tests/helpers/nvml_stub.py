"""Stub for hardware that this machine lacks: answers like the module ``pynvml``, from data in a JSON file.

The data has the shape of NVML's answers; null means "not supported", for which pynvml raises an exception.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

FIXTURES = Path(__file__).parent.parent / "probes" / "fixtures" / "nvml"


class NVMLError(Exception):
    """Base of what pynvml raises."""


class StubNvml:
    """The functions of ``pynvml`` that the probe uses. ``pids`` puts live pids in place of names in the data."""

    NVMLError = NVMLError
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    NVML_TEMPERATURE_GPU = 0
    nvmlMemory_v2 = 0x02000028
    NVML_FEATURE_ENABLED = 1
    NVML_NVLINK_MAX_LINKS = 18

    def __init__(self, name: str, pids: dict[str, int] | None = None) -> None:
        data = json.loads((FIXTURES / f"{name}.json").read_text())
        self.pids = pids or {}
        self.driver: str = data.get("driver", "")
        self.init_error: str = data.get("init_error", "")
        self.devices: list[dict[str, Any]] = [{**data["each"], **device} for device in data.get("devices", [])]
        self.open = False

    def nvmlInit(self) -> None:
        if self.init_error:
            raise NVMLError(self.init_error)
        self.open = True

    def nvmlShutdown(self) -> None:
        self.open = False

    def nvmlSystemGetDriverVersion(self) -> str:
        return self.driver

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        device = self.devices[index]
        if "lost" in device:
            raise NVMLError(device["lost"])
        return device

    def nvmlDeviceGetUUID(self, handle: dict[str, Any]) -> str:
        return handle["uuid"]

    def nvmlDeviceGetName(self, handle: dict[str, Any]) -> str:
        return handle["name"]

    def nvmlDeviceGetPciInfo(self, handle: dict[str, Any]) -> SimpleNamespace:
        return SimpleNamespace(busId=handle["bus_id"])

    def nvmlDeviceGetMemoryInfo(self, handle: dict[str, Any], version: int | None = None) -> SimpleNamespace:
        return SimpleNamespace(**_supported(handle["memory_v2" if version else "memory"]))

    def nvmlDeviceGetComputeRunningProcesses(self, handle: dict[str, Any]) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(pid=self.pids.get(entry["pid"], entry["pid"]), usedGpuMemory=entry["usedGpuMemory"])
            for entry in handle["processes"]
        ]

    def nvmlDeviceGetMigMode(self, handle: dict[str, Any]) -> list[int]:
        return _supported(handle["mig_mode"])

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: dict[str, Any]) -> int:
        return 7 if handle["mig_mode"] else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: dict[str, Any], index: int) -> dict[str, Any]:
        slices = handle.get("mig_uuids", [])
        if index >= len(slices):
            raise NVMLError("Not Found")
        return {"uuid": slices[index]}

    def nvmlDeviceGetTotalEccErrors(self, handle: dict[str, Any], kind: int, counter: int) -> int:
        assert (kind, counter) == (self.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, self.NVML_VOLATILE_ECC)
        return _supported(handle["ecc_uncorrected_volatile"])

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: dict[str, Any]) -> int:
        return _supported(handle["clocks_event_reasons"])

    def nvmlDeviceGetTemperature(self, handle: dict[str, Any], sensor: int) -> int:
        assert sensor == self.NVML_TEMPERATURE_GPU
        return _supported(handle["temperature"])

    def nvmlDeviceGetUtilizationRates(self, handle: dict[str, Any]) -> SimpleNamespace:
        return SimpleNamespace(gpu=_supported(handle.get("busy_percent")), memory=0)

    def nvmlDeviceGetNvLinkState(self, handle: dict[str, Any], link: int) -> int:
        states = handle.get("nvlink_states", [])
        return _supported(states[link] if link < len(states) else None)

    def nvmlDeviceGetComputeMode(self, handle: dict[str, Any]) -> int:
        return _supported(handle["compute_mode"])


def _supported(value: Any) -> Any:
    if value is None:
        raise NVMLError("Not Supported")
    return value
