"""What collectors read from a machine, as plain data: saved, replayed, attached to a report, judged elsewhere.

Each section belongs to one probe of the same name. A section that is None was not looked at; why one could not be
looked at stands in ``failed``.
"""

from typing import Literal

import msgspec

from .errors import UserError

SCHEMA = "ddpwizard.snapshot/1"


class SnapshotSection(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the sections: plain data, keyword only, so that fields can be added later."""


class EnvSection(SnapshotSection, frozen=True):
    """The launch environment of a shell or of a process. ``variables`` holds only what concerns launching."""

    owner: str  # "this shell" or "pid 1234 (python train.py)"
    variables: dict[str, str]
    ranks: dict[int, dict[str, str]] = {}  # pid -> its variables, where a job runs here
    nccl_conf: dict[str, str] = {}  # settings in force from /etc/nccl.conf or ~/.nccl.conf
    nccl_conf_files: list[str] = []  # where they stand
    nccl_conf_problems: list[str] = []  # lines NCCL does not understand, files it cannot read
    unreadable: list[int] = []  # pids of the job whose environment we may not read


class SoftwareSection(SnapshotSection, frozen=True):
    """The target interpreter and what it can import. Empty text: not there."""

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
    processes: list[GpuProcess] = []
    mig: bool = False
    mig_uuids: list[str] = []
    ecc_uncorrected: int | None = None
    throttle: list[str] = []
    temperature_c: int | None = None
    compute_mode: str = "default"
    nvlinks: int | None = None  # links of NVLink that are up; None: not told


class GpuSection(SnapshotSection, frozen=True):
    """GPUs as NVML sees them. ``driver`` is empty where no NVIDIA driver answers, ``problem`` then says why."""

    driver: str = ""
    gpus: list[Gpu] = []
    visible: str | None = None  # CUDA_VISIBLE_DEVICES as set, None where unset
    local_world_size: int | None = None
    problem: str = ""
    on_pci_bus: int = 0  # NVIDIA GPUs on the PCI bus, whether or not a driver answers
    sees_all_pids: bool = True  # False in a container with pids of its own: who holds memory cannot be told


class PortSection(SnapshotSection, frozen=True):
    """The rendezvous port: who listens on it, if anybody."""

    port: int
    from_variable: bool
    free: bool
    holder_pid: int | None = None
    holder: str = ""
    free_alternative: int = 0
    ours: bool = False  # the job that is looked at holds it
    problem: str = ""  # why nobody could use it although nobody holds it


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
    """Interfaces, and what NCCL and gloo would take with the present variables."""

    hostname: str
    hostname_addresses: list[str]
    interfaces: list[Interface]
    nccl_selector: str | None = None
    gloo_selector: str | None = None
    nccl_would_use: list[str] = []
    gloo_would_use: list[str] = []
    nodes: int | None = None  # nodes of the job, as far as the variables tell
    hostname_problem: str = ""  # why this host's name has no address


class LimitsSection(SnapshotSection, frozen=True):
    """Limits of this host or container. None: not limited or not readable, as the name says."""

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
    """MASTER_ADDR: what it resolves to, whether that is this host, whether the port answers."""

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
    """The live test. ``verdict`` is empty when it went through; ``last_lines`` then and otherwise per rank."""

    backend: str
    ranks: int
    rows: list[BenchRow]
    verdict: str = ""
    ended: Literal["done", "failed", "hung"] = "done"
    culprits: list[int] = []
    last_lines: dict[int, list[str]] = {}
    elapsed_s: float = 0.0


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one machine."""

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
    failed: dict[str, str] = {}  # probe id -> why it could not look


def snapshot_from_plain(data: object) -> Snapshot:
    """The snapshot that plain JSON data holds; JSON has no numbers as keys, so ranks and pids are read from text.

    Raises:
        msgspec.ValidationError: ``data`` is no snapshot.
    """
    return msgspec.convert(data, Snapshot, str_keys=True)


def read_snapshot(text: bytes, origin: str) -> Snapshot:
    """A saved snapshot.

    Raises:
        UserError: ``text`` is no snapshot, or one of a version this ddpwizard does not know.
    """
    try:
        head = msgspec.json.decode(text)
        if isinstance(head, dict) and isinstance(head.get("snapshot"), dict):
            head = head["snapshot"]  # a whole doctor document
        if isinstance(head, dict) and head.get("schema", SCHEMA) != SCHEMA:
            raise UserError(f"{origin}: {head['schema']!r} is no snapshot this ddpwizard knows", "update ddpwizard")
        return snapshot_from_plain(head)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UserError(
            f"{origin}: not a snapshot ({error})", "give a file written by ddpwizard doctor --save"
        ) from error
