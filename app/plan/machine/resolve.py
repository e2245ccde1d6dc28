"""The box a plan is for: named, given in numbers, looked at now, or looked at before; and where each figure is from."""

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from ... import snapshot as snapshots
from ...errors import UserError
from ...hardware import gpu_catalog, server_catalog
from ...snapshot import AllreduceSection, BenchRow, Snapshot
from ...system.files import read_regular_file
from ...text.units import GIB
from .. import spec
from ..timing.communication import NVLINK_HOP_S, PCIE_HOP_S, START_S, Links
from . import detected

SNAPSHOT_LIMIT_BYTES = 50_000_000
PCIE_MOST_GBPS = 30.0  # of bus bandwidth, that GPUs reach over PCIe
GPU_BACKENDS = ("nccl", "rccl")


class ClusterShape(NamedTuple):
    """GPUs over nodes, what a program can use of one, the links, and what a host has for what is offloaded to it.
    ``told``: a line for each figure that was not given."""

    gpus: int
    nodes: int
    gpu: str | None
    gpu_memory_gib: float | None
    links: Links
    host_bytes: float | None
    nvme_bytes: float | None
    told: list[str]
    full_node_gpus: int = spec.PER_NODE


class MeasuredLinks(NamedTuple):
    """What ``doctor --bench`` saw of a box: of large messages, and of small ones; in words when and how."""

    intra_gbps: float
    hop_s: float
    told: str


def resolve_machine(given: Mapping[str, Any], look: Callable[[], detected.DetectedMachine]) -> ClusterShape:
    """The box of the options. ``look`` sees what is here, and is asked where nothing is said of GPUs.

    Raises:
        UserError: An option makes no sense, or two of them do not go together.
    """
    if given.get("machine") and given.get("machine_snapshot"):
        raise UserError("--machine and --machine-snapshot: which of them?", "leave one out")
    gpus, nodes, gpu = given.get("gpus"), given.get("nodes"), given.get("gpu")
    for name, count in (("gpus", gpus), ("nodes", nodes)):
        if count is not None and not 0 < count <= spec.MOST:
            raise UserError(f"{name} is {count}", f"give 1 to {spec.MOST:,}")
    memory_gib = given.get("gpu_memory_gib") or parse_gib(given.get("gpu_memory"), "--gpu-memory")
    host_gib = parse_gib(given.get("host_memory"), "--host-memory")
    if given.get("machine"):
        found = _named(given["machine"], gpus, nodes, gpu)
    else:
        snapshot = given.get("snapshot")
        if given.get("machine_snapshot"):
            snapshot = load_snapshot(Path(given["machine_snapshot"]))
        found = _seen(snapshot, gpus, nodes, gpu, memory_gib, look)
    if found.gpu and memory_gib is None and found.gpu_memory_gib is None:
        memory_gib = resolve_gpu_name(found.gpu).memory_gib
    found = found._replace(
        gpu_memory_gib=memory_gib or found.gpu_memory_gib,
        host_bytes=host_gib * GIB if host_gib else found.host_bytes,
    )
    return _with_links(found, given)


def _named(name: str, gpus: int | None, nodes: int | None, gpu: str | None) -> ClusterShape:
    server = server_catalog.get_server(name)
    if gpu:
        raise UserError(f"--gpu beside --machine {name}", f"leave it out: the machine has {server.gpu.upper()}")
    if gpus is None:
        nodes = nodes or 1
        gpus = server.gpus * nodes
    elif nodes is None:
        nodes = spec.nodes_for(gpus, server.gpus)
    if gpus > server.gpus * nodes:
        there = f"{server.gpus} × {nodes} = {server.gpus * nodes}"
        raise UserError(f"{gpus} GPUs on {nodes} of {name}: {there}", f"--nodes {-(-gpus // server.gpus)}")
    hardware = server.hardware
    links = default_links(server.gpu, hardware.memory_gib)._replace(inter_gbps=server.inter_gbps)
    drives = f", {server.nvme_gb / 1000:.1f} TB of NVMe" if server.nvme_gb else ", no NVMe drives"
    told = [
        f"{name}: {server.gpus} × {server.gpu.upper()}, {server.host_gib:.0f} GiB of host memory{drives}, "
        f"{server.network_gbit:g} Gbit/s to other nodes (the maker's page)"
    ]
    nvme = server.nvme_gb * 1e9
    host_bytes, memory_gib = server.host_gib * GIB, hardware.memory_gib
    return ClusterShape(
        gpus, nodes, server.gpu.upper(), memory_gib, links, host_bytes, nvme, told, full_node_gpus=server.gpus
    )


