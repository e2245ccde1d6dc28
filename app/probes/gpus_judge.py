"""Checks of the GPUs of a snapshot: pure functions over its section."""

from collections import Counter
from collections.abc import Callable, Iterator

from ..evidence import Check, Status
from ..hardware.visible_gpus import VisibleDevice, visible_devices
from ..launchers.rank_variables import integer_variable
from ..snapshot import Gpu, GpuProcess, GpuSection, Snapshot
from ..text.units import bytes_text, count_text, ranks_text

UNEXPLAINED_BYTES = 1 << 30  # less than this, used by no process, belongs to the driver


def judge(snapshot: Snapshot) -> list[Check]:
    """Check the GPUs: their state, the holders of their memory, and that each rank has its own."""
    section = snapshot.gpus
    if section is None:
        return []
    if section.never_returned:
        return [_never_returned(section)]
    if not section.gpus:
        return [_no_gpu(section)]
    job_pids = set(snapshot.env.ranks) if snapshot.env else set()
    checks = [_inventory(section), *_conditions(section), *_memory(section, job_pids)]
    missing = section.on_pci_bus - len(section.gpus) - section.lost
    if missing > 0 and not section.assigned:
        checks.append(_missing(section, missing))
    if section.problem:
        checks.append(Check("gpus.lost", "fail", "a GPU does not answer", section.problem, fix="search dmesg for Xid"))
    return checks + list(_ranks(section, snapshot))


def _no_gpu(section: GpuSection) -> Check:
    problem = section.problem or "NVML shows no GPU"
    if section.on_pci_bus:
        return Check(
            "gpus.driver",
            "fail",
            f"{count_text(section.on_pci_bus, 'NVIDIA GPU')} on the PCI bus, but no working driver",
            problem,
            finding="gpus.none",
            fix="load the NVIDIA driver; in a container start it with --gpus all",
        )
    return Check("gpus.driver", "skip", "no working NVIDIA driver", f"{problem}; only gloo on the CPU is available",
                 finding="gpus.none")  # fmt: skip


def _never_returned(section: GpuSection) -> Check:
    seen = f"; {count_text(section.on_pci_bus, 'NVIDIA GPU')} on the PCI bus" if section.on_pci_bus else ""
    return Check(
        "gpus.driver",
        "fail",
        "a call of the NVIDIA driver does not return",
        section.problem + seen,
        finding="gpus.no-answer",
        fix="nvidia-smi hangs as well then: search dmesg for Xid and NVRM, drain the node and reboot it",
    )


def _missing(section: GpuSection, missing: int) -> Check:
    return Check(
        "gpus.missing",
        "fail",
        f"{count_text(missing, 'GPU')} of {section.on_pci_bus} on the PCI bus unknown to the driver",
        f"NVML lists {len(section.gpus) + section.lost}: a GPU that failed to start or was lost is not among them",
        finding="gpus.missing",
        fix="search dmesg for NVRM and Xid; take the node out of service and reboot it",
    )


def _inventory(section: GpuSection) -> Check:
    models = Counter(f"{gpu.name} {_memory_text(gpu)}" for gpu in section.gpus)
    devices, _ = visible_devices(section)
    takes = ", ".join(f"{rank} → {_device(device)}" for rank, device in enumerate(devices))
    detail = f"driver {section.driver}; local rank → device: {takes}" if takes else f"driver {section.driver}"
    if len(models) > 1:
        detail += "; CUDA orders different models by speed unless CUDA_DEVICE_ORDER=PCI_BUS_ID is set"
    return Check("gpus", "ok", ", ".join(f"{count} × {model}" for model, count in models.items()), detail)


def _memory_text(gpu: Gpu) -> str:
    shared = " shared with the host" if gpu.shares_host_memory else ""
    return bytes_text(gpu.memory_total_bytes) + shared


def _device(device: VisibleDevice) -> str:
    return f"GPU {device.gpu.index} {device.gpu.pci_id}" + (f" {device.slice[:12]}" if device.slice else "")


