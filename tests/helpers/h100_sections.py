"""Snapshot sections of a machine with H100 GPUs, as far as a plan reads them."""

from ddpwizard.app.snapshot import Gpu, LimitsSection

GIB = 2**30
LIMITS = LimitsSection(
    shm_total_bytes=None,
    shm_free_bytes=None,
    memlock_bytes=None,
    open_files=None,
    cgroup_memory_limit_bytes=None,
    cgroup_memory_used_bytes=None,
    cgroup_oom_kills=None,
    memory_total_bytes=64 * GIB,
    memory_available_bytes=48 * GIB,
    cpus=8,
)


def gpu(index: int, used_gib: float) -> Gpu:
    return Gpu(
        index=index,
        uuid=f"GPU-{index}",
        name="NVIDIA H100 80GB HBM3",
        pci_id=f"0000:0{index}:00.0",
        memory_total_bytes=80 * GIB,
        memory_used_bytes=int(used_gib * GIB),
    )