def _seen(
    snapshot: Snapshot | None,
    gpus: int | None,
    nodes: int | None,
    gpu: str | None,
    memory_gib: float | None,
    look: Callable[[], detected.DetectedMachine],
) -> ClusterShape:
    """The box by numbers; what is not said of GPUs is looked for in a saved look, or here."""
    said = gpus is not None or gpu is not None or memory_gib is not None
    if snapshot is None and said:
        count, told = _nodes(gpus, nodes)
        return ClusterShape(gpus or count, count, gpu, None, default_links(gpu, memory_gib), None, None, told)
    box = detected.machine_from_sections(snapshot.gpus, snapshot.limits) if snapshot else look()
    whose = "those seen here" if snapshot is None else f"of the look at {snapshot.host[:60]}, {_when(snapshot)}"
    told = [line.replace("those seen here", whose) for line in box.told]
    if snapshot:
        told = [line.replace("what is free here", "what was free then") for line in told]
        told = [line.replace("is seen here; say", f"in the look at {snapshot.host[:60]}; say") for line in told]
    if said:
        told = [line for line in told if not line.startswith("gpus:")]
    per_node = box.gpus or 1
    if gpus is None:
        nodes = nodes or 1
        gpus = per_node * nodes
    else:
        nodes, more = _nodes(gpus, nodes, box.gpus or spec.PER_NODE)
        told += more
    same = gpu is None or gpu == box.gpu
    links = default_links(gpu or box.gpu, memory_gib or box.gpu_memory_gib, box.nvlinks if same else None)
    if same and box.nvlinks == 0 and gpus > nodes:
        told.append("link within a node: PCIe, no NVLink is seen")
    found = ClusterShape(
        gpus, nodes, gpu or box.gpu, box.gpu_memory_gib if same else None, links, box.host_bytes, None, told
    )
    found = found._replace(nvme_bytes=box.nvme_bytes, full_node_gpus=box.gpus or spec.PER_NODE)
    return _with_bench(found, snapshot) if snapshot else found


def _with_bench(found: ClusterShape, snapshot: Snapshot) -> ClusterShape:
    section = snapshot.allreduce
    if section is None:
        return found._replace(told=[*found.told, "links: not measured in that look; ddpwizard doctor --bench does"])
    bench = links_from_bench(section, _when(snapshot))
    if bench is None:
        return found._replace(told=[*found.told, "links: the all-reduce of that look did not go through"])
    if section.backend not in GPU_BACKENDS:
        what = f"the all-reduce of that look ran between CPUs, over {section.backend}: it says nothing of GPUs"
        return found._replace(told=[*found.told, f"links: {what}"])
    links = found.links._replace(intra_gbps=bench.intra_gbps, intra_latency_s=bench.hop_s, measured=True)
    return found._replace(links=links, told=[*found.told, bench.told])


def links_from_bench(section: AllreduceSection, when: str) -> MeasuredLinks | None:
    """The bus bandwidth of the largest message and the time of a hop, from an all-reduce that went through."""
    rows = [row for row in section.rows if row.correct and row.busbw_gbps > 0 and row.ranks > 1 and row.seconds > 0]
    if not rows:
        return None
    best = max(rows, key=lambda row: row.bytes).busbw_gbps
    hop_s = _hop_s(min(rows, key=lambda row: row.bytes))
    words = f"measured {when} over {section.backend} with {section.ranks} ranks"
    return MeasuredLinks(
        best, hop_s, f"link within a node: {best:.3g} GB/s and {hop_s * 1e6:.3g} µs for each hop, {words}"
    )


def _hop_s(smallest: BenchRow) -> float:
    """One of the hops of a ring of small messages, two passes around it."""
    return max((smallest.seconds - START_S) / (2 * (smallest.ranks - 1)), 1e-7)


