"""The machine of a plan: by name, by numbers, detected now, or from a snapshot; with a note on each derived figure."""

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from .. import snapshot as snapshots
from ..errors import UserError
from ..hardware import gpu_catalog, server_catalog
from ..hardware.machine import Machine, machine_from_snapshot
from ..probes.context import ProbeContext
from ..snapshot import AllreduceSection, Snapshot
from ..system.files import read_regular_file
from ..text.units import GIB, gbps_text, gib_text, seconds_text
from . import spec
from .timing.communication import NVLINK_HOP_S, PCIE_HOP_S, START_S, Links

PCIE_MOST_GBPS = 30.0  # highest bus bandwidth that GPUs reach over PCIe
GPU_BACKENDS = ("nccl", "rccl")
LEAST_FREE_GIB = 0.1  # of a GPU whose memory is all in use


class ClusterShape(NamedTuple):
    """GPUs over nodes, their usable memory and links, the host's resources, and notes on what was not given."""

    gpus: int
    nodes: int
    gpu: str | None
    gpu_memory_gib: float | None
    links: Links
    host_bytes: float | None
    nvme_bytes: float | None
    notes: list[str]
    full_node_gpus: int = spec.PER_NODE


def resolve_machine(given: Mapping[str, Any], detect: Callable[[], Machine]) -> ClusterShape:
    """Return the machine of the options. ``detect`` is called if the options do not describe GPUs.

    Raises:
        UserError: An option is invalid, or two options exclude each other.
    """
    if given.get("machine") and given.get("machine_snapshot"):
        raise UserError("--machine and --machine-snapshot exclude each other", "leave one out")
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
        if saved := given.get("machine_snapshot"):
            next_step = "give a file written by ddpwizard doctor --bench --save"
            content = read_regular_file(Path(saved), snapshots.LIMIT_BYTES, next_step)
            snapshot = snapshots.read_snapshot(content, str(Path(saved)))
        found = _by_numbers(snapshot, gpus, nodes, gpu, memory_gib, detect)
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
        raise UserError(f"--gpu together with --machine {name}", f"leave it out: the machine has {server.gpu.upper()}")
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
    notes = [
        f"{name}: {server.gpus} × {server.gpu.upper()}, {server.host_gib:.0f} GiB of host memory{drives}, "
        f"{server.network_gbit:g} Gbit/s to other nodes (vendor's specification)"
    ]
    nvme = server.nvme_gb * 1e9
    host_bytes, memory_gib = server.host_gib * GIB, hardware.memory_gib
    return ClusterShape(
        gpus, nodes, server.gpu.upper(), memory_gib, links, host_bytes, nvme, notes, full_node_gpus=server.gpus
    )


def _by_numbers(
    snapshot: Snapshot | None,
    gpus: int | None,
    nodes: int | None,
    gpu: str | None,
    memory_gib: float | None,
    detect: Callable[[], Machine],
) -> ClusterShape:
    """Return the machine by numbers; missing ones come from a snapshot, or from this machine."""
    given = gpus is not None or gpu is not None or memory_gib is not None
    if snapshot is None and given:
        count, notes = _nodes(gpus, nodes)
        return ClusterShape(gpus or count, count, gpu, None, default_links(gpu, memory_gib), None, None, notes)
    machine = machine_from_snapshot(snapshot) if snapshot else detect()
    notes = machine_notes(machine)
    if snapshot:
        source = f"in the snapshot of {snapshot.host[:60]}, {_when(snapshot)}"
        notes = [line.replace("on this machine", source) for line in notes]
    if given:
        notes = [line for line in notes if not line.startswith("gpus:")]
    per_node = machine.listed_gpus or 1
    if gpus is None:
        nodes = nodes or 1
        gpus = per_node * nodes
    else:
        nodes, more = _nodes(gpus, nodes, machine.listed_gpus or spec.PER_NODE)
        notes += more
    detected_gpu, free_gib = machine.gpu_name or None, free_gpu_memory_gib(machine)
    same = gpu is None or gpu == detected_gpu
    links = default_links(gpu or detected_gpu, memory_gib or free_gib, machine.nvlinks if same else None)
    if same and machine.nvlinks == 0 and gpus > nodes:
        notes.append("link within a node: PCIe, no NVLink found")
    found = ClusterShape(
        gpus,
        nodes,
        gpu or detected_gpu,
        free_gib if same else None,
        links,
        float(machine.memory_free_bytes) or None,
        machine.nvme_free_bytes,
        notes,
        full_node_gpus=machine.listed_gpus or spec.PER_NODE,
    )
    return _with_bench(found, snapshot) if snapshot else found


def _with_bench(found: ClusterShape, snapshot: Snapshot) -> ClusterShape:
    """Return the machine with the links that ``doctor --bench`` measured, if it did on GPUs."""
    section = snapshot.allreduce
    if section is None:
        problem = "not measured in that snapshot; ddpwizard doctor --bench measures them"
        return found._replace(notes=[*found.notes, f"links: {problem}"])
    links = links_from_bench(section, found.links)
    if links is None:
        return found._replace(notes=[*found.notes, "links: the all-reduce of that snapshot failed"])
    if section.backend not in GPU_BACKENDS:
        what = f"the all-reduce of that snapshot ran on CPUs, over {section.backend}, and does not apply to GPUs"
        return found._replace(notes=[*found.notes, f"links: {what}"])
    source = f"measured {_when(snapshot)} over {section.backend} with {section.ranks} ranks"
    rate = f"{gbps_text(links.intra_gbps)} and {seconds_text(links.intra_latency_s)} per hop"
    return found._replace(links=links, notes=[*found.notes, f"link within a node: {rate}, {source}"])