Reason = Callable[[Gpu], str]
# finding, status, title, observation on one GPU (empty: none), fix
CONDITIONS: tuple[tuple[str, Status, str, Reason, str], ...] = (
    (
        "ecc-errors",
        "fail",
        "uncorrected ECC errors",
        lambda gpu: f"{gpu.ecc_uncorrected} since the driver was loaded" if gpu.ecc_uncorrected else "",
        "take the node out of service and reset the GPU (nvidia-smi --gpu-reset); if they come back, have it replaced",
    ),
    (
        "throttled",
        "warn",
        "throttled by heat or power: every rank waits for the slowest",
        lambda gpu: f"{', '.join(gpu.throttle)} at {gpu.temperature_c} °C" if gpu.throttle else "",
        "check cooling and power supply: nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
    ),
    (
        "exclusive-mode",
        "warn",
        "compute mode admits at most one process",
        lambda gpu: gpu.compute_mode if gpu.compute_mode != "default" else "",
        "nvidia-smi -c DEFAULT (as root)",
    ),
    (
        "mig-on",
        "warn",
        "MIG is on: a process sees one slice, and NCCL cannot connect slices of one GPU",
        lambda gpu: f"{len(gpu.mig_uuids)} slices" if gpu.mig else "",
        "for training over whole GPUs: nvidia-smi -i INDEX -mig 0 (as root, GPU idle)",
    ),
)


def _conditions(section: GpuSection) -> Iterator[Check]:
    """One check per condition, with all its GPUs."""
    for finding, status, means, reason, fix in CONDITIONS:
        seen = [(gpu, text) for gpu in section.gpus if (text := reason(gpu))]
        if seen:
            yield Check(
                f"gpus.{finding}",
                status,
                f"{_gpus([gpu for gpu, _ in seen])}: {means}",
                "; ".join(f"GPU {gpu.index} ({gpu.pci_id}): {text}" for gpu, text in seen),
                finding=f"gpus.{finding}",
                fix=fix,
            )


def _memory(section: GpuSection, job_pids: set[int]) -> Iterator[Check]:
    """Memory held by processes that are no ranks of a running job, or by ended processes."""
    held: list[tuple[Gpu, str]] = []
    gone: list[tuple[Gpu, str]] = []
    pids: set[int] = set()
    for gpu in section.gpus:
        used = bytes_text(gpu.memory_used_bytes)
        for process in gpu.processes:
            if process.alive and not _of_a_job(process, job_pids):
                held.append((gpu, _holder(process)))
                pids.add(process.pid)
            elif not process.alive and section.sees_all_pids:
                gone.append((gpu, f"{used} by pid {process.pid}, which has ended"))
        unseen = not section.sees_all_pids and not any(process.alive for process in gpu.processes)
        if unseen and not gpu.shares_host_memory and gpu.memory_used_bytes > UNEXPLAINED_BYTES:
            held.append((gpu, f"{used} by something outside this container"))
        elif not gpu.processes and not gpu.shares_host_memory and gpu.memory_used_bytes > UNEXPLAINED_BYTES:
            gone.append((gpu, f"{used} by no process that the driver lists"))
    if held:
        yield Check(
            "gpus.memory-held",
            "warn",
            f"{_gpus([gpu for gpu, _ in held])}: memory is held by a process without a running job",
            "; ".join(f"GPU {gpu.index}: {text}" for gpu, text in held),
            finding="gpus.memory-held",
            where=", ".join(f"pid {pid}" for pid in sorted(pids)),
            fix=f"if it is your own leftover: kill {' '.join(map(str, sorted(pids)))}" if pids else "",
        )
    if gone:
        yield Check(
            "gpus.holder-gone",
            "fail",
            f"{_gpus([gpu for gpu, _ in gone])}: memory is held by a process that has ended",
            "; ".join(f"GPU {gpu.index}: {text}" for gpu, text in gone),
            finding="gpus.holder-gone",
            fix="fuser -v /dev/nvidia* (as root) shows which process has the device open; end it, or reset the GPU",
        )