def load_snapshot(path: Path) -> Snapshot:
    """A look that was saved by ``doctor --save``.

    Raises:
        UserError: It cannot be read, or is none.
    """
    next_step = "give a file written by ddpwizard doctor --bench --save"
    return snapshots.read_snapshot(read_regular_file(path, SNAPSHOT_LIMIT_BYTES, next_step), str(path))


def _when(snapshot: Snapshot) -> str:
    try:
        return datetime.fromtimestamp(snapshot.taken_at, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return "at an unknown time"


def _with_links(found: ClusterShape, given: Mapping[str, Any]) -> ClusterShape:
    for option in ("intra_gbps", "inter_gbps"):
        value = given.get(option)
        if value is not None and not (math.isfinite(value) and 0 < value < 1e6):
            raise UserError(f"--{option.replace('_', '-')} is {value:g}", "give GB/s, such as 90")
    links, told, gpu = found.links, list(found.told), gpu_catalog.find_gpu(found.gpu, found.gpu_memory_gib)
    if given.get("intra_gbps") is not None:
        links = links._replace(intra_gbps=given["intra_gbps"])
    elif found.gpus > found.nodes and not links.measured:
        guessed = "" if gpu else f", a guess: {f'{found.gpu} is not known' if found.gpu else 'no GPU is named'}"
        told.append(f"link within a node: {links.intra_gbps:g} GB/s{guessed}")
    if given.get("inter_gbps") is not None:
        links = links._replace(inter_gbps=given["inter_gbps"])
    elif given.get("machine"):
        told += [f"link between nodes: {links.inter_gbps:g} GB/s"] if found.nodes > 1 else []
    else:
        network = server_catalog.assume_network(found.gpu, found.gpu_memory_gib, found.gpus // found.nodes or 1)
        links = links._replace(inter_gbps=network.gbps)
        after = "; times over nodes depend on it: --inter-gbps or --machine says it"
        told += [f"link between nodes: {network.gbps:g} GB/s{network.after}{after}"] if found.nodes > 1 else []
    return found._replace(links=links, told=told)


def default_links(gpu: str | None, memory_gib: float | None, nvlinks: int | None = None) -> Links:
    """The links where nothing is said of them and no machine is known; ``nvlinks``: how many are seen."""
    hardware = gpu_catalog.find_gpu(gpu, memory_gib)
    intra = hardware.intra_gbps if hardware else gpu_catalog.INTRA_GBPS
    intra = min(intra, gpu_catalog.INTRA_GBPS) if nvlinks == 0 else intra
    return Links(intra, gpu_catalog.INTER_GBPS, PCIE_HOP_S if intra <= PCIE_MOST_GBPS else NVLINK_HOP_S)


def _nodes(gpus: int | None, nodes: int | None, per_node: int = spec.PER_NODE) -> tuple[int, list[str]]:
    """The nodes, and where they were not said and are several, how many are taken."""
    if nodes is not None or gpus is None or (most := spec.nodes_for(gpus, per_node)) == 1:
        return nodes or 1, []
    return most, [f"nodes: {most}, {gpus // most} GPUs each"]


def resolve_gpu_name(gpu: str) -> gpu_catalog.GpuSpec:
    """The GPU of a name.

    Raises:
        UserError: It is none that is known, or several.
    """
    try:
        return gpu_catalog.get_gpu(gpu)
    except UserError as error:
        more = "Or give --gpu-memory" if error.next_step.endswith("?") else "or give --gpu-memory"
        raise UserError(error.message, f"{error.next_step.removesuffix(';')} {more}") from error


def parse_gib(text: str | None, option: str) -> float | None:
    """``80GB`` and ``24GiB`` as GiB; a bare number is GB, as on the box.

    Raises:
        UserError: It is neither.
    """
    if text is None:
        return None
    plain = text.strip().lower()
    unit = GIB if plain.endswith("gib") else 1e9
    if plain.endswith(("tb", "tib")):
        unit, plain = (2**40 if plain.endswith("tib") else 1e12), plain.replace("t", "g")
    try:
        size = float(plain.removesuffix("gib").removesuffix("gb").strip())
    except ValueError:
        size = 0.0
    if not 0 < size < 1e6:
        raise UserError(f"{option} is {text[:40]}", "give it as 80GB or 24GiB")
    return size * unit / GIB
