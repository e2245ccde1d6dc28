"""Cloud and vendor machines by name: GPUs, host memory, drives, network.

Sources. EC2: network of karpenter-provider-aws (``zz_generated.bandwidth.go``, from EC2's own API; sustained, not "up
to"), memory of torchx (``named_resources_aws.py``) and AWS's pages. Google: accelerator-optimized machines and GPU
network bandwidth in cloud.google.com/compute/docs. Azure: ND A100 v4, ND H100 v5 and ND H200 v5 in
learn.microsoft.com/azure. NVIDIA: docs.nvidia.com/dgx (user guides, DGX BasePOD's core components). Sizes of local
drives are those of the makers' pages; only p4d, p5, ND H100 v5 and DGX were verified again in November 2026.
"""

from functools import lru_cache
from typing import NamedTuple

from ..errors import UserError
from ..text.suggestions import closest, did_you_mean
from ..text.units import GIB
from . import gpu_catalog
from .gpu_catalog import GpuSpec

NETWORK_SHARE = 0.9  # share of the adapters' rate that a large all-reduce over whole nodes reaches


class Server(NamedTuple):
    """One machine. ``gpu`` is a key of ``gpu_catalog.GPUS``; ``network_gbit`` is the sum over the adapters that GPUs
    use, in Gbit/s; ``nvme_gb`` is 0 without local drives."""

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

# Host memory over GPU memory for an unknown machine; those above have 1.3 to 4.3 times as much.
HOST_SHARE = 2.0


class AssumedHost(NamedTuple):
    """Assumed host memory. ``after``: the machine it is taken from, or that it is derived from the GPUs' memory."""

    bytes: float
    after: str


class AssumedNetwork(NamedTuple):
    """Assumed bus bandwidth between nodes. ``after``: the machine it is taken from (``, as in p5.48xlarge``), or an
    empty string if no machine has such GPUs."""

    gbps: float
    after: str


@lru_cache(maxsize=64)
def assume_host(gpu: str | None, memory_gib: float | None, gpus: int) -> AssumedHost | None:
    """Return the assumed memory of a host with ``gpus`` GPUs, or None if the GPUs' memory is unknown too.

    It is the least of the machines with these GPUs, as many of them if possible, else scaled by the number of GPUs; and
    twice the GPUs' memory if no machine has them.
    """
    if similar := _similar_servers(gpu, memory_gib, gpus):
        name, server = min(similar, key=lambda each: each[1].host_gib)
        return AssumedHost(server.host_gib / server.gpus * gpus * GIB, _source_text(name, server, gpus))
    return AssumedHost(HOST_SHARE * memory_gib * gpus * GIB, "twice its GPUs'") if memory_gib else None


@lru_cache(maxsize=64)
def assume_network(gpu: str | None, memory_gib: float | None, gpus: int) -> AssumedNetwork:
    """Return the assumed link to other nodes: the median of the machines with these GPUs, scaled by their number."""
    similar = sorted(_similar_servers(gpu, memory_gib, gpus), key=lambda each: (each[1].network_gbit, each[0]))
    if not similar:
        return AssumedNetwork(gpu_catalog.INTER_GBPS, "")
    name, server = similar[(len(similar) - 1) // 2]
    return AssumedNetwork(server.inter_gbps / server.gpus * gpus, f", {_source_text(name, server, gpus)}")


def _similar_servers(gpu: str | None, memory_gib: float | None, gpus: int) -> list[tuple[str, Server]]:
    """The machines with these GPUs whose number of GPUs is nearest."""
    keys = gpu_catalog.matching_gpus(gpu)
    if memory_gib:
        keys = [
            key
            for key in keys
            if abs(gpu_catalog.GPUS[key].memory_gib - memory_gib) <= gpu_catalog.MEMORY_TOLERANCE * memory_gib
        ]
    found = [(name, server) for name, server in SERVERS.items() if server.gpu in keys]
    nearest = min((abs(server.gpus - gpus) for _, server in found), default=0)
    return [(name, server) for name, server in found if abs(server.gpus - gpus) == nearest]


def _source_text(name: str, server: Server, gpus: int) -> str:
    if server.gpus < gpus:
        return f"as in {name} for each GPU"
    return f"as in {name}" + ("" if server.gpus == gpus else f" for {gpus} of its {server.gpus} GPUs")


def get_server(name: str) -> Server:
    """Return the machine of a name, in upper or lower case, Azure's with or without ``Standard_``.

    Raises:
        UserError: The name is unknown.
    """
    if server := find_server(name):
        return server
    hint = did_you_mean(closest(_plain(name), SERVERS)) or f"one of {', '.join(SERVERS)}"
    raise UserError(f"machine {name[:40] or 'is empty'}: not known", hint)


def find_server(name: str) -> Server | None:
    """Return the machine of a name, or None if it is not known."""
    return SERVERS.get(_plain(name))


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "-").removeprefix("standard_")
