"""Machines by name: which GPUs are in one, and what it has besides.

Sources. EC2: network of karpenter-provider-aws (``zz_generated.bandwidth.go``, from EC2's own API; what lasts, not "up
to"), memory of torchx (``named_resources_aws.py``) and AWS's pages. Google: accelerator-optimized machines and GPU
network bandwidth in cloud.google.com/compute/docs. Azure: ND A100 v4, ND H100 v5 and ND H200 v5 in
learn.microsoft.com/azure. NVIDIA: docs.nvidia.com/dgx (user guides, DGX BasePOD's core components). Sizes of local
drives are those of the makers' pages; only p4d, p5, ND H100 v5 and DGX were looked up again in November 2026.
"""

from functools import lru_cache
from typing import NamedTuple

from ..errors import UserError
from ..text.suggestions import closest, did_you_mean
from ..text.units import GIB
from . import gpu_catalog
from .gpu_catalog import GpuSpec

NETWORK_SHARE = 0.9  # of the adapters' rate, that a large all-reduce over whole nodes reaches


class Server(NamedTuple):
    """One machine. ``gpu`` is a key of ``machines.GPUS``; ``network_gbit`` of all adapters together that GPUs talk
    over, Gbit/s; ``nvme_gb`` of local drives, 0 where there are none."""

    gpu: str
    gpus: int
    host_gib: float
    nvme_gb: float
    network_gbit: float

    @property
    def hardware(self) -> GpuSpec:
        return gpu_catalog.GPUS[self.gpu]

    @property
    def inter_gbps(self) -> float:
        return self.network_gbit / 8 * NETWORK_SHARE


GB_IN_GIB = 1e9 / GIB
SERVERS = {
    # Amazon EC2
    "p3.16xlarge": Server("v100-16g", 8, 488, 0, 25),
    "p3dn.24xlarge": Server("v100-32g", 8, 768, 1800, 100),
    "p4d.24xlarge": Server("a100-40g", 8, 1152, 8000, 400),
    "p4de.24xlarge": Server("a100-80g", 8, 1152, 8000, 400),
    "p5.48xlarge": Server("h100", 8, 2048, 30720, 3200),
    "p5e.48xlarge": Server("h200", 8, 2048, 30720, 3200),
    "p5en.48xlarge": Server("h200", 8, 2048, 30720, 3200),
    "p6-b200.48xlarge": Server("b200", 8, 2048, 30720, 3200),
    "g4dn.xlarge": Server("t4", 1, 16, 125, 5),
    "g4dn.12xlarge": Server("t4", 4, 192, 900, 50),
    "g5.xlarge": Server("a10g", 1, 16, 250, 2.5),
    "g5.12xlarge": Server("a10g", 4, 192, 3800, 40),
    "g5.48xlarge": Server("a10g", 8, 768, 7600, 100),
    "g6.48xlarge": Server("l4", 8, 768, 7520, 100),
    "g6e.48xlarge": Server("l40s", 8, 1536, 7600, 400),
    # Google Compute Engine (its GB of memory are GiB); A3 and A4 keep some adapters for other traffic
    "a2-highgpu-8g": Server("a100-40g", 8, 680, 0, 100),
    "a2-ultragpu-8g": Server("a100-80g", 8, 1360, 3000, 100),
    "a3-highgpu-8g": Server("h100", 8, 1872, 6000, 800),
    "a3-megagpu-8g": Server("h100", 8, 1872, 6000, 1600),
    "a3-ultragpu-8g": Server("h200", 8, 2952, 12000, 3200),
    "a4-highgpu-8g": Server("b200", 8, 3968, 12000, 3200),
    # Microsoft Azure
    "nd96asr_v4": Server("a100-40g", 8, 900, 6000 / GB_IN_GIB, 1600),
    "nd96amsr_a100_v4": Server("a100-80g", 8, 1900, 6400 / GB_IN_GIB, 1600),
    "nd96isr_h100_v5": Server("h100", 8, 1900, 28000 / GB_IN_GIB, 3200),
    "nd96isr_h200_v5": Server("h200", 8, 1850, 28000 / GB_IN_GIB, 3200),
    # NVIDIA
    "dgx-a100": Server("a100-80g", 8, 2000 * GB_IN_GIB, 30720, 1600),
    "dgx-h100": Server("h100", 8, 2000 * GB_IN_GIB, 30720, 3200),
    "dgx-h200": Server("h200", 8, 2000 * GB_IN_GIB, 30720, 3200),
    "dgx-b200": Server("b200", 8, 2000 * GB_IN_GIB, 30720, 3200),
}