def _of_a_job(process: GpuProcess, job_pids: set[int]) -> bool:
    return process.pid in job_pids or (process.rank is not None and not process.orphan)


def _holder(process: GpuProcess) -> str:
    size = f"{bytes_text(process.used_bytes)} by " if process.used_bytes else ""
    who = f"pid {process.pid} ({process.command[:60] or 'unreadable'})"
    rank = f", rank {process.rank} of a job whose launcher is gone" if process.orphan else ""
    return size + who + (f" of {process.user}" if process.user else "") + rank


def _ranks(section: GpuSection, snapshot: Snapshot) -> Iterator[Check]:
    """Check that each rank of this host has its own GPU."""
    devices, odd = visible_devices(section)
    if odd:
        yield Check(
            "gpus.visible",
            "fail",
            f"CUDA_VISIBLE_DEVICES {odd}",
            f"CUDA_VISIBLE_DEVICES={section.visible}; this machine has {count_text(len(section.gpus), 'NVIDIA GPU')}",
            finding="env.visible-devices-odd",
            where="CUDA_VISIBLE_DEVICES",
            fix="unset CUDA_VISIBLE_DEVICES, or list each GPU of this machine once",
        )
    shared = list(_shared(section, snapshot))
    yield from shared
    ranks = section.local_world_size
    if ranks is None:
        return
    if ranks > len(devices) and devices and _leaves_gpus_alone(section, snapshot):
        yield Check(
            "gpus.ranks",
            "warn",
            f"{count_text(ranks, 'rank')} on this host, {count_text(len(devices), 'visible GPU')} that no rank uses",
            "a job on CPUs needs none; the ranks of one that has just started may still fail with an invalid device",
        )
    elif ranks > len(devices):
        yield Check(
            "gpus.ranks",
            "fail",
            f"{count_text(ranks, 'rank')} on this host, {count_text(len(devices), 'visible GPU')}",
            "the ranks beyond that fail with an invalid device, or share one GPU",
            finding="gpus.fewer-than-ranks",
            fix=f"--nproc-per-node={len(devices)}" if devices else "make the GPUs visible",
        )
    elif not shared:
        detail = "; ".join(f"local rank {i}: {_device(device)}" for i, device in enumerate(devices[:ranks]))
        yield Check("gpus.ranks", "ok", "each rank has its own GPU", detail, finding="gpus.one-to-one")


def _leaves_gpus_alone(section: GpuSection, snapshot: Snapshot) -> bool:
    """Return whether a job runs here and none of its ranks holds memory of a GPU."""
    ranks = set(snapshot.env.ranks) if snapshot.env else set()
    holders = {process.pid for gpu in section.gpus for process in gpu.processes}
    return bool(ranks) and section.sees_all_pids and not ranks & holders


def _shared(section: GpuSection, snapshot: Snapshot) -> Iterator[Check]:
    environments = snapshot.env.ranks if snapshot.env else {}
    for gpu in section.gpus:
        jobs: dict[str, dict[int, int]] = {}  # job -> rank -> pid
        for process in gpu.processes:
            rank = process.rank if process.rank is not None else _rank(environments.get(process.pid))
            if rank is not None and process.alive and not gpu.mig:
                jobs.setdefault(process.job, {})[rank] = process.pid
        for pids in jobs.values():
            if len(pids) > 1:
                yield Check(
                    "gpus.shared",
                    "fail",
                    f"GPU {gpu.index}: {ranks_text(list(pids))} of one job hold memory on it",
                    "; ".join(f"rank {rank} is pid {pid}" for rank, pid in sorted(pids.items()))
                    + ": NCCL refuses that, or the GPU runs out of memory while others are idle",
                    finding="gpus.shared-device",
                    where=gpu.pci_id,
                    fix='torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything uses CUDA',
                )


def _rank(variables: dict[str, str] | None) -> int | None:
    return integer_variable(variables or {}, "RANK")


def _gpus(gpus: list[Gpu]) -> str:
    numbers = sorted({gpu.index for gpu in gpus})
    return f"GPU{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
