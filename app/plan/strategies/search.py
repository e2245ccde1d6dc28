"""Which strategies there are for a model on a box, the best first."""

from collections.abc import Sequence

import msgspec

from ...hardware.server_catalog import AssumedHost, assume_host
from ...text.units import GIB
from ..memory.activations import has_known_shape
from ..model.parameter_counts import trained_params
from ..timing import step_time
from ..types import Candidate, Checkpointing, PlanRow, Strategy, TrainingSetup
from .evaluate import PlanContext, add_comparison, evaluate, host_memory_share
from .explain import explain_candidates

PLACE = {True: 0, None: 0, "tight": 1, False: 3}
SLOW_PLACE = 2  # of what fits, but not in practice
ALIKE = 1.03  # times the fastest step: times are estimated, and so near to it the simplest is as good


def layouts_to_try(gpus: int, nodes: int) -> list[Strategy]:
    """Every layout worth trying, the simplest first; those with a drive are ``drives``.

    A mesh within one node is not: where all links are alike, it holds more and sends more than sharding over all.
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
        # After the forward pass each node keeps a copy of the weights, and gathers them from itself.
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


def nvme_strategies() -> list[Strategy]:
    """ZeRO-Infinity: with an NVMe drive on each node, where a host has no room for what is offloaded."""
    return [
        Strategy(kind="deepspeed", stage=3, offload_optimizer="nvme"),
        Strategy(kind="deepspeed", stage=3, offload_optimizer="nvme", offload_param="nvme"),
    ]


def plan_candidates(
    setting: TrainingSetup,
    links: step_time.Links | None = None,
    host_bytes: float | None = None,
    recompute: Checkpointing | None = None,
    nvme_bytes: float | None = None,
) -> list[PlanRow]:
    """The candidates of a complete setting, ranked, with what is said of each. ``host_bytes``: memory of one host,
    None: what such a host usually has (not where the strategy is said: that is asked as it is)."""
    around = context_of(setting, links, host_bytes)
    return explain_candidates(rank_candidates(setting, around, recompute, nvme_bytes), around)


def rank_candidates(
    setting: TrainingSetup, around: PlanContext, recompute: Checkpointing | None = None, nvme_bytes: float | None = None
) -> list[PlanRow]:
    """The candidates in figures, best first: what fits, without an offload before with one, then by the time of a step;
    of those that are as fast as the fastest within 3 % the simplest comes first. Of what does not fit, what lacks least
    comes first.

    With a strategy in the setting, only that one; with ``recompute``, only that. ``nvme_bytes``: free on the drive of a
    host, 0 where it has none, None where that is not known.
    """
    if setting.strategy:
        return [_figured(setting, around)]
    rows = _rows(setting, layouts_to_try(setting.gpus, setting.nodes), around, recompute)
    fitting = any(_place(row.candidate) == 0 for row in rows)
    if not fitting and any(host_memory_share(*row, around.host_bytes) > 1 for row in rows):
        on_drives = _rows(setting, nvme_strategies(), around, recompute)
        rows += [row for row in on_drives if nvme_bytes is None or drive_bytes(row.setting) <= nvme_bytes]
    return _ranked(rows, around.host_bytes)


def context_of(setting: TrainingSetup, links: step_time.Links | None, host_bytes: float | None) -> PlanContext:
    """What a plan depends on besides its setting, with a host's usual memory where none is given."""
    if not setting.strategy and not host_bytes and (host := host_memory_of(setting)):
        host_bytes = host.bytes
    return PlanContext(links, host_bytes)


