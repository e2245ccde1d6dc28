"""One machine, as generators of fixes and launch files need it, built from a snapshot."""

import re
from collections.abc import Sequence

import msgspec

from ..snapshot import Interface, LimitsSection, NetworkSection, PortSection, Snapshot
from .gpu_catalog import has_bf16
from .visible_gpus import visible_devices

C10D_PORT = 29400  # torchrun's default for the c10d rendezvous
MAX_CPU_RANKS = 4


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """One machine as a launcher sees it. Unknown values are None, 0 or empty."""

    gpu_count: int | None = None  # GPUs a job started here would see
    job_ranks: int = 0  # ranks of the job on this machine, as it was seen
    world_size: int = 0  # of the job, as its log says it
    gpu_memory_bytes: int = 0  # of the smallest of them
    gpu_free_bytes: int = 0  # of the GPU with the least free memory
    gpu_name: str = ""  # of the first of them
    gpu_names: Sequence[str] = ()  # all different ones
    nvlinks: int | None = None  # of the GPU with the fewest; 0 means PCIe
    cpus: int = 0
    memory_bytes: int = 0  # of the host, or the limit of this container
    memory_free_bytes: int = 0  # available memory, within the limit of this container
    nvme_free_bytes: float | None = None  # on the NVMe drive with most free space; 0: no drive; None: not checked
    nvme_mount: str = ""
    container: str = ""
    interface: str = ""  # the one to pin NCCL and gloo to
    other_interfaces: Sequence[str] = ()  # other physical ones that are up
    head: str = ""  # the address other nodes reach the first node at
    free_port: int = 0
    busy_port: int = 0
    port_holder: str = ""
    start_elsewhere: str = ""  # the command line of the job that was seen, with another rendezvous
    nodes: int = 1
    torch: tuple[int, int] | None = None
    shell_variables: Sequence[str] = ()  # names of the variables of distributed jobs that the shell has

    @property
    def listed_gpus(self) -> int:
        """GPUs that the NVIDIA driver lists, with name and memory; not those that torch alone reports."""
        return (self.gpu_count or 0) if self.gpu_name else 0

    @property
    def ranks(self) -> int:
        """Processes to start here: as many as the job that was seen, else one per GPU, or a few for gloo."""
        return self.job_ranks or self.gpu_count or max(2, min(MAX_CPU_RANKS, self.cpus))

    @property
    def ranks_known(self) -> bool:
        """True if ``ranks`` is more than a guess: a job or the GPUs were seen."""
        return self.gpu_count is not None or bool(self.job_ranks)

    @property
    def bf16(self) -> bool:
        """True if the GPUs have bf16 units."""
        return bool(self.gpu_count) and has_bf16(self.gpu_name)


def machine_from_snapshot(snapshot: Snapshot | None) -> Machine:
    """Build the machine of a snapshot. All values are unknown without one."""
    if snapshot is None:
        return Machine()
    network, ports, limits, resolve = snapshot.network, snapshot.ports, snapshot.limits, snapshot.resolve
    gpus = [device.gpu for device in visible_devices(snapshot.gpus)[0]] if snapshot.gpus else []
    pinned, others = interfaces_to_pin(network) if network else (None, [])
    variables = snapshot.env.variables if snapshot.env else {}
    return Machine(
        gpu_count=_gpu_count(snapshot, len(gpus)),
        gpu_memory_bytes=min((gpu.memory_total_bytes for gpu in gpus), default=0),
        gpu_free_bytes=min((gpu.memory_total_bytes - gpu.memory_used_bytes for gpu in gpus), default=0),
        gpu_name=gpus[0].name if gpus else "",
        gpu_names=sorted({gpu.name for gpu in gpus}),
        nvlinks=min((gpu.nvlinks for gpu in gpus if gpu.nvlinks is not None), default=None),
        cpus=limits.cpus if limits else 0,
        memory_bytes=(limits.cgroup_memory_limit_bytes or limits.memory_total_bytes) if limits else 0,
        memory_free_bytes=_free_memory(limits) if limits else 0,
        container=limits.container if limits else "",
        interface=pinned.name if pinned else "",
        other_interfaces=[interface.name for interface in others],
        head=_master_address(snapshot, pinned),
        free_port=_free_port(ports) if ports else 0,
        busy_port=ports.port if ports and not ports.free else 0,
        port_holder=_holder(ports) if ports else "",
        nodes=(resolve and resolve.nnodes) or (network and network.nodes) or 1,
        torch=_version(snapshot.software.torch) if snapshot.software else None,
        shell_variables=list(variables),
    )


def _free_memory(limits: LimitsSection) -> int:
    free = limits.memory_available_bytes
    if limits.cgroup_memory_limit_bytes:
        free = min(free, limits.cgroup_memory_limit_bytes - (limits.cgroup_memory_used_bytes or 0))
    return max(free, 1) if limits.memory_available_bytes else 0


def _gpu_count(snapshot: Snapshot, visible: int) -> int | None:
    software = snapshot.software
    by_torch = software.gpu_count_torch if software and software.torch else None
    if snapshot.gpus and snapshot.gpus.driver:
        return visible
    if snapshot.gpus:  # no NVIDIA driver: another vendor's GPUs show in torch alone
        return by_torch or 0
    return by_torch


def interfaces_to_pin(network: NetworkSection) -> tuple[Interface | None, list[Interface]]:
    """Return the interface that NCCL and gloo should use, and the other physical ones that are up.

    It is the fastest physical one with an address, at equal speed the one of the default route. Without a physical
    one, whatever has the default route: often a virtual interface in a container, on some hosts a bridge.
    """
    usable = [interface for interface in network.interfaces if interface.up and interface.addresses]
    real = [interface for interface in usable if interface.kind in ("physical", "infiniband")]
    real = real or [interface for interface in usable if interface.default_route]
    real.sort(key=lambda interface: (-(interface.speed_mbps or 0), not interface.default_route))
    return (real[0], real[1:]) if real else (None, [])


def _master_address(snapshot: Snapshot, pinned: Interface | None) -> str:
    resolve, network = snapshot.resolve, snapshot.network
    if resolve and resolve.master_addr and not resolve.loopback and not resolve.problem:
        return resolve.master_addr
    if pinned:
        four = [address for address in pinned.addresses if ":" not in address]
        return (four or pinned.addresses)[0].partition("/")[0]
    return network.hostname if network else snapshot.host


def _free_port(ports: PortSection) -> int:
    return ports.port if ports.free else ports.free_alternative


def _holder(ports: PortSection) -> str:
    pid = f"pid {ports.holder_pid}" if ports.holder_pid else ""
    return f"{ports.holder} ({pid})" if ports.holder and pid else ports.holder or pid


def _version(text: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None
