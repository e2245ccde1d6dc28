"""Search the strategies for a model on a machine.

Layouts that split the model or the sequence (tensor, pipeline, context and expert parallelism) shard the rest with
``fully_shard``, as torchtitan's meshes do. Ranks that split a layer or exchange tokens in every layer are on one node
as far as possible, stages of a pipeline on different nodes.
"""

from collections.abc import Mapping, Sequence
from math import gcd

import msgspec

from ...hardware.server_catalog import AssumedHost, assume_host
from ...text.units import gbps_text, gib_text
from ..memory.computation import has_known_shape
from ..memory.formula import Term
from ..memory.model_states import shard_counts
from ..memory.peak import Phase, judge_candidate
from ..model.parameter_counts import expert_width, is_encoder_decoder, trained_params
from ..rank_share import split_ways
from ..timing import step_time
from ..types import Checkpointing, PlanRow, Strategy, TrainingSetup
from .evaluate import (
    PlanContext,
    add_times,
    choose_loading,
    choose_micro_batch,
    evaluate,
    host_memory_share,
)
from .explain import explain_tracked
from .ranking import rank

LONG_SEQUENCE = 8192  # tokens from which it is worth splitting a sequence
# ZeRO-Infinity with an NVMe drive on each node, for hosts with too little memory.
NVME_STRATEGIES = (
    Strategy(kind="deepspeed", stage=3, offload_optimizer="nvme"),
    Strategy(kind="deepspeed", stage=3, offload_optimizer="nvme", offload_param="nvme"),
)


def layouts_to_try(gpus: int, nodes: int) -> list[Strategy]:
    """Return every layout worth trying; ``NVME_STRATEGIES`` are separate.

    A mesh within one node is not worth it: with equal links it holds more and sends more than sharding over all GPUs.
    """
    offloaded = [
        Strategy(kind="deepspeed", stage=2, offload_optimizer="cpu"),
        Strategy(kind="deepspeed", stage=3, offload_optimizer="cpu"),
        Strategy(kind="deepspeed", stage=3, offload_optimizer="cpu", offload_param="cpu"),
    ]
    if gpus == 1:
        return [Strategy(kind="single"), *offloaded]
    per_node = gpus // nodes
    sharded = [Strategy(kind="fsdp2", reshard_after_forward=kept) for kept in (True, False)]
    if nodes > 1 and per_node > 1 and gpus % nodes == 0:
        # After the forward pass each node keeps a copy of the weights, and gathers them within the node.
        sharded += [Strategy(kind="fsdp2", reshard_after_forward=per_node), Strategy(kind="hsdp", shard_size=per_node)]
    return [
        Strategy(kind="ddp"),
        Strategy(kind="zero-optimizer"),
        *sharded,
        *(Strategy(kind="deepspeed", stage=stage) for stage in (1, 2, 3)),
        Strategy(kind="deepspeed", stage=1, offload_optimizer="cpu"),
        *offloaded,
        Strategy(kind="fsdp2", reshard_after_forward=True, cpu_offload=True),
    ]


def rank_candidates(
    setting: TrainingSetup,
    context: PlanContext,
    recompute: Checkpointing | None = None,
    nvme_bytes: float | None = None,
    chooses_micro_batch: bool = False,
) -> list[PlanRow]:
    """Return the evaluated candidates in the order of ``ranking``.

    A strategy in the setting is the only candidate; ``recompute`` is the only kind of checkpointing. ``nvme_bytes`` is
    free on the drive of a host, 0 if it has none, None if it is not known. ``chooses_micro_batch``: each candidate has
    its own division of the batch into micro-batches.
    """
    if setting.strategy:
        return [_evaluated(setting, context)]
    layouts = [*layouts_to_try(setting.gpus, setting.nodes), *split_layouts(setting)]
    rows = _rows(setting, layouts, context, recompute, chooses_micro_batch)
    fitting = any(row.candidate.fits in (True, None) and row.candidate.works for row in rows)
    if not fitting and any(host_memory_share(*row, context.host_bytes) > 1 for row in rows):
        on_drives = _rows(setting, NVME_STRATEGIES, context, recompute, chooses_micro_batch)
        rows += [row for row in on_drives if nvme_bytes is None or drive_bytes(row.setting) <= nvme_bytes]
    return rank(rows, context.host_bytes)


def replan_with_tracked(
    rows: Sequence[PlanRow], tracked: Mapping[int, Mapping[Phase, tuple[Term, ...]]], context: PlanContext
) -> list[PlanRow]:
    """Return the rows with the memory of those that were tracked, by their index, in the order that follows from it."""
    changed = list(rows)
    for at, phases in tracked.items():
        before, setting = rows[at]
        found = add_times(judge_candidate(setting, phases), setting, context)
        changed[at] = PlanRow(explain_tracked(found, before, setting, context), setting)
    return rank(changed, context.host_bytes)


def context_of(setting: TrainingSetup, links: step_time.Links, host_bytes: float | None) -> PlanContext:
    """Return the context of a plan, with the usual memory of such a host if none is given."""
    host = None if setting.strategy or host_bytes else host_memory_of(setting)
    return PlanContext(links, host.bytes if host else host_bytes)