def links_from_bench(section: AllreduceSection, links: Links) -> Links | None:
    """Return the links as measured, or None without a successful all-reduce."""
    rows = [row for row in section.rows if row.correct and row.busbw_gbps > 0 and row.ranks > 1 and row.seconds > 0]
    if not rows:
        return None
    by_size = sorted(rows, key=lambda row: row.bytes)
    smallest, largest = by_size[0], by_size[-1]
    hop_s = (smallest.seconds - START_S) / (2 * (smallest.ranks - 1))  # small messages take two passes
    return links._replace(intra_gbps=largest.busbw_gbps, intra_latency_s=max(hop_s, 1e-7), measured=True)


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
    links, notes, gpu = found.links, list(found.notes), gpu_catalog.find_gpu(found.gpu, found.gpu_memory_gib)
    if given.get("intra_gbps") is not None:
        links = links._replace(intra_gbps=given["intra_gbps"])
    elif found.gpus > found.nodes and not links.measured:
        guessed = "" if gpu else f", assumed: {f'{found.gpu} is not known' if found.gpu else 'no GPU is named'}"
        notes.append(f"link within a node: {gbps_text(links.intra_gbps)}{guessed}")
    if given.get("inter_gbps") is not None:
        links = links._replace(inter_gbps=given["inter_gbps"])
    elif given.get("machine"):
        notes += [f"link between nodes: {gbps_text(links.inter_gbps)}"] if found.nodes > 1 else []
    else:
        network = server_catalog.assume_network(found.gpu, found.gpu_memory_gib, found.gpus // found.nodes or 1)
        links = links._replace(inter_gbps=network.gbps)
        after = "; times across nodes depend on it: give --inter-gbps or --machine"
        notes += [f"link between nodes: {gbps_text(network.gbps)}{network.after}{after}"] if found.nodes > 1 else []
    return found._replace(links=links, notes=notes)


def default_links(gpu: str | None, memory_gib: float | None, nvlinks: int | None = None) -> Links:
    """Return the default links of a GPU; ``nvlinks``: the number of links found."""
    hardware = gpu_catalog.find_gpu(gpu, memory_gib)
    intra = hardware.intra_gbps if hardware else gpu_catalog.INTRA_GBPS
    intra = min(intra, gpu_catalog.INTRA_GBPS) if nvlinks == 0 else intra
    return Links(intra, gpu_catalog.INTER_GBPS, PCIE_HOP_S if intra <= PCIE_MOST_GBPS else NVLINK_HOP_S)


def _nodes(gpus: int | None, nodes: int | None, per_node: int = spec.PER_NODE) -> tuple[int, list[str]]:
    """Return the number of nodes, and a note if it was derived and is more than one."""
    if nodes is not None or gpus is None or (most := spec.nodes_for(gpus, per_node)) == 1:
        return nodes or 1, []
    return most, [f"nodes: {most}, {gpus // most} GPUs each"]


def resolve_gpu_name(gpu: str) -> gpu_catalog.GpuSpec:
    """Return the GPU of a name.

    Raises:
        UserError: It is unknown or ambiguous.
    """
    try:
        return gpu_catalog.get_gpu(gpu)
    except UserError as error:
        more = "Or give --gpu-memory" if error.next_step.endswith("?") else "or give --gpu-memory"
        raise UserError(error.message, f"{error.next_step.removesuffix(';')} {more}") from error


def parse_gib(text: str | None, option: str) -> float | None:
    """Parse ``80GB`` or ``24GiB`` as GiB; a number without unit is GB, as on data sheets.

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


def detect_machine(python: str) -> Machine:
    """Detect this machine with the probes of ``ddpwizard doctor``, which a plan for given GPUs does not need."""
    from ..knowledge_cache import load_knowledge
    from ..probes.run_probes import run_probes

    probes = run_probes(["gpus", "limits"], ProbeContext(python=python), load_knowledge(), granted="reads")
    free_bytes, mount = free_nvme()
    return msgspec.structs.replace(
        machine_from_snapshot(asyncio.run(probes)), nvme_free_bytes=free_bytes, nvme_mount=mount
    )


def free_nvme() -> tuple[float, str]:
    """Return the most free bytes on a mounted NVMe drive and its mount point, or 0 and "" without one."""
    import psutil

    found = (0.0, "")
    for each in psutil.disk_partitions(all=False):
        if Path(each.device).name.startswith("nvme"):
            with suppress(OSError):
                found = max(found, (float(psutil.disk_usage(each.mountpoint).free), each.mountpoint))
    return found


def free_gpu_memory_gib(machine: Machine) -> float | None:
    """Return the free memory of the fullest GPU, or None if the machine has no known GPU."""
    return max(machine.gpu_free_bytes / GIB, LEAST_FREE_GIB) if machine.listed_gpus else None


def machine_notes(machine: Machine) -> list[str]:
    """Return what was detected, one line each."""
    notes = ["gpus: 1, no GPU found on this machine; give --gpus 8 --gpu H100"]
    if machine.listed_gpus:
        free, names = gib_text(machine.gpu_free_bytes), ", ".join(machine.gpu_names)
        notes = [f"gpus: {machine.listed_gpus}, found on this machine ({names}), {free} free on each"]
    if machine.memory_free_bytes:
        notes.append(f"host memory: {gib_text(machine.memory_free_bytes, 0)} free on this machine")
    if machine.nvme_free_bytes is None:
        return notes
    if not machine.nvme_mount:
        return [*notes, "NVMe: no drive found on this machine"]
    return [*notes, f"NVMe: {gib_text(machine.nvme_free_bytes, 0)} free on {machine.nvme_mount}"]
