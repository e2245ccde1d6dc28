"""Communication of a step: the duration of a collective, and the exchanges of ranks that split a model.

An alpha-beta model with NCCL's own figures (2.30, ``src/graph/tuning.cc``: latencies of its Simple protocol, the share
of the bandwidth that a tree reaches, and the choice of the faster of ring and tree). A ring of several nodes has hops
within nodes and between them; each of its channels leaves a node by another adapter, so that all adapters of a node
share the traffic. Bandwidths are bus bandwidths, as nccl-tests defines them (``doc/PERFORMANCE.md``).

No exchange of tensor, pipeline, expert and context parallelism overlaps with compute, as torch's DTensor and
``context_parallel`` run it (2.13); asynchronous tensor parallelism and fused dispatch kernels are faster. Volumes:
Megatron-LM (arXiv 1909.08053, 2104.04473, 2205.05198), GShard (arXiv 2006.16668), ring attention (arXiv 2310.01889).
"""

from math import ceil, log2
from typing import NamedTuple

from ..memory.computation import batch_tokens, compute_dtype_bytes
from ..memory.gathered_weights import UNEVEN_ROUTING
from ..model.parameter_counts import kv_width
from ..rank_share import rank_share
from ..types import TrainingSetup

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


def exchange_cost(setting: TrainingSetup, links: Links) -> CommunicationCost:
    """Return the cost of one micro-batch in which a rank exchanges data with the ranks of the same sequences."""
    strategy = setting.layout
    share = rank_share(setting).setting
    tokens, width = batch_tokens(share.train), float(compute_dtype_bytes(share.train))
    hidden, layers = float(share.model.hidden or 0), float(share.model.layers or 0)
    passes = 3 if share.train.act_ckpt == "full" else 2  # forward, backward, and forward again
    found: list[tuple[float, float, float]] = []  # how often, seconds, and bytes
    if (strategy.tensor or 1) > 1:
        # Before attention and feed-forward a gather, after each a reduce-scatter.
        group, size = CollectiveGroup(strategy.tensor or 1), tokens * hidden * width
        found.append((layers * 4 * passes, ring_pass_s(size, group, links), ring_share(group.ranks) * size))
    if (strategy.context or 1) > 1:
        group = _group(setting, strategy.context or 1)
        size = 2 * kv_width(share.model) * tokens * width * group.ranks
        # With the gradients of keys and values.
        found.append((layers * (passes + 1), ring_pass_s(size, group, links), ring_share(group.ranks) * size))
    if (strategy.expert or 1) > 1:
        group = _group(setting, strategy.expert or 1)
        size = tokens * (share.model.experts_per_token or 1) * hidden * width * UNEVEN_ROUTING
        times = float(share.model.expert_layers or layers) * 2 * passes
        found.append((times, _all_to_all_s(size, group, setting, links), ring_share(group.ranks) * size))
    if (strategy.pipeline or 1) > 1:
        size = tokens * hidden * width / (strategy.tensor or 1)
        per_s = links.intra_gbps * 1e9
        if setting.nodes > 1:
            per_s = links.inter_gbps * 1e9 / (setting.gpus // setting.nodes)
        found.append((2, START_S + size / per_s, size))
    return CommunicationCost(sum(often * s for often, s, _ in found), sum(often * size for often, _, size in found))


def _group(setting: TrainingSetup, ranks: int) -> CollectiveGroup:
    """Return neighbouring ranks, next to those that split the same layers; all of them use the adapters at a time."""
    tensor = setting.layout.tensor or 1
    per_node = max(1, setting.gpus // setting.nodes // tensor)
    nodes = max(1, ranks // per_node)
    return CollectiveGroup(ranks, nodes, setting.gpus // setting.nodes // (ranks // nodes) if nodes > 1 else 1)


def _all_to_all_s(size_bytes: float, group: CollectiveGroup, setting: TrainingSetup, links: Links) -> float:
    """Return the seconds in which each rank sends ``size_bytes``, an equal part to each other rank."""
    per_node = group.ranks // group.nodes
    inside = (per_node - 1) / group.ranks * size_bytes / (links.intra_gbps * 1e9)
    between = (group.ranks - per_node) / group.ranks * size_bytes
    adapters = links.inter_gbps * 1e9 / (setting.gpus // setting.nodes)
    hops = (per_node - 1) * links.intra_latency_s + (group.ranks - per_node) * links.inter_latency_s
    return START_S + hops + max(inside, between / adapters)