def host_memory_of(setting: TrainingSetup) -> AssumedHost | None:
    """Return the memory assumed for a host of a setting."""
    return assume_host(setting.gpu, setting.gpu_memory_gib, setting.gpus // setting.nodes)


def planning_assumptions(rows: Sequence[PlanRow], links: step_time.Links, host_bytes: float | None = None) -> list[str]:
    """Return the assumptions of a plan that its setting does not contain."""
    found: list[str] = []
    host = host_memory_of(rows[0].setting)
    if host and not host_bytes and len(rows) > 1 and any(row.candidate.host_bytes for row in rows):
        found.append(f"host memory: {gib_text(host.bytes, 0)} on each node, {host.after}; --host-memory overrides it")
    drive = any("nvme" in (row.setting.layout.offload_optimizer, row.setting.layout.offload_param) for row in rows)
    if drive and not links.nvme_gbps:
        found.append(f"NVMe on each node: {gbps_text(step_time.NVME_GBPS)}, one drive")
    return found


def drive_bytes(setting: TrainingSetup) -> float:
    """Return the bytes of a node's share on its drive (ZeRO-Infinity, arXiv 2104.07857, section 3)."""
    strategy, model = setting.layout, setting.model
    states = 16 * trained_params(model, setting.train) if strategy.offload_optimizer == "nvme" else 0.0
    return (states + (2 * model.params if strategy.offload_param == "nvme" else 0.0)) / setting.nodes


def _rows(
    setting: TrainingSetup,
    layouts: Sequence[Strategy],
    context: PlanContext,
    recompute: Checkpointing | None,
    chooses_micro_batch: bool,
) -> list[PlanRow]:
    """Evaluate each layout with activations kept and recomputed, and partly recomputed if only that makes it fit."""

    def evaluated(strategy: Strategy, act_ckpt: Checkpointing) -> PlanRow:
        made = _candidate_setting(setting, strategy, act_ckpt)
        return _evaluated(choose_micro_batch(made, context) if chooses_micro_batch else made, context)

    if recompute:
        return [evaluated(strategy, recompute) for strategy in layouts]
    found: list[PlanRow] = []
    for strategy in layouts:
        kept = evaluated(strategy, "none")
        found.append(kept)
        if not has_known_shape(setting.model):
            continue
        if kept.candidate.fits is not True and not kept.candidate.host_bytes:
            in_part = evaluated(strategy, "selective-op")
            found += [in_part] if in_part.candidate.fits is True else []
        found.append(evaluated(strategy, "full"))
    return found


def _candidate_setting(setting: TrainingSetup, strategy: Strategy, act_ckpt: Checkpointing) -> TrainingSetup:
    dtype = setting.train.dtype
    if strategy.is_fully_shard and _splits_experts_by_columns(setting, strategy):
        strategy = msgspec.structs.replace(strategy, experts_by_columns=True)
    if strategy.kind == "deepspeed" and dtype in ("bf16-mixed", "fp16-mixed"):
        dtype = "bf16-deepspeed" if dtype.startswith("bf16") else "fp16-deepspeed"
    # Ranks of the same sequences accumulate more micro-batches, so that a step has as many.
    grad_accum = (setting.train.grad_accum or 1) * split_ways(strategy)
    train = msgspec.structs.replace(setting.train, act_ckpt=act_ckpt, dtype=dtype, grad_accum=grad_accum)
    return msgspec.structs.replace(setting, strategy=strategy, train=train)


def _splits_experts_by_columns(setting: TrainingSetup, strategy: Strategy) -> bool:
    """Return whether experts are fewer than the ranks that shard them, and their second dimension divides evenly.

    ``fully_shard`` takes no uneven split of another dimension than the first (torch 2.13).
    """
    model, over = setting.model, shard_counts(strategy, setting.gpus, setting.nodes)[0]
    inner = expert_width(model)
    return inner > 0 and (model.experts or 0) < over and (model.hidden or 0) % over == inner % over == 0


def _evaluated(setting: TrainingSetup, context: PlanContext) -> PlanRow:
    setting = choose_loading(setting, context)
    return PlanRow(evaluate(setting, context), setting)


def split_layouts(setting: TrainingSetup) -> list[Strategy]:
    """Return the layouts that split the model of a setting, the simplest first; none for a single GPU."""
    model, train = setting.model, setting.train
    # torch's plans for decoders apply to text models whose weights are not quantized.
    plain = has_known_shape(model) and not is_encoder_decoder(model) and model.kind in (None, "decoder")
    if setting.gpus == 1 or not plain or model.tower or train.quant:
        return []
    per_node = setting.gpus // setting.nodes
    found: list[Strategy] = []
    if model.experts:
        for ranks in sorted({gcd(model.experts, per_node), gcd(model.experts, setting.gpus)} - {1}):
            found.append(_fsdp2(expert=ranks))
    if (train.seq_len or 0) >= LONG_SEQUENCE and per_node > 1:
        found += [_fsdp2(context=ranks) for ranks in dict.fromkeys((2, per_node))]
    # Ranks with NVLink between them on common servers, which divide the heads and those of keys and values.
    tensor = gcd(8, per_node, model.heads or 1, model.kv_heads or model.heads or 1)
    found += [_fsdp2(tensor=ranks) for ranks in dict.fromkeys((2, tensor)) if tensor % ranks == 0 and tensor > 1]
    if setting.nodes > 1 and (model.layers or 0) >= setting.nodes:
        found.append(_fsdp2(tensor=tensor if tensor > 1 else None, pipeline=setting.nodes))
    return found


def _fsdp2(**splits: int | None) -> Strategy:
    return Strategy(kind="fsdp2", reshard_after_forward=True, **splits)  # type: ignore[arg-type]
