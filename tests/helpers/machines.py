"""Machines for the tests of the fix generators: snapshots as the probes would write them."""

from ddpwizard.app.hardware.machine import Machine
from ddpwizard.app.snapshot import (
    EnvSection,
    Gpu,
    GpuSection,
    Interface,
    InterfaceKind,
    LimitsSection,
    NetworkSection,
    PortSection,
    ResolveSection,
    Snapshot,
    SoftwareSection,
)

GIB = 2**30
EIGHT_GPUS = Machine(
    gpu_count=8,
    gpu_memory_bytes=80 * GIB,
    gpu_name="NVIDIA H100 80GB HBM3",
    cpus=96,
    memory_bytes=1024 * GIB,
    interface="eth0",
    head="10.0.0.5",
    free_port=29500,
    torch=(2, 13),
)
CPU_ONLY = Machine(gpu_count=0, cpus=2, memory_bytes=8 * GIB, torch=(2, 13))


def gpu(index: int, memory_gib: int = 80, name: str = "NVIDIA H100 80GB HBM3", mig: bool = False) -> Gpu:
    return Gpu(
        index=index,
        uuid=f"GPU-{index}aaaa",
        name=name,
        pci_id=f"0000:{index:02x}:00.0",
        memory_total_bytes=memory_gib * GIB,
        memory_used_bytes=0,
        mig=mig,
    )


def interface(
    name: str,
    kind: InterfaceKind = "physical",
    *,
    up: bool = True,
    speed: int = 10_000,
    address: str = "10.0.0.5",
    default: bool = False,
) -> Interface:
    return Interface(
        name=name,
        up=up,
        speed_mbps=speed,
        mtu=1500,
        addresses=[address] if address else [],
        kind=kind,
        default_route=default,
    )


def snapshot(
    *,
    gpus: GpuSection | None = None,
    interfaces: list[Interface] | None = None,
    ports: PortSection | None = None,
    resolve: ResolveSection | None = None,
    variables: dict[str, str] | None = None,
    torch: str = "2.13.0",
    gpu_count_torch: int = 0,
    cpus: int = 32,
    container: str = "",
) -> Snapshot:
    return Snapshot(
        taken_at=0.0,
        host="trainer-1",
        ddpwizard_version="0",
        env=EnvSection(owner="this shell", variables=variables or {}),
        software=SoftwareSection(
            python="/usr/bin/python3", python_version="3.11", torch=torch, gpu_count_torch=gpu_count_torch
        ),
        gpus=gpus or GpuSection(problem="no NVIDIA driver"),
        ports=ports or PortSection(port=29500, from_variable=False, free=True),
        network=NetworkSection(
            hostname="trainer-1",
            hostname_addresses=["10.0.0.5"],
            interfaces=interfaces if interfaces is not None else [interface("eth0", default=True)],
        ),
        limits=LimitsSection(
            shm_total_bytes=64 * 2**20,
            shm_free_bytes=64 * 2**20,
            memlock_bytes=None,
            open_files=1024,
            cgroup_memory_limit_bytes=None,
            cgroup_memory_used_bytes=None,
            cgroup_oom_kills=None,
            memory_total_bytes=64 * GIB,
            memory_available_bytes=60 * GIB,
            cpus=cpus,
            container=container,
        ),
        resolve=resolve,
    )
