"""Which strategies there are for a model on a box, the best first."""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import msgspec

from ..box.servers import Host, usual_host
from ..memory.activations import counted
from ..memory.peaks import over_bytes, same
from ..model.shape import trained_params
from ..time import timing
from ..types import GIB, Candidate, Checkpointing, Setting, Strategy
from . import split
from .figures import HOST_ROOM, Around, compared, figures, of_host, too_large
from .levers import changes, held_back, lever, times

PLACE = {True: 0, None: 0, "tight": 1, False: 3}
SLOW_PLACE = 2  # of what fits, but not in practice
ALIKE = 1.03  # times the fastest step: times are estimated, and so near to it the simplest is as good
HELD_BACK = 0.05  # of the tokens per second, from which on a larger micro-batch is missed
MOST_SEQUENCES = 512  # of a micro-batch that is looked for


def strategies(gpus: int, nodes: int) -> list[Strategy]:
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
    sharded = [Strategy(kind="fsdp2", reshard_after_forward=False), Strategy(kind="fsdp2", reshard_after_forward=True)]
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


def drives() -> list[Strategy]:
    """ZeRO-Infinity: with an NVMe drive on each node, where a host has no room for what is offloaded."""
    return [
        Strategy(kind="deepspeed", stage=3, offload_optimizer="nvme"),
        Strategy(kind="deepspeed", stage=3, offload_optimizer="nvme", offload_param="nvme"),
    ]


class Row(NamedTuple):
    """A candidate and the complete setting it was computed from."""

    candidate: Candidate
    setting: Setting


def plan(
    setting: Setting,
    links: timing.Links | None = None,
    host_bytes: float | None = None,
    recompute: Checkpointing | None = None,
    nvme_bytes: float | None = None,
) -> list[Row]:
    """The candidates of a complete setting, best first: what fits, without an offload before with one, then by the time
    of a step; of those that are as fast as the fastest within 3 % the simplest comes first. Of what does not fit, what
    lacks least comes first.

    With a strategy in the setting, only that one; with ``recompute``, only that. ``host_bytes``: memory of one host,
    None: what such a host usually has (not where the strategy is said: that is asked as it is). ``nvme_bytes``: free on
    its drive, 0 where it has none, None where that is not known.
    """
    if setting.strategy:
        around = Around(links, host_bytes)
        rows = [_figured(setting, around)]
    else:
        host_bytes = host_bytes or (host.bytes if (host := host_of(setting)) else None)
        around = Around(links, host_bytes)
        layouts = strategies(setting.gpus, setting.nodes)
        rows = _rows(setting, layouts, around, recompute)
        fitting = any(_place(row.candidate) == 0 for row in rows)
        if not fitting and any(of_host(*row, host_bytes) > 1 for row in rows):
            on_drives = _rows(setting, drives(), around, recompute)
            rows += [row for row in on_drives if nvme_bytes is None or drive_bytes(row.setting) <= nvme_bytes]
    ranked = _ranked(rows, host_bytes)
    explained = [_explained(row, around, _dominated(row, ranked) if at else "") for at, row in enumerate(ranked)]
    if wants_more(explained[0].candidate):
        explained[0] = Row(_with_next_step(explained[0]), explained[0].setting)
    return explained


def wants_more(best: Candidate) -> bool:
    """Whether sharding is at its end: nothing fits, or nothing in practice, or only with all on a drive."""
    return best.fits is False or not best.in_practice or best.binds == "NVMe"


