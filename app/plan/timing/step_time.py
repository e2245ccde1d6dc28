"""Duration of an optimizer step: compute, and the communication that does not overlap with it.

An estimate. Messages have the sizes that each framework uses: DDP's buckets of 25 MiB (torch 2.13), a block of FSDP,
DeepSpeed's buckets (0.19). Volumes: ZeRO (arXiv 1910.02054, section 7), FSDP (arXiv 2304.11277). Offloading:
ZeRO-Offload (arXiv 2101.06840), ZeRO-Infinity (arXiv 2104.07857).
"""

from functools import lru_cache
from math import ceil
from typing import NamedTuple

import msgspec

from ...hardware.gpu_catalog import GpuSpec
from ...text.units import MIB
from ..memory.activations import stored_terms
from ..memory.computation import compute_dtype_bytes
from ..memory.formula import total_bytes
from ..memory.gathered_weights import DEEPSPEED_BUCKET, DEEPSPEED_PREFETCH
from ..memory.model_states import reduced_micro_batches, shard_counts
from ..model.parameter_counts import block_params, expert_params, trained_params
from ..model.parameters import bytes_per_parameter, frozen_weight_bytes
from ..rank_share import data_parallel_ranks, rank_share
from ..types import TrainingOptions, TrainingSetup
from .communication import (
    CollectiveGroup,
    CommunicationCost,
    Links,
    all_reduce_s,
    broadcast_s,
    exchange_cost,
    ring_pass_s,
    ring_share,
)
from .compute import ComputeCost, compute_cost, forward_models
from .optimizer_step import optimizer_step_bytes

DDP_BUCKET_BYTES = 25 * MIB  # bucket_cap_mb
BLOCKS = 20  # if the number of layers is unknown
NVME_GBPS = 3.0  # default: one data-centre drive (3.2 read, 3.0 written in DeepSpeed's issue 998)
# Host memory bandwidth of an optimizer on a node: half of what eight channels of DDR4-3200 can do.
HOST_MEMORY_GBPS = 100.0
DEEPSPEED_STEP_BYTES = 28 + 2  # per parameter: fp32 weight and moments read and written, gradient read, 16 bit written
# torch's Adam of many operations is 5 to 7 times slower on the host than one in a kernel, DeepSpeed's or torch's own
# with fused=True (deepspeed.ai/tutorials/zero-offload).
UNFUSED_ADAM = 5.0
NVME_STEP_BYTES = 2 * 12 + 2 * 4  # moments and master weights are read and written, and the gradients


class StepTime(NamedTuple):
    """Seconds of one optimizer step, and bytes that a rank sends in it.

    ``host_s``: added by offloading; ``drive_s`` and ``adam_s``: the parts of it for an NVMe drive, and for the
    optimizer on the host.
    """

    compute_s: float
    exposed_s: float
    host_s: float
    sent_bytes: float
    drive_s: float = 0.0
    adam_s: float = 0.0

    @property
    def step_s(self) -> float:
        return self.compute_s + self.exposed_s + self.host_s


def step_time(setting: TrainingSetup, gpu: GpuSpec, links: Links) -> StepTime:
    """Return the time of one optimizer step of a complete setting."""
    busy = compute_cost(setting, gpu, links)
    accumulated = setting.train.grad_accum or 1
    compute_s = busy.all_s(accumulated)
    exchanged = exchange_cost(setting, links)
    exchanged_s = exchanged.exposed_s * accumulated
    bubble = ((setting.layout.pipeline or 1) - 1) / accumulated  # of a 1F1B schedule (arXiv 2104.04473)
    idle_s = bubble * (compute_s - busy.step_s + exchanged_s)
    tensor = setting.layout.tensor or 1
    share = rank_share(setting).setting
    shared_links = links._replace(inter_gbps=links.inter_gbps / tensor)
    wire = _wire(share, busy, shared_links)
    host = _host(share, busy, gpu, links)
    exposed_s = wire.exposed_s + exchanged_s + idle_s
    sent_bytes = wire.sent_bytes + exchanged.sent_bytes * accumulated
    return StepTime(compute_s, exposed_s, sum(host), sent_bytes, host[2], host[1])