# Of a host's memory over that of its GPUs, where the machine is not known: those above have 1.3 to 4.3 times as much.
HOST_SHARE = 2.0


class AssumedHost(NamedTuple):
    """What a host may be taken to have, bytes, and after what: a machine of the list, or its GPUs' memory."""

    bytes: float
    after: str


class AssumedNetwork(NamedTuple):
    """What the GPUs of a node may be taken to talk over to other nodes, GB/s of bus bandwidth, and after which machine
    (``, as in p5.48xlarge``), or nothing where none has such GPUs."""

    gbps: float
    after: str


@lru_cache(maxsize=64)
def assume_host(gpu: str | None, memory_gib: float | None, gpus: int) -> AssumedHost | None:
    """The memory of a host with so many GPUs where nothing is said of it: the least that a machine above with such GPUs
    has, of those with as many of them, or for each GPU as much as those nearest to it have; else twice the GPUs'.
    None where not even that is known."""
    if alike := _alike(gpu, memory_gib, gpus):
        name, server = min(alike, key=lambda each: each[1].host_gib)
        return AssumedHost(server.host_gib / server.gpus * gpus * GIB, _after(name, server, gpus))
    return AssumedHost(HOST_SHARE * memory_gib * gpus * GIB, "twice its GPUs'") if memory_gib else None


@lru_cache(maxsize=64)
def assume_network(gpu: str | None, memory_gib: float | None, gpus: int) -> AssumedNetwork:
    """The link to other nodes where nothing is said of it: that of the middle one of the machines above with such GPUs
    (the slower of two), for each GPU as much as that has."""
    alike = sorted(_alike(gpu, memory_gib, gpus), key=lambda each: (each[1].network_gbit, each[0]))
    if not alike:
        return AssumedNetwork(gpu_catalog.INTER_GBPS, "")
    name, server = alike[(len(alike) - 1) // 2]
    return AssumedNetwork(server.inter_gbps / server.gpus * gpus, f", {_after(name, server, gpus)}")


def _alike(gpu: str | None, memory_gib: float | None, gpus: int) -> list[tuple[str, Server]]:
    """The machines with such GPUs, those that are nearest in their number."""
    keys = gpu_catalog.matching_gpus(gpu)
    if memory_gib:
        keys = [
            key for key in keys if abs(gpu_catalog.GPUS[key].memory_gib - memory_gib) <= gpu_catalog.NEAR * memory_gib
        ]
    found = [(name, server) for name, server in SERVERS.items() if server.gpu in keys]
    nearest = min((abs(server.gpus - gpus) for _, server in found), default=0)
    return [(name, server) for name, server in found if abs(server.gpus - gpus) == nearest]


def _after(name: str, server: Server, gpus: int) -> str:
    if server.gpus < gpus:
        return f"as in {name} for each GPU"
    return f"as in {name}" + ("" if server.gpus == gpus else f" for {gpus} of its {server.gpus} GPUs")


def get_server(name: str) -> Server:
    """The machine of a name, in any case; Azure's with or without ``Standard_``.

    Raises:
        UserError: It is none that is known.
    """
    plain = name.strip().lower().replace(" ", "-").removeprefix("standard_")
    if plain not in SERVERS:
        said = did_you_mean(closest(plain, SERVERS)) or f"one of {', '.join(SERVERS)}"
        raise UserError(f"machine {name[:40] or 'is empty'}: not known", said)
    return SERVERS[plain]