def host_of(setting: Setting) -> Host | None:
    """What a host of a setting is taken to have where that is not said."""
    return usual_host(setting.gpu, setting.gpu_memory_gib, setting.gpus // setting.nodes)


def _place(found: Candidate) -> int:
    return PLACE[found.fits] if found.in_practice or found.fits is False else SLOW_PLACE


def _ranked(rows: Sequence[Row], host_bytes: float | None) -> list[Row]:
    """The best first; rows come the simplest first."""

    def group(row: Row) -> tuple[int, bool]:
        return _place(row.candidate), row.candidate.fits is not False and row.setting.layout.offloads

    fastest: dict[tuple[int, bool], float] = {}
    for row in rows:
        step_s = row.candidate.step_seconds or 0.0
        fastest[group(row)] = min(fastest.get(group(row), step_s), step_s)

    def order(row: Row) -> tuple[int, bool, bool, float]:
        here, found = group(row), row.candidate
        if found.fits is False:
            return *here, True, _over(row, host_bytes)
        step_s = found.step_seconds or 0.0
        alike = step_s <= ALIKE * fastest[here]
        return *here, not alike, float(found.recompute != "none") if alike else step_s

    return sorted(rows, key=order)


def assumed(rows: Sequence[Row], links: timing.Links | None, host_bytes: float | None = None) -> list[str]:
    """What a plan took for granted besides what its setting says."""
    found = _of_host(rows, host_bytes)
    drive = any("nvme" in (row.setting.layout.offload_optimizer, row.setting.layout.offload_param) for row in rows)
    if links is None or not drive or links.nvme_gbps:
        return found
    return [*found, f"NVMe on each node: {timing.NVME_GBPS:g} GB/s, one drive"]


def _of_host(rows: Sequence[Row], host_bytes: float | None) -> list[str]:
    """The memory of a host, where it is not given and anything but a named strategy makes use of it."""
    host = host_of(rows[0].setting)
    if host_bytes or host is None or len(rows) == 1 or not any(row.candidate.host_bytes for row in rows):
        return []
    return [f"host memory: {host.bytes / GIB:,.0f} GiB on each node, {host.after}; --host-memory says otherwise"]


def drive_bytes(setting: Setting) -> float:
    """What a node's share takes on its drive: fp32 weights, moments and gradients, and 16-bit weights
    (ZeRO-Infinity, arXiv 2104.07857, section 3)."""
    strategy, model = setting.layout, setting.model
    states = 16 * trained_params(model, setting.train) if strategy.offload_optimizer == "nvme" else 0.0
    return (states + (2 * model.params if strategy.offload_param == "nvme" else 0.0)) / setting.nodes


def largest_micro_batch(setting: Setting) -> int:
    """The most sequences per GPU and step that still fit, ``MOST_SEQUENCES`` where more would, 0 where not even one
    does."""

    common = same(setting)

    def over(count: int) -> float:
        train = msgspec.structs.replace(setting.train, micro_batch=count)
        return over_bytes(msgspec.structs.replace(setting, train=train), common)

    if over(1) > 0:
        return 0
    most = over(MOST_SEQUENCES)
    if most <= 0:
        return MOST_SEQUENCES
    # Memory grows evenly but for where another moment becomes the peak: begin where that leads from the top, go on.
    each = most - over(MOST_SEQUENCES - 1)
    guess = MOST_SEQUENCES - ceil(most / each) if each > 0 else 1
    low, high, width = 1, MOST_SEQUENCES, 1
    guess = min(max(guess, low), high - 1)
    if over(guess) <= 0:
        low = guess
        while low + width < high and over(low + width) <= 0:
            low, width = low + width, 2 * width
        high = min(high, low + width)
    else:
        high = guess
        while high - width > low and over(high - width) > 0:
            high, width = high - width, 2 * width
        low = max(low, high - width)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if over(middle) <= 0 else (low, middle)
    return low


def _rows(setting: Setting, layouts: Sequence[Strategy], around: Around, recompute: Checkpointing | None) -> list[Row]:
    """Each layout with activations kept and recomputed; in part where that makes one fit that would not."""
    found: list[Row] = []
    for strategy in layouts:
        if recompute:
            found.append(_row(setting, strategy, recompute, around))
            continue
        kept = _row(setting, strategy, "none", around)
        found.append(kept)
        if not counted(setting.model):
            continue
        if kept.candidate.fits is not True and not kept.candidate.host_bytes:
            in_part = _row(setting, strategy, "selective-op", around)
            found += [in_part] if in_part.candidate.fits is True else []
        found.append(_row(setting, strategy, "full", around))
    return found


def _row(setting: Setting, strategy: Strategy, act_ckpt: Checkpointing, around: Around) -> Row:
    dtype = setting.train.dtype
    if strategy.kind == "deepspeed" and dtype in ("bf16-mixed", "fp16-mixed"):
        dtype = "bf16-deepspeed" if dtype.startswith("bf16") else "fp16-deepspeed"
    train = msgspec.structs.replace(setting.train, act_ckpt=act_ckpt, dtype=dtype)
    return _figured(msgspec.structs.replace(setting, strategy=strategy, train=train), around)


def _figured(setting: Setting, around: Around) -> Row:
    return Row(compared(figures(setting, around), setting, around), setting)


def _explained(row: Row, around: Around, dominated_by: str) -> Row:
    found, setting = row
    most = largest_micro_batch(setting) if setting.gpu_memory_gib and counted(setting.model) else None
    binds = found.binds
    if found.fits is False:
        binds = "GPU memory" if too_large(found, setting) else "host memory"
    elif found.fits == "tight" and binds != "NVMe":
        binds = "GPU memory"
    found = msgspec.structs.replace(found, largest_micro_batch=most, binds=binds, dominated_by=dominated_by)
    held = held_back(found, setting, around)
    if held > HELD_BACK and found.binds == "arithmetic":
        found = msgspec.structs.replace(found, binds="GPU memory")
    why = _why(found, setting, around.host_bytes)
    if dominated_by:
        what = f"{dominated_by} is as fast and needs no more"
        return Row(msgspec.structs.replace(found, why=why, lever=what), setting)
    bought = changes(found, setting, around)
    said = msgspec.structs.replace(found, changes=bought, why=why, lever=lever(found, setting, bought, around))
    return Row(said, setting)


def _with_next_step(row: Row) -> Candidate:
    return msgspec.structs.replace(
        row.candidate, lever=f"{row.candidate.lever}. {split.advice(row.setting).removesuffix('.')}"
    )


def _over(row: Row, host_bytes: float | None) -> float:
    """How many times what there is a candidate needs, of the GPU's or of the host's memory."""
    found, setting = row
    memory = found.device_used_bytes_per_gpu / ((setting.gpu_memory_gib or 1) * GIB)
    return max(memory, of_host(found, setting, host_bytes))


def _family(strategy: Strategy) -> str:
    if strategy.kind == "deepspeed":
        return "deepspeed"
    return "fsdp" if strategy.is_fsdp else "replicated"


def _dominated(row: Row, rows: Sequence[Row]) -> str:
    """The name of one of the family that is as good in time and in memory of GPU and host, and better in one. DDP is
    what others are compared with: nothing takes its place."""
    if row.candidate.step_seconds is None or row.setting.layout.kind == "ddp":
        return ""

    def costs(each: Row) -> tuple[float, ...]:
        found = each.candidate
        return (found.step_seconds or 0.0, found.peak_allocated_bytes_per_gpu, found.host_bytes)

    mine, family = costs(row), _family(row.setting.layout)
    for other in rows:
        if other is row or _family(other.setting.layout) != family:
            continue
        theirs = costs(other)
        if theirs != mine and all(one <= two for one, two in zip(theirs, mine, strict=True)):
            again = {"none": "", "full": ", recomputing"}.get(other.candidate.recompute, ", recomputing in part")
            return other.candidate.strategy + again
    return ""


def _why(found: Candidate, setting: Setting, host_bytes: float | None) -> str:
    if setting.gpu_memory_gib is None:
        least = "" if counted(setting.model) else " for the states alone, activations come on top"
        return f"needs {found.device_used_bytes_per_gpu / GIB:,.1f} GiB per GPU{least}"
    room = setting.gpu_memory_gib * GIB - found.device_used_bytes_per_gpu
    if found.fits is False:
        if not too_large(found, setting):
            return f"does not fit: {_short_of_host(found, setting, host_bytes)}"
        return f"does not fit: {-room / GIB:,.1f} GiB of GPU memory are missing"
    if not counted(setting.model):
        least = f"at least {found.device_used_bytes_per_gpu / GIB:,.1f} of {setting.gpu_memory_gib:.1f} GiB"
        return f"{least}; activations come on top, and are counted from layers and hidden size"
    spare = f"{room / GIB:.1f} GiB to spare" if room > 0 else "fits only where PyTorch gives its gaps back"
    said = f"{spare}{_on_host(found, setting)}{_pace(found, setting)}"
    return said if found.in_practice else f"not in practice: {said}"


def _on_host(found: Candidate, setting: Setting) -> str:
    if not found.host_bytes:
        return ""
    ranks = setting.gpus // setting.nodes
    in_all = f", {found.host_bytes * ranks / GIB:,.0f} GiB on each host" if ranks > 1 else ""
    return f", {found.host_bytes / GIB:,.0f} GiB of host memory for each GPU{in_all}"


def _short_of_host(found: Candidate, setting: Setting, host_bytes: float | None) -> str:
    if not host_bytes:
        return "host memory is missing"
    ranks = setting.gpus // setting.nodes
    needed, there = found.host_bytes * ranks, host_bytes * HOST_ROOM
    each = f" ({ranks} ranks need {found.host_bytes / GIB:,.0f} each)" if ranks > 1 else ""
    return f"{(needed - there) / GIB:,.0f} GiB of host memory are missing{each}"


def pace(slower_than_ideal: float) -> str:
    """``41% slower than ideal``; from twice as long on ``5.4 times the ideal step``."""
    if slower_than_ideal >= 1:
        return f"{times(1 + slower_than_ideal)} times the ideal step"
    return f"{slower_than_ideal:.0%} slower than ideal"


def _pace(found: Candidate, setting: Setting) -> str:
    """How far from the ideal it is, and what the most of that is."""
    if found.slower_than_ideal is None or not found.step_seconds:
        return ""
    slower = f", {pace(found.slower_than_ideal)}"
    if found.binds == "GPU memory" and found.fits is True:
        slower += ", no room for twice the micro-batch, which would be quicker"
    waits = (found.exposed_comm_seconds or 0.0) / found.step_seconds
    if waits >= 0.01:
        whom = "the network" if setting.nodes > 1 else "other GPUs"
        slower += f" ({waits:.0%} of a step waits for {whom})"
    words = {"NVMe": "the NVMe drive", "host memory": "the optimizer on the host", "host link": "the link to the host"}
    return slower + (f"; what binds is {words[found.binds]}" if found.binds in words else "")