def ideal_step_s(setting: TrainingSetup, gpu: GpuSpec, links: Links | None = None) -> float:
    """Return the compute time alone: every operation once, the optimizer step sharded, no waiting, no offloading."""
    strategy = msgspec.structs.replace(
        setting.layout,
        kind="fsdp2",
        cpu_offload=False,
        offload_optimizer=None,
        **dict.fromkeys(("tensor", "pipeline", "context")),
    )
    if setting.gpus == 1:
        strategy = msgspec.structs.replace(strategy, kind="single")
    elif setting.layout.sharding == "NO_SHARD":
        strategy = msgspec.structs.replace(strategy, sharding=None)
    once = msgspec.structs.replace(setting.train, act_ckpt="none", optimizer_impl="fused")
    alone = msgspec.structs.replace(setting, strategy=strategy, train=once)
    of_rank = data_parallel_ranks(setting) / setting.gpus  # of the micro-batches of a group
    return compute_cost(alone, gpu, links, has_hooks=False).all_s((once.grad_accum or 1) * of_rank)


@lru_cache(maxsize=256)
def communication_bytes(setting: TrainingSetup) -> float:
    """Return the bytes that a rank sends per optimizer step."""
    strategy, ranks = setting.layout, setting.gpus
    if ranks == 1 or strategy.kind == "single":
        return 0.0
    trained, share = trained_params(setting.model, setting.train), ring_share(ranks)
    reductions, weight = reduced_micro_batches(setting), sent_weight_bytes(setting.train)
    grad = sent_grad_bytes(setting.train)
    if not strategy.shards_weights:  # each pass around a ring sends the gradients once, and an all-reduce takes two
        once = reductions * share * trained * grad
        is_whole = strategy.replicates or strategy.sharding == "NO_SHARD" or strategy.kind == "deepspeed"
        is_whole = is_whole and not strategy.stage
        afterwards = {"zero-optimizer": 4, "deepspeed": 2 if strategy.stage else 0}
        return once * (2 if is_whole else 1) + share * trained * afterwards.get(strategy.kind, 0)
    inside = shard_counts(strategy, ranks, setting.nodes)[0]
    sent = (ring_share(inside) + ring_share(_gathers_from(setting, inside))) * setting.model.params * weight
    across = 2 * ring_share(ranks // inside) * trained * grad / inside if ranks > inside else 0.0
    return (setting.train.grad_accum or 1) * sent + reductions * (ring_share(inside) * trained * grad + across)


def sent_grad_bytes(train: TrainingOptions) -> float:
    """Return the bytes per gradient on the network: fp32, unless everything is 16 bit."""
    return 2.0 if (train.dtype or "").endswith(("-deepspeed", "-pure")) else 4.0


def sent_weight_bytes(train: TrainingOptions) -> float:
    """Return the bytes per weight on the network."""
    return frozen_weight_bytes(train) if train.quant else float(compute_dtype_bytes(train))


def _gathers_from(setting: TrainingSetup, inside: int) -> int:
    """Return the number of ranks from which the backward pass gathers a block, or 1 if it is still gathered."""
    kept = setting.layout.reshard_after_forward
    if kept is False or setting.layout.sharding == "SHARD_GRAD_OP":
        return 1
    return kept if isinstance(kept, int) and kept > 1 else inside


def _wire(setting: TrainingSetup, busy: ComputeCost, links: Links) -> CommunicationCost:
    strategy = setting.layout
    if setting.gpus == 1 or strategy.kind == "single":
        return CommunicationCost(0.0, 0.0)
    sent = communication_bytes(setting)
    if strategy.replicates or strategy.sharding == "NO_SHARD":
        exposed_s = _ddp_s(setting, busy, links) * reduced_micro_batches(setting)
        if strategy.kind == "zero-optimizer":  # broadcasts each rank's share afterwards, one parameter at a time
            tensors, size = 9 * (setting.model.layers or BLOCKS), trained_params(setting.model, setting.train) * 4
            group = CollectiveGroup(setting.gpus, setting.nodes)
            exposed_s += tensors * broadcast_s(size / tensors, group, links)
        return CommunicationCost(exposed_s, sent)
    seconds = _sharded_s if strategy.shards_weights else _partitioned_s
    return CommunicationCost(seconds(setting, busy, links), sent)


def _ddp_s(setting: TrainingSetup, busy: ComputeCost, links: Links) -> float:
    """Return the exposed seconds of DDP: all buckets overlap but the last, the embedding or a bucket."""
    group = CollectiveGroup(setting.gpus, setting.nodes)
    size = trained_params(setting.model, setting.train) * sent_grad_bytes(setting.train)
    buckets = max(1, ceil(size / DDP_BUCKET_BYTES))
    all_s = buckets * all_reduce_s(size / buckets, group, links)
    table = float(setting.model.vocab or 0) * (setting.model.hidden or 0) * sent_grad_bytes(setting.train)
    last = min(size, max(size / buckets, 0.0 if setting.train.lora else table))
    return max(all_reduce_s(last, group, links), all_s - busy.backward_s * (1 - 1 / buckets))


def _partitioned_s(setting: TrainingSetup, busy: ComputeCost, links: Links) -> float:
    """Return the exposed seconds of ZeRO-1 and 2, which gather the parameters at the end, without overlap."""
    strategy, group = setting.layout, CollectiveGroup(setting.gpus, setting.nodes)
    trained = trained_params(setting.model, setting.train)
    if not trained:  # adapters of a model with an unknown number of layers
        return 0.0
    per_bucket = min(strategy.reduce_bucket_size or DEEPSPEED_BUCKET, trained)
    buckets = max(1, ceil(trained / per_bucket))
    size = trained / buckets * sent_grad_bytes(setting.train)
    reduce = ring_pass_s if strategy.stage else all_reduce_s
    one_s = reduce(size, group, links)
    times = reduced_micro_batches(setting)
    hidden_s = 0.0 if strategy.overlap_comm is False else busy.backward_s * (1 - 1 / buckets)
    exposed_s = times * max(one_s, buckets * one_s - hidden_s)
    if not strategy.stage:
        return exposed_s
    gathers = max(1, ceil(trained / (strategy.allgather_bucket_size or DEEPSPEED_BUCKET)))
    return exposed_s + gathers * ring_pass_s(trained / gathers * 2, group, links)


def _sharded_s(setting: TrainingSetup, busy: ComputeCost, links: Links) -> float:
    """Return the exposed seconds of FSDP and ZeRO-3.

    They gather the next block while one computes, and reduce the one before: what takes longer than the block is
    exposed. The first gather and the last reduction do not overlap.
    """
    model, strategy, train = setting.model, setting.layout, setting.train
    blocks = model.layers or BLOCKS
    inside = shard_counts(strategy, setting.gpus, setting.nodes)[0]
    nodes = max(1, setting.nodes * inside // setting.gpus) if inside < setting.gpus else setting.nodes
    group = CollectiveGroup(inside, nodes)
    copies = CollectiveGroup(setting.gpus // inside, max(1, setting.nodes // nodes), inside // nodes)
    again = CollectiveGroup(_gathers_from(setting, inside), 1 if _gathers_from(setting, inside) < inside else nodes)
    trained = trained_params(setting.model, setting.train) / model.params
    weight, grad = sent_weight_bytes(train), sent_grad_bytes(train) * trained
    block = block_params(model) if model.layers else model.params / (BLOCKS + 1)
    root = max(0.0, model.params - blocks * block)
    experts = expert_params(model) / blocks if strategy.expert else 0.0
    block -= experts
    of_experts = CollectiveGroup(max(1, inside // (strategy.expert or 1)), max(1, nodes // (strategy.expert or 1)))
    messages = max(1, ceil(block / DEEPSPEED_PREFETCH)) if strategy.kind == "deepspeed" else 1

    def gather_s(size: float, ranks: CollectiveGroup) -> float:
        return messages * ring_pass_s(size * weight / messages, ranks, links)

    def reduce_s(size: float) -> float:
        across = all_reduce_s(size * grad / inside, copies, links) if copies.ranks > 1 else 0.0
        return max(ring_pass_s(size * grad, group, links), across)

    models = forward_models(train)
    forward_s, backward_s = busy.forward_s / models / (blocks + 1), busy.backward_s / (blocks + 1)
    gather, again_gather, reduce = gather_s(block, group), gather_s(block, again), reduce_s(block)
    if experts:
        held = experts / (strategy.expert or 1)
        gather += gather_s(held, of_experts)
        again_gather += gather_s(held, of_experts)
        reduce += ring_pass_s(held * grad, of_experts, links)
    exposed_s = models * (gather_s(root, group) + gather + (blocks - 1) * max(0.0, gather - forward_s))
    gathering_s = exposed_s + blocks * max(0.0, again_gather - backward_s)
    reducing_s = exposed_s + blocks * max(0.0, again_gather + reduce - backward_s) + reduce + reduce_s(root)
    reductions = reduced_micro_batches(setting)
    return reductions * reducing_s + ((train.grad_accum or 1) - reductions) * gathering_s


def _host(setting: TrainingSetup, busy: ComputeCost, gpu: GpuSpec, links: Links) -> tuple[float, float, float]:
    """Return the seconds that offloading adds: the link to the host, the optimizer there, and a drive."""
    strategy, train = setting.layout, setting.train
    optimizer = "cpu" if strategy.cpu_offload else strategy.offload_optimizer
    params = "cpu" if strategy.cpu_offload else strategy.offload_param
    link = (links.host_gbps or gpu.host_gbps) * 1e9
    saved_s = 0.0
    if train.act_offload:  # to the host and back, as far as compute does not hide it
        one_way_s = total_bytes(stored_terms(setting.with_train(act_offload=False))) / link
        exposed_s = max(0.0, one_way_s - busy.forward_s) + max(0.0, one_way_s - busy.backward_s)
        saved_s = exposed_s * (train.grad_accum or 1)
    if not (optimizer or params):
        return saved_s, 0.0, 0.0
    micro_steps, is_deepspeed = train.grad_accum or 1, strategy.kind == "deepspeed"
    per = bytes_per_parameter(train)
    drive = (links.nvme_gbps or NVME_GBPS) * 1e9
    over_params, _, over_optimizer = shard_counts(strategy, setting.gpus, setting.nodes)
    shard, trained = setting.model.params / over_params, trained_params(setting.model, setting.train) / over_optimizer
    per_node = setting.gpus // setting.nodes
    weight, grad = (2.0, 2.0) if is_deepspeed else (frozen_weight_bytes(train) if train.lora else per.weight, per.grad)
    fetched = 2 * micro_steps * shard * weight if params else 0.0
    returned = micro_steps * trained * grad if optimizer else 0.0
    behind_s = (busy.forward_s + busy.backward_s) * micro_steps
    link_s = max(0.0, (fetched + returned) / link - behind_s)
    link_s += trained * 2 / link if optimizer and not params else 0.0
    moved = DEEPSPEED_STEP_BYTES if is_deepspeed else optimizer_step_bytes(setting)
    adam_s = trained * per_node * moved / (HOST_MEMORY_GBPS * 1e9) if optimizer else 0.0
    adam_s *= 1.0 if is_deepspeed or train.optimizer_impl == "fused" else UNFUSED_ADAM
    # Read before a part is stepped and written after it, unless pipeline_read and pipeline_write are set.
    drive_s = trained * per_node * NVME_STEP_BYTES / drive if optimizer == "nvme" else 0.0
    if params == "nvme":
        moved = (2 * micro_steps + 1) * shard * per_node * 2
        drive_s += max(0.0, moved / drive - behind_s)
    return link_s + saved_s, adam_s, drive_s
