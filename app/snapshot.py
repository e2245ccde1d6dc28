"""Data that collectors read from a machine: saved, replayed, attached to a report, judged elsewhere.

Each section belongs to the probe of the same name. A section is None if it was not collected; ``failed`` has the
reason if it could not be.
"""

from typing import Literal

import msgspec

from .errors import UserError

SCHEMA = "ddpwizard.snapshot/1"
LIMIT_BYTES = 50_000_000  # of a saved snapshot


class SnapshotSection(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the sections: plain data, keyword only, so that fields can be added later."""


class EnvSection(SnapshotSection, frozen=True):
    """The launch environment of a shell or of a process. ``variables`` has only those that concern launching."""

    owner: str  # "this shell" or "pid 1234 (python train.py)"
    variables: dict[str, str]
    ranks: dict[int, dict[str, str]] = {}  # pid -> its variables, if a job runs here
    nccl_conf: dict[str, str] = {}  # settings in force from /etc/nccl.conf or ~/.nccl.conf
    nccl_conf_files: list[str] = []  # the lines they come from
    nccl_conf_problems: list[str] = []  # lines NCCL does not understand, files it cannot read
    unreadable: list[int] = []  # pids of the job whose environment we may not read


class SoftwareSection(SnapshotSection, frozen=True):
    """The target interpreter and its importable packages. Empty text: not installed."""

    python: str
    python_version: str
    torch: str = ""
    torch_path: str = ""
    cuda: str = ""
    cudnn: str = ""
    nccl: str = ""
    backends: list[str] = []
    gpu_count_torch: int = 0
    arch_list: list[str] = []
    packages: dict[str, str] = {}  # accelerate, deepspeed, transformers, lightning, …
    problem: str = ""  # why torch could not be imported


class GpuProcess(msgspec.Struct, frozen=True):
    pid: int
    used_bytes: int | None
    command: str
    user: str
    alive: bool
    rank: int | None = None
    job: str = ""  # the job it is a rank of, named by its launcher
    orphan: bool = False  # a rank whose launcher is gone


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    uuid: str
    name: str
    pci_id: str
    memory_total_bytes: int
    memory_used_bytes: int
    shares_host_memory: bool = False  # it has no memory of its own (GB10): total and used are those of the host
    processes: list[GpuProcess] = []
    mig: bool = False
    mig_uuids: list[str] = []
    ecc_uncorrected: int | None = None
    throttle: list[str] = []
    temperature_c: int | None = None
    compute_mode: str = "default"
    nvlinks: int | None = None  # NVLink links that are up; None: not reported


class GpuSection(SnapshotSection, frozen=True):
    """GPUs as NVML reports them. ``driver`` is empty if no NVIDIA driver answers; ``problem`` then has the reason."""

    driver: str = ""
    gpus: list[Gpu] = []
    visible: str | None = None  # CUDA_VISIBLE_DEVICES as set, None if unset
    local_world_size: int | None = None
    problem: str = ""
    on_pci_bus: int = 0  # NVIDIA GPUs on the PCI bus, whether or not a driver answers
    never_returned: bool = False  # a call of the driver did not return
    lost: int = 0  # GPUs that the driver lists and that do not answer
    assigned: bool = False  # a scheduler or a container may show this process only some of the GPUs
    sees_all_pids: bool = (
        True  # False in a container with pids of its own: the processes that hold memory are not visible
    )


class PortSection(SnapshotSection, frozen=True):
    """The rendezvous port and the process that listens on it, if any."""

    port: int
    from_variable: bool
    free: bool
    holder_pid: int | None = None
    holder: str = ""
    free_alternative: int = 0
    ours: bool = False  # held by the inspected job
    problem: str = ""  # why the port is unusable although no process holds it


InterfaceKind = Literal["physical", "virtual", "bridge", "loopback", "tunnel", "infiniband"]


class Interface(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    up: bool
    speed_mbps: int | None
    mtu: int
    addresses: list[str]
    kind: InterfaceKind
    default_route: bool = False


class NetworkSection(SnapshotSection, frozen=True):
    """Interfaces, and those that NCCL and gloo select with the present variables."""

    hostname: str
    hostname_addresses: list[str]
    interfaces: list[Interface]
    nccl_selector: str | None = None
    gloo_selector: str | None = None
    nccl_would_use: list[str] = []
    gloo_would_use: list[str] = []
    nodes: int | None = None  # nodes of the job, if the variables give them
    hostname_problem: str = ""  # why this host's name has no address


class LimitsSection(SnapshotSection, frozen=True):
    """Limits of this host or container. None: not limited or not readable, by the name of the field."""

    shm_total_bytes: int | None
    shm_free_bytes: int | None
    memlock_bytes: int | None  # None: unlimited
    open_files: int | None
    cgroup_memory_limit_bytes: int | None
    cgroup_memory_used_bytes: int | None
    cgroup_oom_kills: int | None
    memory_total_bytes: int
    memory_available_bytes: int
    cpus: int
    container: str = ""
    ptrace_scope: int | None = None
    can_ptrace: bool = True
    shm_problem: str = ""  # why /dev/shm cannot be used
    rdma_devices: list[str] = []  # InfiniBand and RoCE devices, which need locked memory


class ResolveSection(SnapshotSection, frozen=True):
    """MASTER_ADDR: its addresses, whether it is this host, whether the port answers."""

    master_addr: str
    master_port: int
    addresses: list[str]
    loopback: bool
    ours: bool
    nnodes: int | None = None
    connected: bool | None = None  # None: not tried (needs --allow connects, or we are rank 0)
    problem: str = ""


class BenchRow(msgspec.Struct, frozen=True, kw_only=True):
    """One size of a collective. ``algbw`` = bytes / seconds; ``busbw`` = algbw x 2(n-1)/n for all-reduce."""

    operation: str
    backend: str
    ranks: int
    bytes: int
    seconds: float
    algbw_gbps: float
    busbw_gbps: float
    correct: bool


class AllreduceSection(SnapshotSection, frozen=True):
    """The live test, on one host. ``verdict`` is empty if it passed; ``last_lines`` are per rank in any case.

    ``load`` is the load average of the host before the test, ``cpus`` the number of its CPUs; None: not known.
    """

    backend: str
    ranks: int
    rows: list[BenchRow]
    verdict: str = ""
    ended: Literal["done", "failed", "hung"] = "done"
    culprits: list[int] = []
    last_lines: dict[int, list[str]] = {}
    elapsed_s: float = 0.0
    load: float | None = None
    cpus: int | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Snapshot of one machine."""

    schema: str = SCHEMA
    taken_at: float
    host: str
    ddpwizard_version: str
    env: EnvSection | None = None
    software: SoftwareSection | None = None
    gpus: GpuSection | None = None
    ports: PortSection | None = None
    network: NetworkSection | None = None
    limits: LimitsSection | None = None
    resolve: ResolveSection | None = None
    allreduce: AllreduceSection | None = None
    failed: dict[str, str] = {}  # probe id -> why it could not be run


def snapshot_from_plain(data: object) -> Snapshot:
    """Build a snapshot from plain JSON data, whose keys for ranks and pids are texts.

    Raises:
        msgspec.ValidationError: ``data`` is not a snapshot.
    """
    return msgspec.convert(data, Snapshot, str_keys=True)


def plain_snapshot(snapshot: Snapshot) -> dict[str, object]:
    """Return a snapshot as plain data without the sections of probes that were not run."""
    plain = msgspec.to_builtins(snapshot)
    return {key: value for key, value in plain.items() if value is not None}


def read_snapshot(text: bytes, origin: str) -> Snapshot:
    """Parse a saved snapshot.

    Raises:
        UserError: ``text`` is not a snapshot, or has an unknown version.
    """
    try:
        head = msgspec.json.decode(text)
        if isinstance(head, dict) and isinstance(head.get("snapshot"), dict):
            head = head["snapshot"]  # a whole doctor document
        if isinstance(head, dict) and head.get("schema", SCHEMA) != SCHEMA:
            raise UserError(f"{origin}: {head['schema']!r} is no snapshot this ddpwizard knows", "update ddpwizard")
        return snapshot_from_plain(head)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(
            f"{origin}: not a snapshot ({error})", "give a file written by ddpwizard doctor --save"
        ) from error
