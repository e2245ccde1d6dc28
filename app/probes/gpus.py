"""GPUs through NVML, read in a child that can be killed: models, memory and its holders, assignment to ranks."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ..errors import InspectionError
from ..hardware.visible_gpus import visible_devices
from ..launchers.rank_variables import local_world_size
from ..snapshot import Gpu, GpuProcess, GpuSection
from ..system import proc_files
from ..text import redact
from .context import ProbeContext
from .env import read_launch_environment
from .gpus_judge import judge
from .isolated import ChildRequest, run_isolated
from .nvml import read_nvml

__all__ = ["build_gpu_section", "collect", "judge", "visible_devices"]

NVIDIA_VENDOR = "0x10de"
PASSED_THROUGH = "vfio-pci"  # the driver of a GPU that a virtual machine uses
DISPLAY_CLASS = "0x03"  # PCI class of GPUs: 0x0300 VGA, 0x0302 3D controller
INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # Linux: PROC_PID_INIT_INO, include/linux/proc_ns.h
# Variables of schedulers and container runtimes, which may show a process only some of the GPUs of the machine.
ASSIGNERS = frozenset({"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "KUBERNETES_SERVICE_HOST", "NVIDIA_VISIBLE_DEVICES"})
COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
# nvml.h, nvmlClocksEventReasons. Left out: idle, clocks set by hand, sync boost, and the software power cap, which
# every GPU under full load reaches.
THROTTLE_BITS = {0x8: "hw-slowdown", 0x20: "sw-thermal", 0x40: "hw-thermal", 0x80: "hw-power-brake"}


async def collect(context: ProbeContext, limit_s: float) -> GpuSection:
    """Query NVML. A missing driver and a call that does not return are no errors; the section reports them.

    Raises:
        InspectionError: NVML failed.
    """
    problem = f"NVML did not return within {limit_s:g} s"
    return await run_isolated(
        read_gpu_section,
        GpuSection,
        context,
        limit_s=limit_s,
        subject="the GPUs through NVML",
        on_timeout=lambda: GpuSection(problem=problem, on_pci_bus=_on_pci_bus(), never_returned=True),
    )


def read_gpu_section(request: ChildRequest) -> GpuSection:
    """Query NVML in this process (called in the child)."""
    try:
        import pynvml
    except ImportError as error:
        raise InspectionError(f"the module pynvml cannot be imported: {error}", "pip install nvidia-ml-py") from error
    return build_gpu_section(read_nvml(pynvml), request)


def build_gpu_section(answer: dict[str, Any], request: ChildRequest) -> GpuSection:
    """Build the section from NVML's answer and the processes that it lists."""
    environ, ranks_on_host = _launch(request)
    sees_all_pids = proc_files.read_link_of(os.getpid(), "ns/pid") == INITIAL_PID_NAMESPACE
    known = _processes({entry["pid"] for gpu in answer["gpus"] for entry in gpu["processes"]})
    return GpuSection(
        driver=answer["driver"],
        gpus=[_gpu(gpu, known) for gpu in answer["gpus"]],
        visible=environ.get("CUDA_VISIBLE_DEVICES"),
        local_world_size=ranks_on_host,
        problem=answer["problem"],
        on_pci_bus=_on_pci_bus(),
        sees_all_pids=sees_all_pids,
        lost=answer["lost"],
        assigned=not sees_all_pids or not ASSIGNERS.isdisjoint({*environ, *os.environ}),
    )


def _gpu(raw: dict[str, Any], known: dict[int, GpuProcess]) -> Gpu:
    bits = raw["throttle_bits"] or 0
    processes = [replace(known[entry["pid"]], used_bytes=entry["used_bytes"]) for entry in raw["processes"]]
    copied = {name: value for name, value in raw.items() if name != "throttle_bits"}
    if raw["memory_total_bytes"] is None:
        import psutil

        host = psutil.virtual_memory()
        copied |= {
            "memory_total_bytes": host.total,
            "memory_used_bytes": host.total - host.available,
            "shares_host_memory": True,
        }
    return Gpu(
        **copied
        | {
            "processes": processes,
            "throttle": [name for bit, name in THROTTLE_BITS.items() if bits & bit],
            "compute_mode": COMPUTE_MODES.get(raw["compute_mode"], "default"),
        }
    )


def _processes(pids: set[int]) -> dict[int, GpuProcess]:
    """The processes of these pids; missing ones are marked as not alive."""
    if not pids:
        return {}
    import psutil

    from ..jobs import discover

    try:
        jobs = discover.find_jobs()
    except InspectionError:
        jobs = []
    found: dict[int, GpuProcess] = {}
    for pid in pids:
        command, user, alive = "", "", False
        try:
            process = psutil.Process(pid)
            command, user = redact.redact_text(" ".join(process.cmdline()))[:200], process.username()
            alive = process.status() != psutil.STATUS_ZOMBIE
        except psutil.AccessDenied:
            alive = True
        except psutil.Error:
            alive = False
        found[pid] = GpuProcess(pid=pid, used_bytes=None, command=command, user=user, alive=alive)
    for job in jobs:
        launcher = f"{job.launcher} {job.launcher_pid}" if job.launcher_pid else f"{job.launcher} {job.master}"
        for process in job.processes:
            if process.pid in found:
                ranked = replace(found[process.pid], rank=process.rank, job=launcher, orphan=job.launcher_gone)
                found[process.pid] = ranked
    return found


def _launch(request: ChildRequest) -> tuple[Mapping[str, str], int | None]:
    """The variables of the given job or of the shell, and the number of their ranks on this host."""
    try:
        _, environ, ranks, _ = read_launch_environment(request)
    except InspectionError:  # the job has ended; its GPUs can still be read
        environ, ranks = request.environ, {}
    return environ, len(ranks) or local_world_size(environ)


def _on_pci_bus() -> int:
    try:
        devices = list(Path("/sys/bus/pci/devices").iterdir())
    except OSError:
        return 0
    return sum(
        _text(device / "vendor") == NVIDIA_VENDOR
        and _text(device / "class").startswith(DISPLAY_CLASS)
        and (device / "driver").resolve().name != PASSED_THROUGH
        for device in devices
    )


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