def host_memory_of(setting: TrainingSetup) -> AssumedHost | None:
    """What a host of a setting is taken to have where that is not said."""
    return assume_host(setting.gpu, setting.gpu_memory_gib, setting.gpus // setting.nodes)


def _place(found: Candidate) -> int:
    return PLACE[found.fits] if found.in_practice or found.fits is False else SLOW_PLACE


def _ranked(rows: Sequence[PlanRow], host_bytes: float | None) -> list[PlanRow]:
    """The best first; rows come the simplest first."""

    def group(row: PlanRow) -> tuple[int, bool]:
        return _place(row.candidate), row.candidate.fits is not False and row.setting.layout.offloads

    fastest: dict[tuple[int, bool], float] = {}
    for row in rows:
        step_s = row.candidate.step_seconds or 0.0
        fastest[group(row)] = min(fastest.get(group(row), step_s), step_s)

    def order(row: PlanRow) -> tuple[int, bool, bool, float]:
        here, found = group(row), row.candidate
        if found.fits is False:
            return *here, True, _over(row, host_bytes)
        step_s = found.step_seconds or 0.0
        alike = step_s <= ALIKE * fastest[here]
        return *here, not alike, float(found.recompute != "none") if alike else step_s

    return sorted(rows, key=order)


def planning_assumptions(
    rows: Sequence[PlanRow], links: step_time.Links | None, host_bytes: float | None = None
) -> list[str]:
    """What a plan took for granted besides what its setting says."""
    found = _of_host(rows, host_bytes)
    drive = any("nvme" in (row.setting.layout.offload_optimizer, row.setting.layout.offload_param) for row in rows)
    if links is None or not drive or links.nvme_gbps:
        return found
    return [*found, f"NVMe on each node: {step_time.NVME_GBPS:g} GB/s, one drive"]


def _of_host(rows: Sequence[PlanRow], host_bytes: float | None) -> list[str]:
    """The memory of a host, where it is not given and anything but a named strategy makes use of it."""
    host = host_memory_of(rows[0].setting)
    if host_bytes or host is None or len(rows) == 1 or not any(row.candidate.host_bytes for row in rows):
        return []
    return [f"host memory: {host.bytes / GIB:,.0f} GiB on each node, {host.after}; --host-memory says otherwise"]


def drive_bytes(setting: TrainingSetup) -> float:
    """What a node's share takes on its drive: fp32 weights, moments and gradients, and 16-bit weights
    (ZeRO-Infinity, arXiv 2104.07857, section 3)."""
    strategy, model = setting.layout, setting.model
    states = 16 * trained_params(model, setting.train) if strategy.offload_optimizer == "nvme" else 0.0
    return (states + (2 * model.params if strategy.offload_param == "nvme" else 0.0)) / setting.nodes


def _rows(
    setting: TrainingSetup, layouts: Sequence[Strategy], around: PlanContext, recompute: Checkpointing | None
) -> list[PlanRow]:
    """Each layout with activations kept and recomputed; in part where that makes one fit that would not."""
    found: list[PlanRow] = []
    for strategy in layouts:
        if recompute:
            found.append(_row(setting, strategy, recompute, around))
            continue
        kept = _row(setting, strategy, "none", around)
        found.append(kept)
        if not has_known_shape(setting.model):
            continue
        if kept.candidate.fits is not True and not kept.candidate.host_bytes:
            in_part = _row(setting, strategy, "selective-op", around)
            found += [in_part] if in_part.candidate.fits is True else []
        found.append(_row(setting, strategy, "full", around))
    return found


def _row(setting: TrainingSetup, strategy: Strategy, act_ckpt: Checkpointing, around: PlanContext) -> PlanRow:
    dtype = setting.train.dtype
    if strategy.kind == "deepspeed" and dtype in ("bf16-mixed", "fp16-mixed"):
        dtype = "bf16-deepspeed" if dtype.startswith("bf16") else "fp16-deepspeed"
    train = msgspec.structs.replace(setting.train, act_ckpt=act_ckpt, dtype=dtype)
    return _figured(msgspec.structs.replace(setting, strategy=strategy, train=train), around)


def _figured(setting: TrainingSetup, around: PlanContext) -> PlanRow:
    return PlanRow(add_comparison(evaluate(setting, around), setting, around), setting)


def _over(row: PlanRow, host_bytes: float | None) -> float:
    """How many times what there is a candidate needs, of the GPU's or of the host's memory."""
    found, setting = row
    memory = found.device_used_bytes_per_gpu / ((setting.gpu_memory_gib or 1) * GIB)
    return max(memory, host_memory_share(found, setting, host_bytes))
