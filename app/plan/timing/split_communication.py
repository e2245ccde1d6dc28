"""Communication inside a layer or between the parts of a model: tensor, pipeline, expert and context parallelism.

None of it overlaps with compute, as torch's DTensor and ``context_parallel`` run it (2.13); asynchronous tensor
parallelism and fused dispatch kernels are faster. Volumes: Megatron-LM (arXiv 1909.08053, 2104.04473, 2205.05198),
GShard (arXiv 2006.16668), ring attention (arXiv 2310.01889).
"""

from ..memory.computation import batch_tokens, compute_dtype_bytes
from ..memory.gathered_weights import UNEVEN_ROUTING
from ..model.parameter_counts import kv_width
from ..rank_share import rank_share
from ..types import TrainingSetup
from .communication import START_S, CollectiveGroup, CommunicationCost, Links, ring_pass_s, ring_share


def exchange_cost(setting: TrainingSetup, links: Links) -> CommunicationCost:
    """Return the cost of one micro-batch in which a rank exchanges data with the ranks of the same sequences."""
    strategy = setting.layout
    share = rank_share(setting).setting
    tokens, width = batch_tokens(share.train), float(compute_dtype_bytes(share.train))
    hidden, layers = float(share.model.hidden or 0), float(share.model.layers or 0)
    passes = 3 if share.train.act_ckpt == "full" else 2  # forward, backward, and forward again
    found: list[CommunicationCost] = []

    def add(times: float, seconds: float, size_bytes: float) -> None:
        found.append(CommunicationCost(times * seconds, times * size_bytes))

    if (strategy.tensor or 1) > 1:
        # Before attention and feed-forward a gather, after each a reduce-scatter.
        group, size = CollectiveGroup(strategy.tensor or 1), tokens * hidden * width
        add(layers * 4 * passes, ring_pass_s(size, group, links), ring_share(group.ranks) * size)
    if (strategy.context or 1) > 1:
        group = _group(setting, strategy.context or 1)
        size = 2 * kv_width(share.model) * tokens * width * group.ranks
        # With the gradients of keys and values.
        add(layers * (passes + 1), ring_pass_s(size, group, links), ring_share(group.ranks) * size)
    if (strategy.expert or 1) > 1:
        group = _group(setting, strategy.expert or 1)
        size = tokens * (share.model.experts_per_token or 1) * hidden * width * UNEVEN_ROUTING
        times = float(share.model.expert_layers or layers) * 2 * passes
        add(times, _all_to_all_s(size, group, setting, links), ring_share(group.ranks) * size)
    if (strategy.pipeline or 1) > 1:
        size = tokens * hidden * width / (strategy.tensor or 1)
        add(2, START_S + size / _between_stages(setting, links), size)
    return CommunicationCost(sum(each.exposed_s for each in found), sum(each.sent_bytes for each in found))


def bubble_share(setting: TrainingSetup) -> float:
    """Return the idle time of a pipeline over its busy time: that of a 1F1B schedule (arXiv 2104.04473)."""
    return ((setting.layout.pipeline or 1) - 1) / (setting.train.grad_accum or 1)


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


def _between_stages(setting: TrainingSetup, links: Links) -> float:
    """Return the bytes per second from a rank to the next stage."""
    ranks = setting.gpus // setting.nodes
    if setting.nodes == 1:
        return links.intra_gbps * 1e9
    return links.inter_gbps * 1e9 / ranks
