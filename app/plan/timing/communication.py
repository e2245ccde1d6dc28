"""Duration of a collective over the links of a cluster: a fixed cost, a cost per hop, and bytes over bandwidth.

An alpha-beta model with NCCL's own figures (2.30, ``src/graph/tuning.cc``: latencies of its Simple protocol, the share
of the bandwidth that a tree reaches, and the choice of the faster of ring and tree). A ring of several nodes has hops
within nodes and between them; each of its channels leaves a node by another adapter, so that all adapters of a node
share the traffic. Bandwidths are bus bandwidths, as nccl-tests defines them (``doc/PERFORMANCE.md``).
"""

from math import ceil, log2
from typing import NamedTuple

START_S = 8.4e-6
NVLINK_HOP_S, PCIE_HOP_S, NETWORK_HOP_S = 3.4e-6, 5.7e-6, 14e-6  # per hop of a ring
TREE_SHARE = 0.92  # of the ring's bandwidth


class Links(NamedTuple):
    """Bandwidths of large messages in GB/s; None means the usual value of the GPU, or of one drive.

    ``intra_gbps``: bus bandwidth between the GPUs of a node. ``inter_gbps``: of all adapters of a node together, as an
    all-reduce over whole nodes uses it. ``host_gbps``: between a GPU and its host, one way. ``matmul_tflops``: rate of
    a large 16-bit matrix product. ``measured``: by ``doctor --bench`` on this machine.
    """

    intra_gbps: float
    inter_gbps: float
    intra_latency_s: float = NVLINK_HOP_S
    inter_latency_s: float = NETWORK_HOP_S
    host_gbps: float | None = None
    nvme_gbps: float | None = None
    matmul_tflops: float | None = None
    measured: bool = False


class CollectiveGroup(NamedTuple):
    """The ranks of a collective. ``sharers``: groups that use the same adapters of a node at the same time."""

    ranks: int
    nodes: int = 1
    sharers: int = 1


class CommunicationCost(NamedTuple):
    """Communication of a step: seconds that do not overlap with compute, and bytes of one rank."""

    exposed_s: float
    sent_bytes: float


def bandwidth_gbps(group: CollectiveGroup, links: Links) -> float:
    """Return the bus bandwidth of a ring of the group, which its slowest link limits."""
    if group.nodes == 1:
        return links.intra_gbps
    between = links.inter_gbps / group.sharers
    return between if group.ranks == group.nodes else min(links.intra_gbps, between)


def ring_share(ranks: int) -> float:
    """Return the share of its data that a rank sends in one pass around the ring."""
    return (ranks - 1) / ranks


def ring_pass_s(size_bytes: float, group: CollectiveGroup, links: Links) -> float:
    """Return the seconds of one pass around the ring: an all-gather or a reduce-scatter of ``size_bytes`` in total."""
    if group.ranks == 1:
        return 0.0
    return START_S + _hops_s(group, links) + ring_share(group.ranks) * size_bytes / (bandwidth_gbps(group, links) * 1e9)


def all_reduce_s(size_bytes: float, group: CollectiveGroup, links: Links) -> float:
    """Return the seconds of an all-reduce: two passes around a ring, or up and down a tree, as NCCL chooses."""
    if group.ranks == 1:
        return 0.0
    bandwidth = bandwidth_gbps(group, links) * 1e9
    by_ring = 2 * _hops_s(group, links) + 2 * ring_share(group.ranks) * size_bytes / bandwidth
    in_node = (group.ranks // group.nodes - 1) * links.intra_latency_s  # a chain within the node, a tree over nodes
    by_tree = 2 * (in_node + ceil(log2(group.nodes)) * links.inter_latency_s) + 2 * size_bytes / (
        bandwidth * TREE_SHARE
    )
    return START_S + min(by_ring, by_tree)


def broadcast_s(size_bytes: float, group: CollectiveGroup, links: Links) -> float:
    """Return the seconds of a broadcast from one rank to all others: every byte leaves that rank."""
    if group.ranks == 1:
        return 0.0
    return START_S + _hops_s(group, links) + size_bytes / (bandwidth_gbps(group, links) * 1e9)


def _hops_s(group: CollectiveGroup, links: Links) -> float:
    between = group.nodes - 1
    return (group.ranks - 1 - between) * links.intra_latency_s + between * links.inter_latency_s
